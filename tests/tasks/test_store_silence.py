"""Silence: holders that fell silent, tasks that expired, and the races with those who speak up just then."""

import asyncio
import os
from datetime import timedelta

import psycopg
import pytest

from duly_core.errors import StatementTimeoutError
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.statements import TRANSITIONS
from duly_core.results import store as results
from duly_core.tasks import claims, polling, waiting
from duly_core.tasks import store as tasks
from duly_core.tasks.task import Applied, HeartbeatAnswer, Proposal, Result
from duly_wire.enums import FailureKind, Outcome, Priority
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

MINUTE = 60 * SECOND
ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
SILENT = max(CLAIM_TIMEOUT, HEARTBEAT_TIMEOUT) + SECOND
LOCK = 4711
GATED_CLOCK = """
create or replace function duly_now() returns timestamptz language sql volatile as
    'select clock_timestamp() + (select ahead from test_clock) from pg_advisory_xact_lock_shared(4711)'
"""


async def end_silence(task_states, room=ROOM):
    return await polling.handle_timeouts(task_states.store, room, ENQUEUE_TIMEOUT, 100)


async def expiring(task_states, rung="new", **overrides):
    """A task that expires in ten seconds."""
    created_at = (await task_states.row((await task_states.claimed()).task_id))["created_at"]
    return await getattr(task_states, rung)(expires_at=created_at + 10 * SECOND, **overrides)


@pytest.mark.parametrize("rung", ["claimed", "processing"])
async def test_a_holder_that_fell_silent_is_charged_a_crash_and_the_task_is_sent_again(
    task_states, clock, rung
):
    task = await getattr(task_states, rung)()
    await clock.tick(SILENT)

    silence = await end_silence(task_states, room={})  # a claim that is void has no message in any queue

    row = await task_states.row(task.task_id)
    assert [each.task_id for each in silence.again] == [task.task_id]
    assert (silence.reclaimed, silence.ended) == (1, 0)
    assert (row["status"], row["failures"], row["crashes"], row["fence"]) == ("enqueued", 0, 1, 1)
    assert (row["holder"], row["progress"]) == (None, None)


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ("silent", None, True),
        ("worker", None, True),
        ("process", None, False),
        ("worker", "worker", False),
        ("silent", "process", False),
        ("process", "silent", False),
    ],
)
async def test_a_task_is_said_to_have_crashed_with_its_worker_if_that_was_its_only_crash(
    task_states, clock, first, second, told
):
    await task_states.register(max_crashes=9)
    task = await task_states.processing()

    for how in filter(None, (first, second)):
        if how == "silent":
            await clock.tick(SILENT)
            await end_silence(task_states)
        else:
            crash = Result(task.task_id, task.token, Outcome.CRASHED, with_worker=how == "worker")
            await results.set_results(task_states.store, [crash])
            await clock.tick(MINUTE)
            room = {QueueKey(LAMBDA, priority): 9 for priority in Priority}
            await polling.enqueue(task_states.store, room, ENQUEUE_TIMEOUT)
        task = await task_states.claim(task)

    assert (task.crashes, task.crashed_with_worker) == (1 + bool(second), told)


async def test_a_step_of_the_clock_after_the_look_voids_no_lease_that_had_not_run_out_by_the_look(
    task_states, clock
):
    kept = await task_states.processing()
    await clock.tick(SECOND)
    seen = await task_states.row(kept.task_id)

    async def may_void(connection):
        ((now,),) = await (await connection.execute("select duly_now()")).fetchall()
        await clock.tick(SILENT)
        return polling.ReclaimAllowance(100, now)

    silence = await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 100, may_void)

    assert (silence.revoked, await task_states.row(kept.task_id)) == (0, seen)


@pytest.mark.parametrize("rung", ["claimed", "processing"])
async def test_a_holder_whose_time_has_not_passed_is_left_alone(task_states, clock, rung):
    task = await getattr(task_states, rung)()
    before = await task_states.row(task.task_id)
    await clock.tick(SILENT - 3 * SECOND)

    silence = await end_silence(task_states)

    assert silence == polling.TimedOut([])
    assert await task_states.row(task.task_id) == before


async def test_the_last_silence_that_the_lambda_allows_is_a_quarantine(task_states, clock):
    await task_states.register(max_crashes=2)
    task = await task_states.claimed()
    await clock.tick(SILENT)
    await end_silence(task_states)
    await task_states.claim(task)
    await clock.tick(SILENT)

    silence = await end_silence(task_states)

    row = await task_states.row(task.task_id)
    assert (silence.again, silence.ended) == ([], 1)
    assert (row["status"], row["crashes"], row["fence"]) == ("fatal_failure", 2, 2)
    assert row["failure_kind"] == FailureKind.QUARANTINED
    assert "silent 2 times" in row["failure_message"]


@pytest.mark.parametrize("rung", ["claimed", "processing"])
async def test_a_silent_task_that_was_to_be_cancelled_is_cancelled(task_states, clock, rung):
    task = await getattr(task_states, rung)()
    await tasks.cancel_tasks(task_states.store, [task.task_id])
    await clock.tick(SILENT)

    silence = await end_silence(task_states)

    assert (silence.again, silence.ended) == ([], 1)
    assert await task_states.status(task.task_id) == "cancelled"
    assert await task_states.heartbeat(task) is HeartbeatAnswer.LOST


async def test_every_kind_of_silence_is_taken_up_in_one_round_and_no_more_than_the_limit_of_each(
    task_states, clock
):
    held = [await task_states.claimed() for _ in range(6)]
    await tasks.cancel_tasks(task_states.store, [task.task_id for task in held[3:]])
    await clock.tick(SILENT)

    silence = await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 2)

    assert (silence.reclaimed, silence.ended) == (2, 2)
    assert (await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 2)).reclaimed == 1


@pytest.mark.parametrize("rung", ["new", "enqueued"])
async def test_a_task_that_could_not_start_in_time_ends_as_expired(task_states, clock, rung):
    task = await expiring(task_states, rung)
    await clock.tick(11 * SECOND)

    assert await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT) == []
    silence = await end_silence(task_states)

    row = await task_states.row(task.task_id)
    assert (silence.again, silence.ended) == ([], 1)
    assert (row["status"], row["failure_kind"]) == ("fatal_failure", FailureKind.EXPIRED)


async def test_a_task_expires_though_its_own_time_has_not_come(task_states, clock):
    task = await expiring(task_states, delay=timedelta(hours=1))
    await clock.tick(11 * SECOND)

    assert (await end_silence(task_states, room={})).ended == 1
    assert await task_states.status(task.task_id) == "fatal_failure"


async def test_a_failed_task_expires_while_it_waits_for_its_next_attempt(task_states, clock):
    task = await expiring(task_states, "processing")
    retry = Result(
        task.task_id,
        task.token,
        Outcome.RETRIABLE_FAILURE,
        failure_kind=FailureKind.CALLBACK,
        retry_after=20 * SECOND,
    )
    await results.set_results(task_states.store, [retry])
    await clock.tick(11 * SECOND)

    assert (await end_silence(task_states)).ended == 1
    assert await task_states.status(task.task_id) == "fatal_failure"
    assert (await results.set_results(task_states.store, [retry])).verdicts == [Applied.ALREADY_APPLIED]


async def test_a_task_that_runs_does_not_expire(task_states, clock):
    task = await expiring(task_states, "processing")
    await clock.tick(11 * SECOND)

    assert (await end_silence(task_states)).ended == 0
    assert await task_states.heartbeat(task) is HeartbeatAnswer.KEPT


async def test_a_heartbeat_that_is_being_written_saves_its_task_from_being_reclaimed(
    task_states, clock, dsn, processing_task
):
    await clock.tick(SILENT)
    async with await psycopg.AsyncConnection.connect(dsn) as heartbeat:
        await heartbeat.execute("update task_assoc set next_trigger_at = duly_now() + interval '15 s'")

        silence = await end_silence(task_states)

    assert silence == polling.TimedOut([])
    assert await task_states.heartbeat(processing_task) is HeartbeatAnswer.KEPT


@pytest.mark.parametrize(
    ("statement", "max_crashes", "cancel"),
    [("reclaim", 3, False), ("quarantine_silent", 1, False), ("cancel_silent", 3, True)],
)
async def test_a_heartbeat_that_commits_first_saves_its_task_though_its_silence_was_seen(
    task_states, clock, dsn, processing_task, statement, max_crashes, cancel
):
    await task_states.register(max_crashes=max_crashes)
    if cancel:
        await tasks.cancel_tasks(task_states.store, [processing_task.task_id])
    await clock.tick(SILENT)
    parameters = {"limit": 10, "as_of": None} | (
        {"status": "enqueued", "trigger_in": ENQUEUE_TIMEOUT} if statement == "reclaim" else {}
    )
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as gate:
        await gate.execute("select pg_advisory_lock(%s)", [LOCK])
        # a statement takes its snapshot, asks for the time, and waits here
        await gate.execute(GATED_CLOCK)
        ending = asyncio.ensure_future(task_states.store.run(TRANSITIONS[statement], parameters))
        await until_a_statement_waits_for_a_lock(dsn)

        await gate.execute("update task_assoc set next_trigger_at = next_trigger_at + interval '1 h'")
        await gate.execute("select pg_advisory_unlock(%s)", [LOCK])

        assert await ending == []
    assert await task_states.heartbeat(processing_task) is not HeartbeatAnswer.LOST


@pytest.mark.parametrize("ending", ["expire", "cancel"])
async def test_a_claim_that_commits_first_saves_its_task_from_ending(task_states, clock, dsn, ending):
    task = await expiring(task_states, "enqueued")
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "update task_assoc set status = 'claimed', token = gen_random_uuid(), holder = 'h', fence = fence + 1"
            " where task_id = encode(%s, 'hex')::uuid",
            [task.task_id],
        )
        await clock.tick(11 * SECOND)
        call = (
            tasks.cancel_tasks(task_states.store, [task.task_id])
            if ending == "cancel"
            else end_silence(task_states)
        )
        waiting = asyncio.ensure_future(call)
        if ending == "cancel":
            await until_a_statement_waits_for_a_lock(dsn)
        else:
            await waiting
        await other.commit()
        await waiting

    row = await task_states.row(task.task_id)
    assert (row["status"], row["cancel_requested"]) == ("claimed", ending == "cancel")


async def test_of_a_claim_and_an_expiry_at_once_exactly_one_wins(task_states, clock):
    expired = [await expiring(task_states, "enqueued") for _ in range(20)]
    await clock.tick(10 * SECOND - timedelta(milliseconds=20))
    proposals = [(Proposal(task.task_id, os.urandom(16), LAMBDA), "host") for task in expired]

    claimed, _, _ = await asyncio.gather(
        claims.claim(task_states.store, proposals, CLAIM_TIMEOUT),
        end_silence(task_states),
        end_silence(task_states),
    )
    await clock.tick(SECOND)
    await end_silence(task_states)

    for task, claim in zip(expired, claimed, strict=True):
        assert await task_states.status(task.task_id) == ("claimed" if claim else "fatal_failure")


async def test_a_part_that_takes_too_long_holds_up_no_other_and_is_reported(task_states, clock, monkeypatch):
    claimed, enqueued = await task_states.claimed(), await task_states.enqueued()
    await clock.tick(max(SILENT, ENQUEUE_TIMEOUT + SECOND))

    async def takes_too_long(*_):
        raise StatementTimeoutError("it takes too long")

    monkeypatch.setattr(polling, "end_waiting", takes_too_long)
    silence = await end_silence(task_states)

    assert {each.task_id for each in silence.again} == {claimed.task_id, enqueued.task_id}
    assert silence.reclaimed == 1
    assert isinstance(silence.problem, StatementTimeoutError)


async def test_ends_that_take_too_long_together_are_made_some_at_a_time(task_states, monkeypatch):
    limits = []

    async def end(_store, _lock, which, _end):
        limits.append(which["limit"])
        if which["limit"] > 10:
            raise StatementTimeoutError("it takes too long")
        return []

    monkeypatch.setattr(waiting, "_end", end)

    assert await waiting.end_waiting(task_states.store, 500) == []
    assert limits == [500, 10]
