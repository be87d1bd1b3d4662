"""Tasks as people read them: payload and result are JSON, short on one line, long on several."""

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import duly
from duly_cli.output.task_text import listed_as_json, task_as_json, task_lines, task_table
from duly_wire.v1 import task_pb2

SUCCESS = task_pb2.TASK_STATUS_SUCCESS


def task(payload: object = None, result: object = None, status: Any = SUCCESS) -> duly.Task:
    wire = task_pb2.Task(
        task_id="t",
        status=status,
        priority=task_pb2.PRIORITY_NORMAL,
        payload=json.dumps(payload).encode(),
        result=json.dumps(result).encode(),
    )
    wire.created_at.FromDatetime(datetime(2026, 12, 24, tzinfo=UTC))
    return duly.Task.from_proto(wire)


def shown(name: str, task: duly.Task) -> str | None:
    """What stands beside a name, up to the end."""
    text = "\n".join(task_lines(task))
    _, found, rest = text.partition(f"\n{name:>16}  ")
    return rest if found else None


@pytest.mark.parametrize("value", [{"ok": True, "to": None}, ["Zürich"], "text", 0, False, "", None, 1.5])
def test_a_payload_and_a_result_are_json_whatever_they_are(value: object) -> None:
    assert shown("payload", task(payload=value)).splitlines()[0] == json.dumps(value, ensure_ascii=False)  # type: ignore[union-attr]
    assert shown("result", task(result=value)) == json.dumps(value, ensure_ascii=False)


def test_what_is_long_is_indented_and_still_json() -> None:
    value = {"text": "x" * 100, "more": [1, 2]}

    lines = (shown("result", task(result=value)) or "").splitlines()

    assert len(lines) > 3
    assert all(line.startswith(" " * 18) for line in lines[1:])
    assert json.loads("\n".join(lines)) == value


def test_a_missing_result_is_not_shown() -> None:
    assert shown("result", task(status=task_pb2.TASK_STATUS_NEW)) is None


def test_a_running_task_shows_its_attempt_and_its_progress() -> None:
    wire = task_pb2.Task(
        task_id="t",
        status=task_pb2.TASK_STATUS_PROCESSING,
        priority=task_pb2.PRIORITY_NORMAL,
        failures=1,
        crashes=1,
        progress=1 / 3,
    )
    lines = task_lines(duly.Task.from_proto(wire), max_attempts=5)

    assert "        progress  33 %" in lines
    assert "         attempt  3 of 6" in lines  # crashes are not counted against max_attempts


@pytest.mark.parametrize("status", [task_pb2.TASK_STATUS_NEW, task_pb2.TASK_STATUS_ENQUEUED])
def test_a_task_whose_time_has_come_says_since_when_it_is_due(status: Any) -> None:
    late, early = (
        task_pb2.Task(task_id="t", status=status, priority=task_pb2.PRIORITY_NORMAL) for _ in range(2)
    )
    for moment in (late.scheduled_at, late.next_trigger_at):
        moment.FromDatetime(datetime(2025, 12, 24, tzinfo=UTC))
    for moment in (early.scheduled_at, early.next_trigger_at):
        moment.FromDatetime(datetime.now(UTC) + timedelta(hours=1))
    tasks = [duly.Task.from_proto(each) for each in (late, early)]

    assert "       due since  2025-12-24T00:00:00.000+00:00" in task_lines(tasks[0])
    assert not any("due since" in line for line in task_lines(tasks[1]))
    assert ["due since 2025-12-24" in line for line in task_table(tasks)] == [False, True, False]


def test_a_list_for_scripts_has_no_keys_of_what_lists_do_not_tell() -> None:
    listed = listed_as_json(task(payload={"ok": True}))

    assert not {"payload", "result", "attempts"} & set(listed)
    assert listed["status"] == "success"


def test_json_for_scripts_is_json() -> None:
    assert json.loads(json.dumps(task_as_json(task(payload={"ok": True}))))["payload"] == {"ok": True}


@pytest.mark.parametrize("depth", [201, 600, 100_000])
@pytest.mark.parametrize("of", ["[]", '{"a":}'])
def test_what_is_nested_too_deeply_is_said_to_be_and_no_error(depth: int, of: str) -> None:
    wire = task_pb2.Task(
        task_id="t",
        status=SUCCESS,
        priority=task_pb2.PRIORITY_NORMAL,
        payload=f"{of[:-1] * depth}1{of[-1] * depth}".encode(),
    )
    wire.created_at.FromDatetime(datetime(2026, 12, 24, tzinfo=UTC))
    deep = duly.Task.from_proto(wire)

    told = shown("payload", deep) or ""

    assert told.splitlines()[0].startswith("(")
    assert "--json has its bytes" in told
    assert base64.b64decode(json.loads(json.dumps(task_as_json(deep)))["payload"]["base64"]) == wire.payload
    assert (shown("payload", task(payload=[[[1]]])) or "").splitlines()[0] == "[[[1]]]"
