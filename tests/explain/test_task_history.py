"""What ExplainTask tells of a task's past: each move, who made it, and when the task was to be looked at next."""

import os
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

import duly
from duly_core.access.current import set_access
from duly_core.access.grants import Access
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.session_names import SessionId
from duly_core.results.store import set_results
from duly_core.sessions import store as sessions
from duly_core.tasks import claims, dead_letters, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import ReleasedClaim, Result
from duly_wire.enums import AttemptOutcome, FailureKind, HistoryKind, Outcome, Priority, TaskStatus
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

MINUTE = timedelta(minutes=1)
KIND = HistoryKind


@pytest.fixture
async def registered(task_states):
    await task_states.register(max_attempts=2)
    return task_states


def text_of(task_id: bytes) -> str:
    return str(UUID(bytes=task_id))


async def pick(task_states, most=100):
    picks = [Pick(QueueKey(LAMBDA, priority), most, 0) for priority in Priority]
    caller = Caller("host-1", os.urandom(14))
    return (await claims.claim_work(task_states.store, picks, [caller], most, CLAIM_TIMEOUT)).tasks


async def write(task_states, task, outcome, **fields):
    failed = {} if outcome in (Outcome.SUCCESS, Outcome.SNOOZED) else {"failure_kind": FailureKind.CALLBACK}
    await set_results(task_states.store, [Result(task.task_id, task.token, outcome, **failed, **fields)])


async def history(client, task):
    return (await client.explain(task)).history


def kinds(events):
    return [event.kind for event in events]


def events_of(dsn):
    with psycopg.connect(dsn) as connection:
        rows = connection.execute("select events from task").fetchall()
    return [row[0] for row in rows]


async def test_a_plain_task_has_its_schedule_its_claim_and_its_end_and_no_events(client, registered, dsn):
    task = await client.schedule(LAMBDA)
    (claimed,) = await pick(registered)
    await write(registered, claimed, Outcome.SUCCESS)

    scheduled, claim, ended = await history(client, task)

    assert kinds([scheduled, claim, ended]) == [KIND.SCHEDULED, KIND.CLAIMED, KIND.ENDED]
    assert (scheduled.service, claim.service, ended.service) == ("frontend", "hsc", "hsc")
    assert (claim.attempt, claim.fence) == (1, 1)
    assert ended.status is TaskStatus.SUCCESS
    assert scheduled.happened_at <= claim.happened_at <= ended.happened_at
    assert scheduled.next_trigger_at is not None
    assert events_of(dsn) == [None]


async def test_a_queue_shows_when_the_reference_was_sent_again_and_claimed(client, registered, clock):
    task = await registered.enqueued()
    await clock.tick(ENQUEUE_TIMEOUT + SECOND)
    room = {QueueKey(LAMBDA, priority): 10 for priority in Priority}
    await polling.handle_timeouts(registered.store, room, ENQUEUE_TIMEOUT, 100)
    await registered.claim(task)

    events = await history(client, text_of(task.task_id))

    assert kinds(events) == [KIND.SCHEDULED, KIND.ENQUEUED, KIND.SENT_AGAIN, KIND.CLAIMED]
    assert [event.service for event in events[1:]] == ["store_consumer", "store_consumer", "hsc"]
    assert events[2].next_trigger_at - events[2].happened_at == pytest.approx(ENQUEUE_TIMEOUT, abs=SECOND)


async def test_a_task_that_failed_snoozed_fell_silent_and_was_redriven_has_all_of_it(
    client, registered, clock
):
    task = await client.schedule(LAMBDA)
    (first,) = await pick(registered)
    await write(registered, first, Outcome.SNOOZED, retry_after=SECOND, failure_message="not now")
    await clock.tick(2 * SECOND)
    (second,) = await pick(registered)
    await write(registered, second, Outcome.RETRIABLE_FAILURE, retry_after=SECOND, failure_message="no route")
    await clock.tick(2 * SECOND)
    (third,) = await pick(registered)
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)
    await polling.handle_timeouts(registered.store, None, ENQUEUE_TIMEOUT, 100)
    (fourth,) = await pick(registered)
    released = ReleasedClaim(fourth.task_id, fourth.token, reason="the worker stops")
    await claims.release(registered.store, [released])
    (fifth,) = await pick(registered)
    await write(registered, fifth, Outcome.FATAL_FAILURE, failure_message="no such user")
    await dead_letters.redrive(registered.store, [fifth.task_id])
    (sixth,) = await pick(registered)
    await write(registered, sixth, Outcome.SUCCESS)

    events = await history(client, task)

    assert third.task_id == sixth.task_id
    assert kinds(events) == [
        KIND.SCHEDULED,
        *[KIND.CLAIMED, KIND.RUN_ENDED] * 5,
        KIND.ENDED,
        KIND.REDRIVEN,
        KIND.CLAIMED,
        KIND.ENDED,
    ]
    runs = [event for event in events if event.kind is KIND.RUN_ENDED]
    assert [event.outcome for event in runs] == [
        AttemptOutcome.SNOOZED,
        AttemptOutcome.RETRIABLE_FAILURE,
        AttemptOutcome.SILENT,
        AttemptOutcome.RELEASED,
        AttemptOutcome.FATAL_FAILURE,
    ]
    assert [event.service for event in runs] == ["hsc", "hsc", "store_consumer", "hsc", "hsc"]
    assert [event.fence for event in runs] == [1, 2, 3, 4, 5]
    assert [event.reason for event in runs][:2] == ["not now", "no route"]
    assert runs[0].next_trigger_at - runs[0].happened_at == pytest.approx(SECOND, abs=SECOND / 10)
    assert runs[-1].next_trigger_at is None
    ends = [event for event in events if event.kind is KIND.ENDED]
    assert [event.status for event in ends] == [TaskStatus.FATAL_FAILURE, TaskStatus.SUCCESS]
    assert ends[0].reason == "no such user"
    assert ends[1].holder == events[-2].holder == "host-1"
    assert [event.happened_at for event in events] == sorted(event.happened_at for event in events)


async def test_a_silent_task_of_a_queue_is_sent_at_once_and_says_so(client, registered, clock):
    task = await registered.claimed()
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)
    room = {QueueKey(LAMBDA, priority): 10 for priority in Priority}
    await polling.handle_timeouts(registered.store, room, ENQUEUE_TIMEOUT, 100)

    events = await history(client, text_of(task.task_id))

    assert kinds(events) == [
        KIND.SCHEDULED,
        KIND.ENQUEUED,
        KIND.CLAIMED,
        KIND.RUN_ENDED,
        KIND.ENQUEUED,
    ]
    assert events[3].status is TaskStatus.ENQUEUED


async def test_a_parked_task_says_on_what_and_when_it_was_released(client, registered):
    await client.put_resource("database", 1)
    await client.schedule(LAMBDA, resources=["database"])
    task = await client.schedule(LAMBDA, resources=["database"])
    (running,) = await pick(registered)
    await write(registered, running, Outcome.SUCCESS)
    (claimed,) = await pick(registered)
    await write(registered, claimed, Outcome.SUCCESS)

    events = await history(client, task)

    assert kinds(events) == [KIND.SCHEDULED, KIND.PARKED, KIND.UNPARKED, KIND.CLAIMED, KIND.ENDED]
    assert events[1].reason == "no units of database were free"
    assert events[1].status is TaskStatus.WAITING
    assert events[1].next_trigger_at is None


async def test_a_rate_that_puts_a_task_off_is_told_with_its_start(client, registered):
    await client.put_resource("mail", rate=duly.Rate(1, period=MINUTE))
    for _ in range(2):
        task = await client.schedule(LAMBDA, resources=["mail"])
    await pick(registered)
    await client.put_resource("mail", rate=duly.Rate(1000, period=SECOND))

    events = await history(client, task)

    assert kinds(events) == [KIND.SCHEDULED, KIND.PUT_OFF, KIND.RATE_LIFTED]
    assert events[1].next_trigger_at - events[1].happened_at > MINUTE / 2


async def test_sessions_and_their_blocks_are_told(client, registered):
    first = await client.schedule(LAMBDA, session=duly.Session("s", on_failure=duly.SessionPolicy.BLOCK))
    second = await client.schedule(LAMBDA, session="s")
    third = await client.schedule(LAMBDA, session="s")
    await registered.end_all_that_may_run(Outcome.FATAL_FAILURE)
    set_access(Access("ann", []))
    await sessions.unblock_sessions(registered.store, [SessionId("", "s")])
    await registered.end_all_that_may_run()

    of_second, of_third = await history(client, second), await history(client, third)

    assert kinds(of_second)[:2] == [KIND.SCHEDULED, KIND.SESSION_UNBLOCKED]
    assert first.task_id in of_second[1].reason
    assert of_second[1].principal == "ann"
    assert kinds(of_third)[:2] == [KIND.SCHEDULED, KIND.SESSION_TURN]
    assert second.task_id in of_third[1].reason


async def test_nodes_of_graphs_tell_what_let_them_run_or_skipped_them(client, registered):
    async with client.graph("discovery") as g:
        a = g.task(LAMBDA, label="a")
        g.task(LAMBDA, label="next", after=a)
        g.task(LAMBDA, label="alarm", after=a.failed)
    nodes = (await client.get_graph(g.scheduled)).nodes
    await end(registered.store, await claim_work(registered.store))
    await polling.handle_timeouts(registered.store, None, ENQUEUE_TIMEOUT, 100)

    after, skipped = [await history(client, nodes[label].task_id) for label in ("next", "alarm")]

    assert kinds(after) == [KIND.SCHEDULED, KIND.GRAPH_READY]
    assert nodes["a"].task_id in after[1].reason
    assert kinds(skipped) == [KIND.SCHEDULED, KIND.GRAPH_SKIPPED, KIND.ENDED]
    assert skipped[-1].status is TaskStatus.DROPPED


async def test_changes_and_cancels_name_who_asked(client, registered):
    set_access(Access("ann", []))
    waiting = await registered.new()
    running = await registered.processing()
    await client.update(text_of(waiting.task_id), priority=duly.Priority.HIGH, payload={"n": 1})
    await tasks.cancel_tasks(registered.store, [waiting.task_id, running.task_id])
    await tasks.cancel_tasks(registered.store, [running.task_id])  # it was asked for before

    of_waiting = await history(client, text_of(waiting.task_id))
    of_running = await history(client, text_of(running.task_id))

    assert kinds(of_waiting) == [KIND.SCHEDULED, KIND.UPDATED, KIND.ENDED]
    updated, ended = of_waiting[-2:]
    assert updated.reason == "changed: payload, priority"
    assert (ended.status, ended.principal) == (TaskStatus.CANCELLED, "ann")
    assert kinds(of_running).count(KIND.CANCEL_REQUESTED) == 1
    assert of_running[-1].principal == "ann"
    reason = (await client.explain(text_of(waiting.task_id))).reasons[0]
    assert "it was cancelled" in reason.text
    assert reason.text.endswith("by ann")


async def test_of_many_events_the_first_and_the_newest_are_kept(client, registered, dsn):
    task = await client.schedule(LAMBDA, delay=MINUTE)
    for number in range(230):
        await client.update(task, payload={"n": number})

    events = await history(client, task)
    await client.cancel(task)

    (kept,) = events_of(dsn)
    assert len(kept) == 200
    left_out = [event for event in events if event.kind is KIND.LEFT_OUT]
    assert [event.reason for event in left_out] == ["31 events were left out"]
    assert kinds(events).count(KIND.UPDATED) == 199
    assert len(await history(client, task)) == 201
