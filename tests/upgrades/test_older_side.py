"""What a process does with what only a newer release knows: settings, enums, errors and fields."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest

import duly
from duly.tasks.task import Task
from duly.transport.error_mapping import from_item
from duly_cli.output.task_text import task_lines
from duly_core.results.store import set_results
from duly_core.tasks.task import Attempt, AttemptOutcome, Result
from duly_frontend.tasks.wire import attempt_to_wire
from duly_wire import enums
from duly_wire.enums import Outcome
from duly_wire.v1 import task_pb2
from tests.fixtures.forked_process import clean_environment

NEWER = 4711


def test_a_status_or_an_outcome_of_a_newer_server_is_shown_and_raises_nothing():
    message = task_pb2.Task(
        task_id="t", status=NEWER, attempts=[task_pb2.Attempt(outcome=NEWER, failure_kind=NEWER)]
    )

    task = Task.from_proto(message)

    assert (task.status.name, task.status.is_final) == ("UNKNOWN_4711", False)
    assert isinstance(task.status, duly.TaskStatus)
    assert task.attempts[0].outcome == NEWER
    assert NEWER not in [*enums.TaskStatus]


async def test_a_failure_kind_that_a_newer_release_stored_is_shown_by_its_number(frontend, task_states, dsn):
    task = await task_states.claimed()
    task_id = str(UUID(bytes=task.task_id))
    failed = Result(task.task_id, task.token, Outcome.FATAL_FAILURE, failure_kind=duly.FailureKind.EXCEPTION)
    await set_results(task_states.store, [failed])
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update task set failure_kind = %s where task_id = %s", [NEWER, task_id])
        connection.execute("update attempt set failure_kind = %s where task_id = %s", [NEWER, task_id])

    async with duly.AsyncClient(frontend.address) as client:
        read = await client.get(task_id)
        explained = await client.explain(task_id)

    assert (read.failure.kind.name, read.attempts[0].failure_kind.name) == ("UNKNOWN_4711", "UNKNOWN_4711")
    assert str(NEWER) in explained.reasons[0].text


@pytest.mark.parametrize(("kind", "charged"), [(None, False), (NEWER, True)])
def test_an_outcome_that_a_newer_release_stored_is_shown_as_unknown(kind, charged):
    ended_at = datetime(2026, 1, 2, tzinfo=UTC)
    attempt = Attempt(1, 2, AttemptOutcome("of a newer release"), "host", None, ended_at, kind)

    message = attempt_to_wire(attempt)

    assert message.outcome == task_pb2.ATTEMPT_OUTCOME_UNSPECIFIED
    assert message.charged == charged
    view = Task.from_proto(
        task_pb2.Task(task_id="t", status=task_pb2.TASK_STATUS_FATAL_FAILURE, attempts=[message])
    )
    assert view.attempts[0].outcome is None
    assert "unknown" in task_lines(view)[-1].split()


def test_an_error_code_of_a_newer_server_is_a_request_error_with_its_text():
    error = from_item(task_pb2.ItemError(code=NEWER, message="the reason, in words"))

    assert type(error) is duly.RequestError
    assert str(error) == "the reason, in words"


def test_fields_of_a_newer_message_are_ignored():
    known = task_pb2.Task(task_id="t", status=task_pb2.TASK_STATUS_SUCCESS).SerializeToString()
    of_a_newer_release = known + b"\xfa\xff\x03\x03new"

    task = Task.from_proto(task_pb2.Task.FromString(of_a_newer_release))

    assert (task.task_id, task.status) == ("t", duly.TaskStatus.SUCCESS)


@pytest.mark.parametrize(
    ("file", "variables", "named"),
    [
        ("[hsc]\nnewer_setting = 1\n", {}, "there is no setting hsc.newer_setting"),
        ("[newer_section]\nkey = 1\n", {}, "newer_section"),
        ("", {"DULY_HSC_NEWER_SETTING": "1"}, "there is no setting hsc.newer_setting"),
    ],
)
def test_a_setting_that_only_a_newer_release_knows_ends_the_process_with_its_name(
    file, variables, named, tmp_path
):
    (tmp_path / "duly.toml").write_text(file)

    run = subprocess.run(
        [sys.executable, "-m", "duly_cli", "hsc"],
        cwd=tmp_path,
        env=clean_environment() | variables,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )

    assert run.returncode == os.EX_CONFIG
    assert named in run.stdout + run.stderr
