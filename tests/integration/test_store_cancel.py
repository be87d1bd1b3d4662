"""Cancelling: at once where nobody runs the task, through its holder where somebody does."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from duly.ids import new_task_id
from duly_core.lifecycle import Status
from duly_core.routing import Priority, QueueKey
from duly_core.store import claims, trigger
from duly_core.store.results import set_results
from duly_core.store.tasks import cancel_tasks
from duly_core.task import Applied, Beat, FailureKind, Kept, Outcome, Proposal, Result
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.ladder import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
TOKEN = b"t" * 16


async def failed(ladder, **overrides):
    """A task that waits for its next attempt."""
    task = await ladder.processing(**overrides)
    result = Result(
        task.task_id,
        task.token,
        Outcome.RETRIABLE_FAILURE,
        failure_kind=FailureKind.CALLBACK,
        retry_after=timedelta(hours=1),
    )
    await set_results(ladder.store, [result])
    return task


async def beat(ladder, task):
    (kept,) = await claims.heartbeat(ladder.store, [Beat(task.task_id, task.token)], HEARTBEAT_TIMEOUT)
    return kept


@pytest.mark.parametrize("rung", ["new", "enqueued", "failed"])
async def test_a_task_that_nobody_runs_is_cancelled_at_once(ladder, clock, rung):
    task = await (failed(ladder) if rung == "failed" else getattr(ladder, rung)())

    answers = await cancel_tasks(ladder.store, [task.task_id])

    row = await ladder.row(task.task_id)
    assert answers == {task.task_id: Status.CANCELLED}
    assert row["status"] == "cancelled"
    assert (row["fence"], row["failures"]) == ((1, 1) if rung == "failed" else (0, 0))
    await clock.tick(timedelta(days=1))
    assert await trigger.enqueue(ladder.store, ROOM, ENQUEUE_TIMEOUT) == []
    assert await trigger.end_silence(ladder.store, ROOM, ENQUEUE_TIMEOUT, 10) == trigger.Silence([])


async def test_the_message_of_a_cancelled_task_is_refused_at_the_claim(ladder, enqueued_task):
    await cancel_tasks(ladder.store, [enqueued_task.task_id])

    proposal = Proposal(enqueued_task.task_id, TOKEN, LAMBDA)

    assert await claims.claim(ladder.store, [(proposal, "host")], CLAIM_TIMEOUT) == [None]


@pytest.mark.parametrize("rung", ["claimed", "processing"])
async def test_the_holder_of_a_task_is_asked_and_keeps_its_claim_meanwhile(ladder, rung):
    task = await getattr(ladder, rung)()
    before = await ladder.row(task.task_id)

    answers = await cancel_tasks(ladder.store, [task.task_id])

    after = await ladder.row(task.task_id)
    assert answers == {task.task_id: Status(rung)}
    assert after == before | {"cancel_requested": True}
    assert await beat(ladder, task) is Kept.CANCEL_REQUESTED


async def test_a_cancel_asked_for_twice_changes_nothing_more(ladder, processing_task):
    first = await cancel_tasks(ladder.store, [processing_task.task_id])
    second = await cancel_tasks(ladder.store, [processing_task.task_id])

    assert first == second == {processing_task.task_id: Status.PROCESSING}


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FATAL_FAILURE, Outcome.CANCELLED])
async def test_a_final_task_is_left_as_it_is(ladder, claimed_task, outcome):
    reason = {"failure_kind": FailureKind.CALLBACK} if outcome is Outcome.FATAL_FAILURE else {}
    await set_results(ladder.store, [Result(claimed_task.task_id, claimed_task.token, outcome, **reason)])
    before = await ladder.row(claimed_task.task_id)

    assert await cancel_tasks(ladder.store, [claimed_task.task_id]) == {}
    assert await ladder.row(claimed_task.task_id) == before


async def test_many_are_answered_for_themselves_and_the_unknown_left_out(ladder):
    waiting, running, unknown = await ladder.new(), await ladder.processing(), new_task_id().bytes

    answers = await cancel_tasks(ladder.store, [running.task_id, unknown, waiting.task_id, running.task_id])

    assert answers == {waiting.task_id: Status.CANCELLED, running.task_id: Status.PROCESSING}
    assert await cancel_tasks(ladder.store, []) == {}


async def test_a_claim_that_commits_first_turns_the_cancel_into_a_request(ladder, dsn, enqueued_task):
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "update task_assoc set status = 'claimed', token = gen_random_uuid(), holder = 'h', fence = 1"
        )
        cancelling = asyncio.ensure_future(cancel_tasks(ladder.store, [enqueued_task.task_id]))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

        assert await cancelling == {enqueued_task.task_id: Status.CLAIMED}
    assert (await ladder.row(enqueued_task.task_id))["cancel_requested"]


async def test_a_release_that_commits_first_still_ends_the_task(ladder, dsn, processing_task):
    """The task passes from running to waiting just between the two statements of a cancel."""
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("update task_assoc set status = 'new', token = null, holder = null")
        cancelling = asyncio.ensure_future(cancel_tasks(ladder.store, [processing_task.task_id]))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

        assert await cancelling == {processing_task.task_id: Status.CANCELLED}


async def test_a_result_that_commits_first_leaves_nothing_to_cancel(ladder, dsn, processing_task):
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("delete from task_assoc")
        await other.execute(
            "update task set status = 'success', finished_at = now(), fence = 1, failures = 0, crashes = 0"
        )
        cancelling = asyncio.ensure_future(cancel_tasks(ladder.store, [processing_task.task_id]))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

        assert await cancelling == {}
    assert await ladder.status(processing_task.task_id) == "success"


async def test_a_request_outlives_the_claim_it_was_made_to(ladder, clock, processing_task):
    await cancel_tasks(ladder.store, [processing_task.task_id])
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)

    silence = await trigger.end_silence(ladder.store, ROOM, ENQUEUE_TIMEOUT, 10)

    assert (silence.again, silence.ended) == ([], 1)
    result = Result(processing_task.task_id, processing_task.token, Outcome.SUCCESS, result=b"{}")
    assert (await set_results(ladder.store, [result])).verdicts == [Applied.LOST]
    assert await ladder.status(processing_task.task_id) == "cancelled"
