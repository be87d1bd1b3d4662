"""Cancelling: at once where nobody runs the task, through its holder where somebody does."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from duly_core.errors import StoreUnavailableError
from duly_core.explain.reads import read_explained
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.statements import TRANSITIONS
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling
from duly_core.tasks import store as store_tasks
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Applied, HeartbeatAnswer, Proposal, Result
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
TOKEN = b"t" * 16


async def cancel_tasks(store, task_ids):
    """Cancel tasks of no session: their ends release nothing; the status of each."""
    cancelled = await store_tasks.cancel_tasks(store, task_ids)
    assert not cancelled.released
    return cancelled.statuses


async def failed(task_states, **overrides):
    """A task that waits for its next attempt."""
    task = await task_states.processing(**overrides)
    result = Result(
        task.task_id,
        task.token,
        Outcome.RETRIABLE_FAILURE,
        failure_kind=FailureKind.CALLBACK,
        retry_after=timedelta(hours=1),
    )
    await set_results(task_states.store, [result])
    return task


@pytest.mark.parametrize("rung", ["new", "enqueued", "failed"])
async def test_a_task_that_nobody_runs_is_cancelled_at_once(task_states, clock, rung):
    task = await (failed(task_states) if rung == "failed" else getattr(task_states, rung)())

    answers = await cancel_tasks(task_states.store, [task.task_id])

    row = await task_states.row(task.task_id)
    assert answers == {task.task_id: Status.CANCELLED}
    assert row["status"] == "cancelled"
    assert (row["fence"], row["failures"]) == ((1, 1) if rung == "failed" else (0, 0))
    await clock.tick(timedelta(days=1))
    assert await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT) == []
    assert await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10) == polling.TimedOut([])


async def test_the_message_of_a_cancelled_task_is_refused_at_the_claim(task_states, enqueued_task):
    await cancel_tasks(task_states.store, [enqueued_task.task_id])

    proposal = Proposal(enqueued_task.task_id, TOKEN, LAMBDA)

    assert await claims.claim(task_states.store, [(proposal, "host")], CLAIM_TIMEOUT) == [None]


@pytest.mark.parametrize("rung", ["claimed", "processing"])
async def test_the_holder_of_a_task_is_asked_and_keeps_its_claim_meanwhile(task_states, rung):
    task = await getattr(task_states, rung)()
    before = await task_states.row(task.task_id)

    answers = await cancel_tasks(task_states.store, [task.task_id])

    after = await task_states.row(task.task_id)
    assert answers == {task.task_id: Status(rung)}
    assert after == before | {"cancel_requested": True, "has_events": True}
    assert await task_states.heartbeat(task) is HeartbeatAnswer.CANCEL_REQUESTED


async def test_a_kill_is_told_to_the_holder_also_after_a_cancel_and_a_cancel_does_not_take_it_back(
    task_states, claimed_task, dsn
):
    processing = await task_states.processing()

    for task in (claimed_task, processing):
        await cancel_tasks(task_states.store, [task.task_id])
        assert await task_states.heartbeat(task) is HeartbeatAnswer.CANCEL_REQUESTED
        await store_tasks.cancel_tasks(task_states.store, [task.task_id], kill=True)
        await cancel_tasks(task_states.store, [task.task_id])
        await store_tasks.cancel_tasks(task_states.store, [task.task_id], kill=True)

    for task in (claimed_task, processing):
        assert await task_states.heartbeat(task) is HeartbeatAnswer.KILL_REQUESTED
        explained = await read_explained(task_states.store, task.task_id)
        assert [event["kind"] for event in explained["live_events"]] == ["cancel_requested", "kill_requested"]


async def test_a_killed_task_is_cancelled_at_once_where_nobody_runs_it_and_by_silence_where_its_holder_is_gone(
    task_states, clock
):
    waiting, running = await task_states.new(), await task_states.processing()

    killed = await store_tasks.cancel_tasks(task_states.store, [waiting.task_id, running.task_id], kill=True)
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)
    await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)

    assert killed.statuses == {waiting.task_id: Status.CANCELLED, running.task_id: Status.PROCESSING}
    assert await task_states.status(running.task_id) == "cancelled"
    assert await task_states.heartbeat(running) is HeartbeatAnswer.LOST


async def test_a_cancel_asked_for_twice_changes_nothing_more(task_states, processing_task):
    first = await cancel_tasks(task_states.store, [processing_task.task_id])
    second = await cancel_tasks(task_states.store, [processing_task.task_id])

    assert first == second == {processing_task.task_id: Status.PROCESSING}


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FATAL_FAILURE, Outcome.CANCELLED])
async def test_a_final_task_is_left_as_it_is(task_states, claimed_task, outcome):
    reason = {"failure_kind": FailureKind.CALLBACK} if outcome is Outcome.FATAL_FAILURE else {}
    await set_results(
        task_states.store, [Result(claimed_task.task_id, claimed_task.token, outcome, **reason)]
    )
    before = await task_states.row(claimed_task.task_id)

    assert await cancel_tasks(task_states.store, [claimed_task.task_id]) == {}
    assert await task_states.row(claimed_task.task_id) == before


async def test_many_are_answered_for_themselves_and_the_unknown_left_out(task_states):
    waiting, running, unknown = await task_states.new(), await task_states.processing(), new_task_id().bytes

    answers = await cancel_tasks(
        task_states.store, [running.task_id, unknown, waiting.task_id, running.task_id]
    )

    assert answers == {waiting.task_id: Status.CANCELLED, running.task_id: Status.PROCESSING}
    assert await cancel_tasks(task_states.store, []) == {}


async def test_a_claim_that_commits_first_turns_the_cancel_into_a_request(task_states, dsn, enqueued_task):
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "update task_assoc set status = 'claimed', token = gen_random_uuid(), holder = 'h', fence = 1"
        )
        cancelling = asyncio.ensure_future(cancel_tasks(task_states.store, [enqueued_task.task_id]))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

        assert await cancelling == {enqueued_task.task_id: Status.CLAIMED}
    assert (await task_states.row(enqueued_task.task_id))["cancel_requested"]


async def test_a_release_that_commits_first_still_ends_the_task(task_states, dsn, processing_task):
    """The task passes from running to waiting just between the two statements of a cancel."""
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("update task_assoc set status = 'new', token = null, holder = null")
        cancelling = asyncio.ensure_future(cancel_tasks(task_states.store, [processing_task.task_id]))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

        assert await cancelling == {processing_task.task_id: Status.CANCELLED}


async def test_a_result_that_commits_first_leaves_nothing_to_cancel(task_states, dsn, processing_task):
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("delete from task_assoc")
        await other.execute(
            "update task set status = 'success', finished_at = now(), fence = 1, failures = 0, crashes = 0"
        )
        cancelling = asyncio.ensure_future(cancel_tasks(task_states.store, [processing_task.task_id]))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

        assert await cancelling == {}
    assert await task_states.status(processing_task.task_id) == "success"


async def test_a_request_outlives_the_claim_it_was_made_to(task_states, clock, processing_task):
    await cancel_tasks(task_states.store, [processing_task.task_id])
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)

    silence = await polling.handle_timeouts(task_states.store, ROOM, ENQUEUE_TIMEOUT, 10)

    assert (silence.again, silence.ended) == ([], 1)
    result = Result(processing_task.task_id, processing_task.token, Outcome.SUCCESS, result=b"{}")
    assert (await set_results(task_states.store, [result])).verdicts == [Applied.LOST]
    assert await task_states.status(processing_task.task_id) == "cancelled"


async def test_a_task_that_moves_at_each_try_is_not_answered(task_states, monkeypatch):
    task = await task_states.new()
    run = task_states.store.run

    async def finds_nothing(statement, parameters):
        if statement.name == "cancel":
            return await run(TRANSITIONS["request_cancel"], parameters | {"kill": False})
        return await run(statement, parameters)

    monkeypatch.setattr(task_states.store, "run", finds_nothing)

    with pytest.raises(StoreUnavailableError, match="1 tasks moved each time"):
        await store_tasks.cancel_tasks(task_states.store, [task.task_id])
