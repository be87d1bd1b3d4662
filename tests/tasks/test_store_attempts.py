"""The history of attempts: one line for each that did not succeed, bounded, and none where nothing was written."""

import os
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from duly_core.events.rules import EventWait
from duly_core.lambdas.names import QueueKey
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.task import Applied, Attempt, AttemptOutcome, ReleasedClaim, Result
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.fixtures.database import count
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
SILENT = max(CLAIM_TIMEOUT, HEARTBEAT_TIMEOUT) + SECOND
STARTED_AT = datetime(2026, 1, 2, tzinfo=UTC)
WHY = {
    "failure_kind": FailureKind.EXCEPTION,
    "failure_message": "ValueError: no",
    "started_at": STARTED_AT,
    "traceback": "line 1\nline 2",
}
LINE = """
insert into attempt (task_id, fence, attempt, outcome, holder, ended_at, failure_kind)
values (encode(%s, 'hex')::uuid, %s, 1, %s, 'host', now(), %s)
"""


async def history(task_states, task):
    return (await tasks.get_attempts(task_states.store, [task.task_id])).get(task.task_id, [])


async def write(task_states, task, outcome, **details):
    result = Result(task.task_id, task.token, outcome, **details)
    assert (await set_results(task_states.store, [result])).verdicts == [Applied.APPLIED]
    return result


async def claim_again(task_states, clock, task):
    await clock.tick(timedelta(hours=1))
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    return await task_states.claim(task)


async def fall_silent(task_states, clock):
    await clock.tick(SILENT)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 100)


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Outcome.RETRIABLE_FAILURE, FailureKind.EXCEPTION),
        (Outcome.FATAL_FAILURE, FailureKind.EXCEPTION),
        (Outcome.CRASHED, FailureKind.EXCEPTION),
        (Outcome.SNOOZED, None),
        (Outcome.CANCELLED, None),
    ],
)
@pytest.mark.parametrize("last", [False, True])
async def test_a_reported_end_is_a_line_that_says_how_when_where_and_why(task_states, outcome, kind, last):
    await task_states.register(max_attempts=1 if last else 9, max_crashes=1 if last else 9)
    task = await task_states.processing()

    await write(task_states, task, outcome, retry_after=SECOND, **WHY)

    (line,) = await history(task_states, task)
    assert line == Attempt(
        attempt=1,
        fence=1,
        outcome=AttemptOutcome[outcome.name],
        holder="test-host",
        started_at=STARTED_AT,
        ended_at=line.ended_at,
        failure_kind=kind,
        failure_message="ValueError: no",
        traceback="line 1\nline 2" if outcome is not Outcome.SNOOZED else "",
    )
    row = await task_states.row(task.task_id)
    assert row["created_at"] <= line.ended_at
    assert row["failed_at"] in (None, line.ended_at)


async def test_a_release_is_a_line_that_charges_nothing(task_states, claimed_task):
    await claims.release(task_states.store, [ReleasedClaim(claimed_task.task_id, claimed_task.token)])

    (line,) = await history(task_states, claimed_task)
    assert (line.attempt, line.fence, line.outcome) == (1, 1, AttemptOutcome.RELEASED)
    assert (line.holder, line.started_at, line.failure_kind) == ("test-host", None, None)
    assert not line.charged


async def test_the_release_of_an_attempt_that_had_started_says_when_and_why_it_was_stopped(
    task_states, claimed_task
):
    release = ReleasedClaim(
        claimed_task.task_id, claimed_task.token, STARTED_AT, "stopped for another's sake"
    )

    await claims.release(task_states.store, [release])

    (line,) = await history(task_states, claimed_task)
    assert (line.outcome, line.started_at) == (AttemptOutcome.RELEASED, STARTED_AT)
    assert (line.failure_kind, line.failure_message) == (None, "stopped for another's sake")


@pytest.mark.parametrize("rung", ["claimed", "processing"])
@pytest.mark.parametrize(
    ("max_crashes", "cancel", "status"),
    [(3, False, "enqueued"), (1, False, "fatal_failure"), (3, True, "cancelled")],
)
async def test_a_silence_is_a_line_whatever_becomes_of_the_task(
    task_states, clock, rung, max_crashes, cancel, status
):
    await task_states.register(max_crashes=max_crashes)
    task = await getattr(task_states, rung)()
    if cancel:
        await tasks.cancel_tasks(task_states.store, [task.task_id])

    await fall_silent(task_states, clock)

    (line,) = await history(task_states, task)
    assert await task_states.status(task.task_id) == status
    assert (line.attempt, line.fence, line.outcome) == (1, 1, AttemptOutcome.SILENT)
    assert (line.holder, line.started_at, line.failure_kind) == ("test-host", None, FailureKind.CRASH)
    assert line.failure_message == "its holder fell silent: test-host"
    assert line.charged


async def test_a_reclaimed_task_says_that_its_holder_fell_silent(task_states, clock, processing_task):
    await fall_silent(task_states, clock)

    row = await task_states.row(processing_task.task_id)
    assert (row["status"], row["crashes"], row["failure_kind"]) == ("enqueued", 1, FailureKind.CRASH)
    assert row["failure_message"] == "its holder fell silent: test-host"
    assert row["failed_at"] == (await history(task_states, processing_task))[0].ended_at


async def test_attempts_count_what_was_charged_and_fences_count_claims(task_states, clock):
    task = await task_states.claimed()
    await write(task_states, task, Outcome.RETRIABLE_FAILURE, **WHY)
    task = await claim_again(task_states, clock, task)
    await write(task_states, task, Outcome.SNOOZED, retry_after=SECOND)
    task = await claim_again(task_states, clock, task)
    await claims.release(task_states.store, [ReleasedClaim(task.task_id, task.token)])
    task = await claim_again(task_states, clock, task)
    await fall_silent(task_states, clock)
    task = await task_states.claim(task)
    await write(task_states, task, Outcome.CRASHED, **WHY)
    task = await claim_again(task_states, clock, task)

    await write(task_states, task, Outcome.SUCCESS, result=b"1")

    lines = await history(task_states, task)
    assert [(line.attempt, line.fence, line.outcome.value) for line in lines] == [
        (1, 1, "retriable_failure"),
        (2, 2, "snoozed"),
        (2, 3, "released"),
        (2, 4, "silent"),
        (3, 5, "crashed"),
    ]
    row = await task_states.row(task.task_id)
    assert (row["fence"], row["failures"], row["crashes"]) == (6, 1, 2)
    assert sum(line.charged for line in lines) == row["failures"] + row["crashes"]


async def test_a_success_writes_no_line(task_states, dsn, processing_task):
    await write(task_states, processing_task, Outcome.SUCCESS, result=b"1")

    assert count(dsn, "attempt") == 0


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.SUCCESS])
async def test_a_report_that_changes_nothing_writes_no_line(
    task_states, clock, dsn, processing_task, outcome
):
    later = {
        "completion_hash": bytes(32),
        "complete_within": SECOND,
        "event_wait": EventWait("first:1", ("approved",), needs_all=False, timeout=SECOND),
    }
    forged = Result(processing_task.task_id, os.urandom(16), outcome, retry_after=SECOND, **WHY, **later)
    assert (await set_results(task_states.store, [forged])).verdicts == [Applied.LOST]
    assert count(dsn, "attempt") == 0
    result = await write(task_states, processing_task, outcome, retry_after=SECOND, **WHY, **later)
    assert count(dsn, "attempt") == 1

    again = await set_results(task_states.store, [result, result])
    claim = [ReleasedClaim(processing_task.task_id, processing_task.token)]
    released, _ = await claims.release(task_states.store, claim)

    assert again.verdicts + released == [Applied.ALREADY_APPLIED] * 3
    assert count(dsn, "attempt") == 1


async def test_two_reports_of_one_claim_in_one_call_are_one_end(task_states, dsn):
    await task_states.register(max_crashes=1)
    task = await task_states.claimed()
    both = [
        Result(task.task_id, task.token, end, **WHY) for end in (Outcome.CRASHED, Outcome.RETRIABLE_FAILURE)
    ]

    written = await set_results(task_states.store, both)

    (line,) = await history(task_states, task)
    row = await task_states.row(task.task_id)
    assert written.verdicts == [Applied.APPLIED] * 2
    assert (
        (row["status"] == "fatal_failure")
        == (row["next_trigger_at"] is None)
        == (line.outcome.value == "crashed")
    )


async def test_a_long_reason_is_cut_in_the_history_only(task_states, processing_task):
    await write(
        task_states, processing_task, Outcome.RETRIABLE_FAILURE, **WHY | {"failure_message": "é" * 2000}
    )

    (line,) = await history(task_states, processing_task)
    assert line.failure_message == "é" * 1024
    assert (await task_states.row(processing_task.task_id))["failure_message"] == "é" * 2000


@pytest.mark.parametrize(
    ("fences", "charged", "kept"),
    [(1000, 0, 30), (1000, 1000, 60), (1000, 100, 90), (1009, 100, 99), (30, 0, 30), (100, 60, 90)],
)
async def test_what_is_kept_of_a_task_is_bounded_and_a_task_that_snoozes_for_ever_keeps_its_failures(
    task_states, dsn, new_task, fences, charged, kept
):
    other = await task_states.claimed()
    await write(task_states, other, Outcome.RETRIABLE_FAILURE, **WHY)
    fill = [
        (new_task.task_id, fence, *(("crashed", 4) if fence <= charged else ("snoozed", None)))
        for fence in range(1, fences + 1)
    ]
    with psycopg.connect(dsn) as connection:
        connection.cursor().executemany(LINE, fill)

    lines = await history(task_states, new_task)

    of_crashes = [line.fence for line in lines if line.charged]
    of_snoozes = [line.fence for line in lines if not line.charged]
    assert len(lines) == count(dsn, "attempt") - 1 == kept <= 100
    assert of_crashes == list(range(charged, 0, -1))[:60][::-1]
    assert of_snoozes == list(range(fences, charged, -1))[: kept - len(of_crashes)][::-1]
    assert len(await history(task_states, other)) == 1


async def test_histories_of_many_tasks_are_told_apart(task_states):
    held = [await task_states.claimed() for _ in range(3)]
    for task in held[:2]:
        await write(
            task_states, task, Outcome.RETRIABLE_FAILURE, **WHY | {"failure_message": task.task_id.hex()}
        )

    found = await tasks.get_attempts(task_states.store, [task.task_id for task in held])

    assert {task_id: [line.failure_message for line in lines] for task_id, lines in found.items()} == {
        task.task_id: [task.task_id.hex()] for task in held[:2]
    }
