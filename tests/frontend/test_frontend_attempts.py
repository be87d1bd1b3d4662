"""The history of attempts from the store to the reader: GetTask, Task.attempts, `duly get`."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

import duly
from duly_cli.lambdas.commands import lambda_table
from duly_cli.output.task_text import task_as_json, task_lines
from duly_core.results.store import set_results
from duly_core.tasks import claims
from duly_core.tasks import store as store_tasks
from duly_core.tasks.task import ReleasedClaim, Result
from duly_wire.enums import FailureKind, Outcome
from duly_wire.v1 import frontend_pb2, task_pb2
from tests.fixtures.task_states import LAMBDA

STARTED_AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FAILED = {
    "failure_kind": FailureKind.EXCEPTION,
    "failure_message": "ValueError: no\nsecond line",
    "started_at": STARTED_AT,
    "traceback": "Traceback\n  File\nValueError: no",
}


@pytest.fixture
async def tried(task_states):
    """A task that was handed back, put off and refused."""
    task = await task_states.claimed()
    await claims.release(task_states.store, [ReleasedClaim(task.task_id, task.token)])
    for outcome in (Outcome.SNOOZED, Outcome.FATAL_FAILURE):
        await enqueue(task_states)
        task = await task_states.claim(task)
        result = Result(task.task_id, task.token, outcome, retry_after=timedelta(), **FAILED)
        await set_results(task_states.store, [result])
    return str(UUID(bytes=task.task_id))


async def enqueue(task_states):
    await task_states.enqueued()  # and whatever else is due


async def get(frontend, *task_ids):
    response = await frontend.stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=task_ids))
    return [result.task for result in response.results]


async def test_get_task_answers_how_each_attempt_ended(frontend, tried):
    (task,) = await get(frontend, tried)

    assert [(line.attempt, line.fence, line.charged) for line in task.attempts] == [
        (1, 1, False),
        (1, 2, False),
        (1, 3, True),
    ]
    assert [line.outcome for line in task.attempts] == [
        task_pb2.ATTEMPT_OUTCOME_RELEASED,
        task_pb2.ATTEMPT_OUTCOME_SNOOZED,
        task_pb2.ATTEMPT_OUTCOME_FATAL_FAILURE,
    ]
    assert not task.attempts[0].HasField("started_at")
    assert task.attempts[0].failure_kind == task_pb2.FAILURE_KIND_UNSPECIFIED
    assert task.attempts[2].failure_kind == task_pb2.FAILURE_KIND_EXCEPTION
    assert task.attempts[2].failure_message == FAILED["failure_message"]


async def test_each_task_has_its_own_attempts_and_one_that_succeeded_at_once_has_none(
    frontend, task_states, tried
):
    success = await task_states.claimed()
    await set_results(
        task_states.store, [Result(success.task_id, success.token, Outcome.SUCCESS, result=b"1")]
    )
    running = await task_states.claimed()
    ids = [str(UUID(bytes=task.task_id)) for task in (success, running)]

    tasks = await get(frontend, ids[0], tried, ids[1])

    assert [len(task.attempts) for task in tasks] == [0, 3, 0]


async def test_listing_and_waiting_leave_the_attempts_out(frontend, tried):
    listed = await frontend.stub.ListTasks(
        frontend_pb2.ListTasksRequest(statuses=[task_pb2.TASK_STATUS_FATAL_FAILURE])
    )
    waited = await frontend.stub.WaitTask(frontend_pb2.WaitTaskRequest(task_ids=[tried]))

    assert [task.task_id for task in listed.tasks] == [tried]
    assert [list(task.attempts) for task in (listed.tasks[0], waited.results[0].task)] == [[], []]


async def test_the_sdk_gives_attempts_as_it_gives_tasks(frontend, tried):
    async with duly.AsyncClient(frontend.address) as client:
        task = await client.get(tried)

    released, snoozed, fatal = task.attempts
    assert (released.outcome, released.started_at, released.failure_kind) == (
        duly.AttemptOutcome.RELEASED,
        None,
        None,
    )
    assert snoozed.failure_message == FAILED["failure_message"]
    assert fatal == duly.Attempt(
        attempt=1,
        fence=3,
        outcome=duly.AttemptOutcome.FATAL_FAILURE,
        charged=True,
        holder="test-host",
        started_at=STARTED_AT,
        ended_at=task.failure.failed_at,
        failure_kind=duly.FailureKind.EXCEPTION,
        failure_message=FAILED["failure_message"],
        traceback=FAILED["traceback"],
    )


async def test_people_read_a_line_for_each_attempt_with_its_reason(frontend, tried):
    (message,) = await get(frontend, tried)
    task = duly.Task.from_proto(message)

    every_line = task_lines(task)
    columns, *lines = every_line[every_line.index("runs that did not succeed, oldest first:") + 1 :]

    assert columns.split() == ["ATTEMPT", "FENCE", "OUTCOME", "STARTED", "ENDED", "HOLDER", "REASON"]
    assert lines[0].startswith("1 (not charged)  1      released ")
    assert lines[2].startswith("1                3      fatal_failure  2026-01-02 03:04:05Z  ")
    assert lines[2].endswith("  test-host  exception: ValueError: no second line")
    assert lines[3:] == [
        "",
        "traceback of attempt 1 (fence 3):",
        "  Traceback",
        "    File",
        "  ValueError: no",
    ]


async def test_scripts_read_the_same_as_json(frontend, tried):
    (message,) = await get(frontend, tried)

    attempts = task_as_json(duly.Task.from_proto(message))["attempts"]

    assert [attempt["outcome"] for attempt in attempts] == ["released", "snoozed", "fatal_failure"]
    assert attempts[2] | {"ended_at": None} == {
        "attempt": 1,
        "fence": 3,
        "outcome": "fatal_failure",
        "charged": True,
        "holder": "test-host",
        "started_at": "2026-01-02T03:04:05.000+00:00",
        "ended_at": None,
        "failure_kind": "exception",
        "failure_message": FAILED["failure_message"],
        "traceback": FAILED["traceback"],
    }


async def test_a_task_without_a_history_shows_none(frontend, task_states, new_task):
    (message,) = await get(frontend, str(UUID(bytes=new_task.task_id)))

    assert not [line for line in task_lines(duly.Task.from_proto(message)) if "attempt" in line]


async def test_the_table_of_lambdas_says_within_what_time_crashes_count(frontend, task_states):
    await task_states.register(max_crashes=2, crash_window=timedelta(hours=5))
    async with duly.AsyncClient(frontend.address) as client:
        heads, line = lambda_table(await client.lambdas())

    assert "CRASHES" in heads
    assert line.startswith(LAMBDA)
    assert " 2 in 5h " in line


async def test_only_the_last_three_attempts_of_an_answer_have_their_traceback(task_states):
    task = await task_states.claimed()
    for number in range(4):
        if number:
            await enqueue(task_states)
            task = await task_states.claim(task)
        result = Result(
            task.task_id, task.token, Outcome.RETRIABLE_FAILURE, retry_after=timedelta(), **FAILED
        )
        await set_results(task_states.store, [result])

    attempts = await store_tasks.get_attempts(task_states.store, [task.task_id])
    basic = await store_tasks.get_attempts(task_states.store, [task.task_id], tracebacks=0)

    assert [bool(each.traceback) for each in attempts[task.task_id]] == [False, True, True, True]
    assert not any(each.traceback for each in basic[task.task_id])
