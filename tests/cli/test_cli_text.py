"""What others wrote reaches a terminal as text, and never as an order to it."""

from datetime import UTC, datetime

import pytest
from typer.testing import CliRunner

import duly
from duly.lambdas.info import LambdaInfo
from duly.time_tables.calls import TimeTable
from duly_cli.__main__ import app
from duly_cli.lambdas.commands import lambda_table
from duly_cli.output.safe_text import one_line, printable
from duly_cli.output.task_text import dead_letter_table, task_lines, task_table
from duly_cli.tasks import commands as tasks
from duly_cli.time_tables.text import described
from duly_wire.v1 import registry_pb2, task_pb2, time_tables_pb2

EVIL = "\x1b[2J\x1b]0;title\x07\r\x9b31m\x7f\u202egnp\u2028second\nline"
SAFE = r"\x1b[2J\x1b]0;title\x07\r\x9b31m\x7f\u202egnp\u2028second"


def evil_task() -> duly.Task:
    wire = task_pb2.Task(
        task_id="t",
        collection=EVIL,
        status=task_pb2.TASK_STATUS_FATAL_FAILURE,
        priority=task_pb2.PRIORITY_NORMAL,
        holder=EVIL,
        progress_note=EVIL,
        payload=b'"\xc2\x9b31m"',
        last_failure=task_pb2.Failure(kind=task_pb2.FAILURE_KIND_EXCEPTION, message=EVIL),
        attempts=[
            task_pb2.Attempt(
                attempt=1,
                outcome=task_pb2.ATTEMPT_OUTCOME_CRASHED,
                holder=EVIL,
                failure_kind=task_pb2.FAILURE_KIND_CRASH,
                failure_message=EVIL,
            )
        ],
    )
    setattr(wire, "lambda", EVIL)
    wire.created_at.FromDatetime(datetime(2026, 12, 24, tzinfo=UTC))
    return duly.Task.from_proto(wire)


def evil_lambda() -> LambdaInfo:
    wire = registry_pb2.RegisteredLambda()
    getattr(wire, "lambda").CopyFrom(registry_pb2.Lambda(name="n", owner=EVIL, version=EVIL))
    return LambdaInfo.from_proto(wire)


def evil_table() -> TimeTable:
    wire = time_tables_pb2.TimeTableState(pause_note=EVIL)
    wire.table.MergeFrom(
        time_tables_pb2.TimeTable(
            name="n",
            cron="0 7 * * *",
            catch_up="CATCH_UP_ONE",
            overlap="OVERLAP_ALLOW",
            priority="PRIORITY_NORMAL",
        )
    )
    for instant in (wire.paused_at, wire.created_at, wire.updated_at):
        instant.FromDatetime(datetime(2026, 12, 24, tzinfo=UTC))
    return TimeTable.from_proto(wire)


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        (lambda: task_lines(evil_task()), None),
        (lambda: task_table([evil_task()]), 2),
        (lambda: dead_letter_table([evil_task()]), 2),
        (lambda: lambda_table([evil_lambda()]), 2),
        (lambda: described(evil_table()), None),
    ],
    ids=["get", "list", "dead-letters", "lambdas", "time-table"],
)
def test_what_is_shown_of_a_task_or_a_lambda_obeys_nobody(lines, rows):
    shown = list(lines())

    assert all(line.isprintable() for line in shown)
    assert any(SAFE + r"\nline" in line for line in shown)
    assert rows is None or len(shown) == rows


def test_an_error_of_the_frontend_is_shown_and_not_obeyed(monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise duly.DulyError(EVIL)

    monkeypatch.setattr(tasks.duly, "Client", refuse)

    refused = CliRunner().invoke(app, ["lambdas"])

    assert SAFE in refused.stderr
    assert not any(character in refused.stderr for character in "\x1b\x9b\x07\r\u202e")


def test_other_scripts_and_line_feeds_are_left_alone():
    text = "Zürich 東京 👩‍👩‍👧 नमस्ते\nsecond line"

    assert printable(text) == text
    assert one_line(text) == text.replace("\n", "\\n")
