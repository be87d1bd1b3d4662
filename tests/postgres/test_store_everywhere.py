"""The statements of the task path, each of them run once on every Postgres that is installed, after all migrations."""

from datetime import timedelta

import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import fetch
from duly_core.postgres.statements import READS, TRANSITIONS
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.task import (
    Applied,
    HeartbeatAnswer,
    NewTask,
    Proposal,
    ReleasedClaim,
    Result,
    Scheduling,
    TaskHeartbeat,
)
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures.retention import DAY, finished, until_nothing_is_left
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
LATER = 2 * ENQUEUE_TIMEOUT

pytestmark = pytest.mark.long  # a server of each Postgres; the other tests of the store run on one


@pytest.fixture
def dsn(dsn_of_each):
    """What the fixtures of the store build on."""
    return dsn_of_each


def result(claimed, outcome, **more):
    kind = None if outcome in {Outcome.SUCCESS, Outcome.SNOOZED} else FailureKind.CALLBACK
    return Result(claimed.task_id, claimed.token, outcome, failure_kind=kind, **more)


async def end_silence(task_states):
    return await polling.handle_timeouts(task_states.store, {QUEUE: 10}, ENQUEUE_TIMEOUT, 10)


async def test_a_task_is_scheduled_once_runs_once_and_succeeds(task_states):
    task = NewTask(new_task_id().bytes, LAMBDA, b"{}", idempotency_key="once")
    again = NewTask(new_task_id().bytes, LAMBDA, b"{}", idempotency_key="once")
    scheduled = [(await schedule.schedule(task_states.store, [each]))[0] for each in (task, again)]
    ahead = await polling.next_triggers(task_states.store, [QUEUE], timedelta(hours=1))
    due = await polling.enqueue(task_states.store, {QUEUE: 10}, ENQUEUE_TIMEOUT)
    proposal = Proposal(task.task_id, b"t" * 16, LAMBDA)
    claimed = [
        (await claims.claim(task_states.store, [(proposal, "host")], CLAIM_TIMEOUT))[0] for _ in range(2)
    ]
    beat = TaskHeartbeat(task.task_id, proposal.token, progress=0.5)
    kept = await claims.heartbeat(task_states.store, [beat], HEARTBEAT_TIMEOUT)
    success = result(claimed[0], Outcome.SUCCESS, result=b"1")
    live = await tasks.final_of(task_states.store, [task.task_id])
    written = [(await set_results(task_states.store, [success])).verdicts[0] for _ in range(2)]

    assert [each.verdict for each in scheduled] == [Scheduling.CREATED, Scheduling.REPEATED]
    assert {each.task_id for each in scheduled} == {task.task_id}
    assert ahead[QUEUE] <= timedelta()
    assert [each.task_id for each in due] == [task.task_id]
    assert claimed[0] == claimed[1]
    assert (claimed[0].payload, kept, live) == (b"{}", [HeartbeatAnswer.KEPT], set())
    assert written == [Applied.APPLIED, Applied.ALREADY_APPLIED]
    assert await task_states.status(task.task_id) == "success"


async def test_what_fails_snoozes_or_is_released_runs_again_and_is_remembered(task_states):
    failed, snoozed, released, dead = [await task_states.processing() for _ in range(4)]

    await set_results(
        task_states.store,
        [
            result(failed, Outcome.RETRIABLE_FAILURE, failure_message="no"),
            result(snoozed, Outcome.SNOOZED, retry_after=SECOND),
            result(dead, Outcome.FATAL_FAILURE, failure_message="never"),
        ],
    )
    await claims.release(task_states.store, [ReleasedClaim(released.task_id, released.token)])

    found = [await task_states.status(each.task_id) for each in (failed, snoozed, released, dead)]
    attempts = await tasks.get_attempts(
        task_states.store, [each.task_id for each in (failed, snoozed, released)]
    )
    assert found == ["retriable_failure", "new", "new", "fatal_failure"]
    assert [len(each) for each in attempts.values()] == [1, 1, 1]


async def test_a_dead_letter_is_redriven(task_states):
    dead = await task_states.processing()
    await set_results(task_states.store, [result(dead, Outcome.FATAL_FAILURE, failure_message="never")])

    answers = await dead_letters.redrive(task_states.store, [dead.task_id])

    assert answers[dead.task_id].verdict is dead_letters.Verdict.REDRIVEN
    assert await task_states.status(dead.task_id) == "new"


async def test_what_falls_silent_is_sent_again_reclaimed_cancelled_quarantined_or_expires(task_states, clock):
    await task_states.register(max_crashes=1, name="mail.count")
    created_at = (await task_states.row((await task_states.new()).task_id))["created_at"]
    expiring = await task_states.new(expires_at=created_at + SECOND)
    silent, unwanted = [await task_states.processing() for _ in range(2)]
    crashing = await task_states.processing(lambda_name="mail.count")
    lost = await task_states.enqueued()
    await tasks.cancel_tasks(task_states.store, [unwanted.task_id])
    await clock.tick(LATER)

    ahead = await polling.next_timeout(task_states.store)
    silence = await end_silence(task_states)

    states = [await task_states.status(each.task_id) for each in (expiring, silent, unwanted, crashing, lost)]
    assert ahead < timedelta()
    assert states == ["fatal_failure", "enqueued", "cancelled", "fatal_failure", "enqueued"]
    assert (silence.reclaimed, silence.ended) == (1, 3)
    assert {silent.task_id, lost.task_id} <= {each.task_id for each in silence.again}


async def test_what_waits_is_put_back_or_cancelled(task_states):
    sent, unwanted = await task_states.enqueued(), await task_states.enqueued()

    await polling.put_back(task_states.store, [sent.task_id], SECOND)
    await tasks.cancel_tasks(task_states.store, [unwanted.task_id])

    assert await task_states.status(sent.task_id) == "new"
    assert await task_states.status(unwanted.task_id) == "cancelled"


async def test_finished_tasks_leave_with_their_partitions(task_states, retention, clock, uptime):
    gone = await finished(task_states)
    made = await until_nothing_is_left(retention)
    await clock.tick(14 * DAY)
    uptime.now += 14 * DAY

    done = await until_nothing_is_left(retention)

    assert made.added
    assert "first" in done.dropped
    assert await tasks.get_tasks(task_states.store, [gone]) == {}


async def test_what_is_planned_anew_is_not_prepared_and_the_rest_is(task_states):
    task = NewTask(new_task_id().bytes, LAMBDA, b"{}")
    async with task_states.store.connection() as connection:
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
        "completed_before",
        "former_blockers",
        "redrive",
        "growing_graph",
        "session_keys",
        "update_pending",
        "update_waiting",
    }
