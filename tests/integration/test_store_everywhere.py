"""The statements of the task path, each of them run once on every Postgres that is installed, after all migrations."""

from datetime import timedelta

import pytest

from duly.ids import new_task_id
from duly_core.routing import Priority, QueueKey
from duly_core.store import claims, dead_letters, schedule, tasks, trigger
from duly_core.store.arrays import uuids
from duly_core.store.pool import fetch
from duly_core.store.results import set_results
from duly_core.store.statements import READS, TRANSITIONS
from duly_core.task import (
    Applied,
    Beat,
    FailureKind,
    Kept,
    NewTask,
    Outcome,
    Proposal,
    ReleasedClaim,
    Result,
    Scheduling,
)
from tests.fixtures.ladder import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND
from tests.fixtures.tidying import DAY, finished, until_nothing_is_left

QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
LATER = 2 * ENQUEUE_TIMEOUT


@pytest.fixture
def dsn(dsn_of_each):
    """What the fixtures of the store build on."""
    return dsn_of_each


def result(claimed, outcome, **more):
    kind = None if outcome in {Outcome.SUCCESS, Outcome.SNOOZED} else FailureKind.CALLBACK
    return Result(claimed.task_id, claimed.token, outcome, failure_kind=kind, **more)


async def end_silence(ladder):
    return await trigger.end_silence(ladder.store, {QUEUE: 10}, ENQUEUE_TIMEOUT, 10)


async def test_a_task_is_scheduled_once_runs_once_and_succeeds(ladder):
    task = NewTask(new_task_id().bytes, LAMBDA, b"{}", idempotency_key="once")
    again = NewTask(new_task_id().bytes, LAMBDA, b"{}", idempotency_key="once")
    scheduled = [(await schedule.schedule(ladder.store, [each]))[0] for each in (task, again)]
    ahead = await trigger.next_triggers(ladder.store, [QUEUE])
    due = await trigger.enqueue(ladder.store, {QUEUE: 10}, ENQUEUE_TIMEOUT)
    proposal = Proposal(task.task_id, b"t" * 16, LAMBDA)
    claimed = [(await claims.claim(ladder.store, [(proposal, "host")], CLAIM_TIMEOUT))[0] for _ in range(2)]
    beat = Beat(task.task_id, proposal.token, progress=0.5)
    kept = await claims.heartbeat(ladder.store, [beat], HEARTBEAT_TIMEOUT)
    success = result(claimed[0], Outcome.SUCCESS, result=b"1")
    live = await tasks.final_of(ladder.store, [task.task_id])
    written = [(await set_results(ladder.store, [success])).verdicts[0] for _ in range(2)]

    assert [each.verdict for each in scheduled] == [Scheduling.CREATED, Scheduling.REPEATED]
    assert {each.task_id for each in scheduled} == {task.task_id}
    assert ahead[QUEUE] <= timedelta()
    assert [each.task_id for each in due] == [task.task_id]
    assert claimed[0] == claimed[1]
    assert (claimed[0].payload, kept, live) == (b"{}", [Kept.KEPT], set())
    assert written == [Applied.APPLIED, Applied.ALREADY_APPLIED]
    assert await ladder.status(task.task_id) == "success"


async def test_what_fails_snoozes_or_is_released_runs_again_and_is_remembered(ladder):
    failed, snoozed, released, dead = [await ladder.processing() for _ in range(4)]

    await set_results(
        ladder.store,
        [
            result(failed, Outcome.RETRIABLE_FAILURE, failure_message="no"),
            result(snoozed, Outcome.SNOOZED, retry_after=SECOND),
            result(dead, Outcome.FATAL_FAILURE, failure_message="never"),
        ],
    )
    await claims.release(ladder.store, [ReleasedClaim(released.task_id, released.token)])

    found = [await ladder.status(each.task_id) for each in (failed, snoozed, released, dead)]
    attempts = await tasks.get_attempts(ladder.store, [each.task_id for each in (failed, snoozed, released)])
    assert found == ["retriable_failure", "new", "new", "fatal_failure"]
    assert [len(each) for each in attempts.values()] == [1, 1, 1]


async def test_a_dead_letter_is_redriven(ladder):
    dead = await ladder.processing()
    await set_results(ladder.store, [result(dead, Outcome.FATAL_FAILURE, failure_message="never")])

    answers = await dead_letters.redrive(ladder.store, [dead.task_id])

    assert answers[dead.task_id].verdict is dead_letters.Verdict.REDRIVEN
    assert await ladder.status(dead.task_id) == "new"


async def test_what_falls_silent_is_sent_again_reclaimed_cancelled_quarantined_or_expires(ladder, clock):
    await ladder.register(max_crashes=1, name="mail.count")
    created_at = (await ladder.row((await ladder.new()).task_id))["created_at"]
    expiring = await ladder.new(expires_at=created_at + SECOND)
    silent, unwanted = [await ladder.processing() for _ in range(2)]
    crashing = await ladder.processing(lambda_name="mail.count")
    lost = await ladder.enqueued()
    await tasks.cancel_tasks(ladder.store, [unwanted.task_id])
    await clock.tick(LATER)

    ahead = await trigger.next_silence(ladder.store)
    silence = await end_silence(ladder)

    states = [await ladder.status(each.task_id) for each in (expiring, silent, unwanted, crashing, lost)]
    assert ahead < timedelta()
    assert states == ["fatal_failure", "enqueued", "cancelled", "fatal_failure", "enqueued"]
    assert (silence.reclaimed, silence.ended) == (1, 3)
    assert {silent.task_id, lost.task_id} <= {each.task_id for each in silence.again}


async def test_what_waits_is_put_back_or_cancelled(ladder):
    sent, unwanted = await ladder.enqueued(), await ladder.enqueued()

    await trigger.put_back(ladder.store, [sent.task_id], SECOND)
    await tasks.cancel_tasks(ladder.store, [unwanted.task_id])

    assert await ladder.status(sent.task_id) == "new"
    assert await ladder.status(unwanted.task_id) == "cancelled"


async def test_finished_tasks_leave_with_their_partitions(ladder, tidier, clock, uptime):
    gone = await finished(ladder)
    made = await until_nothing_is_left(tidier)
    await clock.tick(14 * DAY)
    uptime.now += 14 * DAY

    done = await until_nothing_is_left(tidier)

    assert made.added
    assert "first" in done.dropped
    assert await tasks.get_tasks(ladder.store, [gone]) == {}


async def test_what_is_planned_anew_is_not_prepared_and_the_rest_is(ladder):
    task = NewTask(new_task_id().bytes, LAMBDA, b"{}")
    async with ladder.store.connection() as connection:
        parameters = {"task_ids": uuids([task.task_id]), "tokens": uuids([task.task_id])}
        for name in ("applied_before", "claimed_before"):
            await fetch(connection, READS[name], parameters)

        cursor = await connection.execute("select statement from pg_prepared_statements")
        prepared = " ".join(text for (text,) in await cursor.fetchall())

    assert "task.payload" in prepared
    assert "last_token" not in prepared
    assert {name for name, each in (READS | TRANSITIONS).items() if each.anew} == {
        "existing",
        "applied_before",
        "redrive",
    }
