"""How attempts end: with what is written, charged, and answered, whatever comes twice or too late."""

import os
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.events.rules import EventWait
from duly_core.lambdas.names import QueueKey
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.task import Applied, Encoding, HeartbeatAnswer, Result, TaskHeartbeat
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
MINUTE = timedelta(minutes=1)
FAILED = {"failure_kind": FailureKind.CALLBACK, "failure_message": "no"}
LATER = {
    "completion_hash": bytes(32),
    "complete_within": MINUTE,
    "event_wait": EventWait("first:1", ("approved",), needs_all=False, timeout=MINUTE),
}
CRASHED = {"failure_kind": FailureKind.CRASH, "failure_message": "signal 9"}


def result_of(task, outcome, **details):
    return Result(task.task_id, task.token, outcome, **details)


def about(one, other):
    """The same, but for the time that one statement may take."""
    return abs(one - other) < SECOND / 4


async def write(task_states, *results):
    return (await set_results(task_states.store, results)).verdicts


async def fail(task_states, task, outcome=Outcome.RETRIABLE_FAILURE, **details):
    """End an attempt badly."""
    reason = CRASHED if outcome is Outcome.CRASHED else FAILED
    assert await write(task_states, result_of(task, outcome, **reason | details)) == [Applied.APPLIED]


async def claim_again(task_states, clock, task):
    """The next attempt, once its time has come."""
    await clock.tick(timedelta(days=1))
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    return await task_states.claim(task)


async def lose_the_claim(task_states, clock, task):
    """The holder falls silent, and another takes over."""
    await clock.tick(max(HEARTBEAT_TIMEOUT, CLAIM_TIMEOUT) + SECOND)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)
    return await task_states.claim(task)


async def test_a_success_keeps_its_result_and_leaves_no_assoc(task_states, processing_task):
    started_at = datetime(2026, 1, 2, tzinfo=UTC)
    success = result_of(
        processing_task, Outcome.SUCCESS, result=b"\x00\xff", encoding=Encoding.RAW, started_at=started_at
    )

    assert await write(task_states, success) == [Applied.APPLIED]

    row = await task_states.row(processing_task.task_id)
    assert (row["status"], row["result"], row["result_encoding"]) == ("success", b"\x00\xff", Encoding.RAW)
    assert (row["fence"], row["failures"], row["crashes"]) == (1, 0, 0)
    assert (row["started_at"], row["failure_kind"]) == (started_at, None)
    assert row["finished_at"] >= row["created_at"]
    assert row["next_trigger_at"] is None  # there is no assoc row any more


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.CANCELLED, Outcome.CRASHED])
async def test_an_attempt_that_did_not_start_leaves_the_start_of_the_one_before(task_states, clock, outcome):
    started_at = datetime(2026, 1, 2, tzinfo=UTC)
    task = await task_states.processing()
    await write(task_states, result_of(task, Outcome.RETRIABLE_FAILURE, started_at=started_at))

    await write(task_states, result_of(await claim_again(task_states, clock, task), outcome))

    assert (await task_states.row(task.task_id))["started_at"] == started_at


async def test_an_empty_result_is_a_result(task_states, claimed_task):
    await write(task_states, result_of(claimed_task, Outcome.SUCCESS, result=b""))

    row = await task_states.row(claimed_task.task_id)
    assert (row["result"], row["result_encoding"]) == (b"", Encoding.JSON)


async def test_a_fatal_failure_ends_the_task_at_once_and_says_why(task_states, processing_task):
    await fail(task_states, processing_task, Outcome.FATAL_FAILURE)

    row = await task_states.row(processing_task.task_id)
    assert (row["status"], row["failures"], row["crashes"]) == ("fatal_failure", 1, 0)
    assert (row["failure_kind"], row["failure_message"]) == (FailureKind.CALLBACK, "no")
    assert about(row["failed_at"], row["finished_at"])


async def test_a_task_that_stopped_as_it_was_asked_to_is_cancelled(task_states, processing_task):
    await tasks.cancel_tasks(task_states.store, [processing_task.task_id])

    assert await write(task_states, result_of(processing_task, Outcome.CANCELLED)) == [Applied.APPLIED]
    assert await task_states.status(processing_task.task_id) == "cancelled"


@pytest.mark.parametrize("outcome", Outcome)
async def test_a_result_written_twice_is_applied_once(task_states, claimed_task, outcome):
    result = result_of(claimed_task, outcome, retry_after=SECOND, **FAILED, **LATER)
    if outcome is Outcome.SUCCESS:
        result = result_of(claimed_task, outcome, result=b"{}")

    assert await write(task_states, result) == [Applied.APPLIED]
    before = await task_states.row(claimed_task.task_id)

    assert await write(task_states, result) == [Applied.ALREADY_APPLIED]
    assert await task_states.row(claimed_task.task_id) == before


@pytest.mark.parametrize("attempts", [1, 10])
@pytest.mark.parametrize("outcome", Outcome)
async def test_a_result_that_comes_after_the_claim_was_lost_is_refused(
    task_states, clock, processing_task, outcome, attempts
):
    await task_states.register(max_attempts=attempts, max_crashes=2)  # it would have been the last of them
    current = await lose_the_claim(task_states, clock, processing_task)
    before = await task_states.row(processing_task.task_id)

    late = result_of(processing_task, outcome, retry_after=SECOND, **LATER)

    assert await write(task_states, late) == [Applied.LOST]
    assert await task_states.row(processing_task.task_id) == before
    assert await claims.heartbeat(
        task_states.store, [TaskHeartbeat(current.task_id, current.token)], HEARTBEAT_TIMEOUT
    ) == [HeartbeatAnswer.KEPT]


@pytest.mark.parametrize("outcome", Outcome)
async def test_a_result_with_a_token_that_nobody_ever_had_is_refused(task_states, new_task, outcome):
    forged = Result(new_task.task_id, os.urandom(16), outcome, retry_after=SECOND, **FAILED, **LATER)

    assert await write(task_states, forged) == [Applied.LOST]
    assert await task_states.status(new_task.task_id) == "new"


async def test_a_group_with_the_current_and_a_stale_claim_of_one_task_applies_the_current(
    task_states, clock, processing_task
):
    current = await lose_the_claim(task_states, clock, processing_task)

    answers = await write(
        task_states,
        result_of(processing_task, Outcome.FATAL_FAILURE, **FAILED),
        result_of(current, Outcome.SUCCESS, result=b"1"),
        result_of(processing_task, Outcome.CRASHED, **CRASHED),
    )

    assert answers == [Applied.LOST, Applied.APPLIED, Applied.LOST]
    assert (await task_states.row(processing_task.task_id))["result"] == b"1"


async def test_a_group_of_every_outcome_is_answered_in_order(task_states):
    held = [await task_states.claimed() for _ in Outcome]
    results = [
        result_of(task, outcome, retry_after=SECOND, **FAILED, **LATER)
        for task, outcome in zip(held, Outcome, strict=True)
    ]
    results[0] = result_of(held[0], Outcome.SUCCESS, result=b"{}")
    stale = result_of(held[0], Outcome.SUCCESS)

    written = await set_results(
        task_states.store, [*reversed(results), Result(stale.task_id, os.urandom(16), 1)]
    )

    assert written.verdicts == [Applied.APPLIED] * 8 + [Applied.LOST]
    assert [await task_states.status(task.task_id) for task in held] == [
        "success",
        "fatal_failure",
        "retriable_failure",
        "new",
        "retriable_failure",
        "cancelled",
        "waiting",
        "waiting",
    ]
    assert about(written.due_in, SECOND)


async def test_backoffs_are_spread_over_a_range_that_grows_up_to_the_lambdas_longest(task_states, clock):
    await task_states.register(
        backoff_initial=MINUTE, backoff_factor=2.0, backoff_max=3 * MINUTE, max_attempts=99
    )
    held = [await task_states.claimed() for _ in range(30)]

    for bound in (MINUTE, 2 * MINUTE, 3 * MINUTE, 3 * MINUTE):
        waits = []
        for task in held:
            await fail(task_states, task)
            row = await task_states.row(task.task_id)
            waits.append(row["next_trigger_at"] - row["failed_at"])
        assert all(timedelta() <= wait <= bound for wait in waits)
        assert max(waits) > bound / 2  # one in a thousand million that it is not so
        assert max(waits) - min(waits) > bound / 5
        await clock.tick(timedelta(days=1))
        await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
        held = [await task_states.claim(task) for task in held]


async def test_a_callback_may_say_when_it_is_run_again(task_states, processing_task):
    await task_states.register(backoff_max=SECOND)

    written = await set_results(
        task_states.store,
        [result_of(processing_task, Outcome.RETRIABLE_FAILURE, retry_after=MINUTE, **FAILED)],
    )

    row = await task_states.row(processing_task.task_id)
    assert about(written.due_in, MINUTE)
    assert about(row["next_trigger_at"], row["failed_at"] + MINUTE)


async def test_the_last_attempt_that_the_lambda_allows_is_fatal(task_states, clock):
    await task_states.register(max_attempts=3)
    task = await task_states.claimed()
    for _ in range(2):
        await fail(task_states, task)
        assert await task_states.status(task.task_id) == "retriable_failure"
        task = await claim_again(task_states, clock, task)

    await fail(task_states, task, failure_message="x" * 4096)

    row = await task_states.row(task.task_id)
    assert (row["status"], row["failures"], row["crashes"], row["fence"]) == ("fatal_failure", 3, 0, 3)
    assert row["failure_kind"] == FailureKind.ATTEMPTS_EXHAUSTED
    assert row["failure_message"].startswith("failed 3 times; the last: xxx")


async def test_crashes_are_counted_apart_and_the_last_one_is_a_quarantine(task_states, clock):
    await task_states.register(max_attempts=2, max_crashes=2)
    task = await task_states.claimed()
    await fail(task_states, task)
    task = await claim_again(task_states, clock, task)
    await fail(task_states, task, Outcome.CRASHED)
    row = await task_states.row(task.task_id)
    assert (row["status"], row["failures"], row["crashes"]) == ("retriable_failure", 1, 1)
    assert row["failure_kind"] == FailureKind.CRASH

    task = await claim_again(task_states, clock, task)
    await fail(task_states, task, Outcome.CRASHED)

    row = await task_states.row(task.task_id)
    assert (row["status"], row["failures"], row["crashes"]) == ("fatal_failure", 1, 2)
    assert row["failure_kind"] == FailureKind.QUARANTINED
    assert row["failure_message"] == "crashed 2 times within 3 days; the last: signal 9"


async def test_a_success_after_failures_keeps_their_count_and_the_last_reason(task_states, clock):
    task = await task_states.claimed()
    await fail(task_states, task)
    task = await claim_again(task_states, clock, task)

    await write(task_states, result_of(task, Outcome.SUCCESS, result=b"{}"))

    row = await task_states.row(task.task_id)
    assert (row["status"], row["failures"], row["failure_message"]) == ("success", 1, "no")
    assert row["failed_at"] < row["finished_at"]


async def test_a_snoozed_task_is_due_when_it_said_and_nothing_is_charged(task_states, clock):
    await task_states.register(max_attempts=1, max_crashes=1)
    task = await task_states.claimed()
    for _ in range(3):
        assert await write(task_states, result_of(task, Outcome.SNOOZED, retry_after=MINUTE)) == [
            Applied.APPLIED
        ]
        assert await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT) == []
        due_at = (await task_states.row(task.task_id))["next_trigger_at"]
        task = await claim_again(task_states, clock, task)

    assert (task.fence, task.failures, task.crashes) == (4, 0, 0)
    assert about(timedelta(microseconds=task.due_at_us), due_at - datetime(1970, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("outcome", [Outcome.RETRIABLE_FAILURE, Outcome.SNOOZED, Outcome.CRASHED])
async def test_a_task_that_was_to_be_cancelled_is_not_run_again(task_states, processing_task, outcome):
    await tasks.cancel_tasks(task_states.store, [processing_task.task_id])
    result = result_of(processing_task, outcome, retry_after=SECOND, **FAILED)

    first = await write(task_states, result)

    assert (first, await task_states.status(processing_task.task_id)) == ([Applied.APPLIED], "cancelled")
    assert await write(task_states, result) == [Applied.ALREADY_APPLIED]


async def test_a_success_counts_though_a_cancel_was_asked_for(task_states, processing_task):
    await tasks.cancel_tasks(task_states.store, [processing_task.task_id])

    await write(task_states, result_of(processing_task, Outcome.SUCCESS, result=b"{}"))

    assert await task_states.status(processing_task.task_id) == "success"
