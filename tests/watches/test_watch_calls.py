"""Watches, through the Frontend: what happens to tasks and graphs, once each, in order, from a position on."""

import asyncio
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

import duly
from duly_core.graphs.growth_rules import NewNode
from duly_core.graphs.rules import Node
from duly_core.results.store import set_results
from duly_core.tasks.task import NewTask, Result
from duly_core.watches.sweep import WatchSweep
from duly_wire.enums import FailureKind, Outcome
from duly_wire.ids import new_task_id
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.services import serve_frontend
from tests.fixtures.task_states import LAMBDA

SOON = timedelta(seconds=10)
AT_ONCE = timedelta(0)
RUN, TASK, GRAPH = (
    duly.TaskEventKind.RUN_ENDED,
    duly.TaskEventKind.TASK_ENDED,
    duly.TaskEventKind.GRAPH_FINISHED,
)


@pytest.fixture
async def frontend(store, task_states):
    async with serve_frontend(store) as served:
        yield served


@pytest.fixture
async def client(frontend):
    async with duly.AsyncClient(frontend.address) as opened:
        yield opened


async def end(task_states, outcome=Outcome.SUCCESS, **fields):
    """Let a task run once, and return its id."""
    claimed = await task_states.claimed(**fields)
    kind = FailureKind.CALLBACK if outcome in {Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE} else None
    more = (
        {"retry_after": timedelta(hours=1)} if outcome in {Outcome.SNOOZED, Outcome.RETRIABLE_FAILURE} else {}
    )
    await set_results(
        task_states.store, [Result(claimed.task_id, claimed.token, outcome, failure_kind=kind, **more)]
    )
    return str(UUID(bytes=claimed.task_id))


async def told(watch, number=1):
    """Wait for so many events."""
    events = []
    async with asyncio.timeout(SOON.total_seconds()):
        while len(events) < number:
            events += await watch.next_events(SOON)
    return events


async def test_each_end_is_told_once_and_no_start_is(client, task_states):
    watch = await client.watch(lambdas=[LAMBDA])

    success = await end(task_states)
    failure = await end(task_states, Outcome.FATAL_FAILURE)
    retried = await end(task_states, Outcome.RETRIABLE_FAILURE)
    snoozed = await end(task_states, Outcome.SNOOZED)
    cancelled = str(UUID(bytes=(await task_states.new()).task_id))
    await client.cancel(cancelled)

    events = await told(watch, 5)
    assert [(event.kind, event.task_id, event.status or event.outcome) for event in events] == [
        (TASK, success, duly.TaskStatus.SUCCESS),
        (TASK, failure, duly.TaskStatus.FATAL_FAILURE),
        (RUN, retried, duly.AttemptOutcome.RETRIABLE_FAILURE),
        (RUN, snoozed, duly.AttemptOutcome.SNOOZED),
        (TASK, cancelled, duly.TaskStatus.CANCELLED),
    ]
    assert [event.run for event in events] == [1, 1, 1, 1, 0]
    assert [event.failure_kind for event in events][1:3] == [FailureKind.CALLBACK] * 2
    assert events[2].next_at > events[2].at


async def test_without_a_watch_nothing_is_written(store, task_states):
    await end(task_states)
    await end(task_states, Outcome.SNOOZED)

    async with store.connection() as connection:
        cursor = await connection.execute("select count(*) from task_event")
        assert await cursor.fetchall() == [(0,)]


async def test_a_watch_goes_on_from_the_position_of_each_event(client, task_states):
    watch = await client.watch()
    ids = [await end(task_states) for _ in range(3)]
    events = await told(watch, 3)

    again = [
        await client.watch(after=position)
        for position in (events[0].position, events[1].position, watch.position)
    ]

    assert [event.task_id for event in events] == ids
    assert [[event.task_id for event in await each.next_events(AT_ONCE)] for each in again] == [
        ids[1:],
        ids[2:],
        [],
    ]


async def test_what_another_watch_had_written_before_is_not_told(client, task_states):
    first = await client.watch()
    before = await end(task_states)
    second = await client.watch()

    after = await end(task_states)

    assert [event.task_id for event in await told(first, 2)] == [before, after]
    assert [event.task_id for event in await told(second)] == [after]


async def test_what_ends_in_a_transaction_that_is_open_is_told_when_it_is_over(client, store, task_states):
    watch = await client.watch()
    late = await task_states.new()
    async with store.connection() as connection, connection.transaction():
        await connection.execute("select pg_current_xact_id()")
        early = await end(task_states)

        assert await watch.next_events(timedelta(milliseconds=500)) == []

        await connection.execute(
            "select duly_note_end(%s, %s, null, null, 'cancelled', 0, null, duly_now())",
            [UUID(bytes=late.task_id), LAMBDA],
        )
    events = await told(watch, 2)
    assert [event.task_id for event in events] == [str(UUID(bytes=late.task_id)), early]


async def test_a_graph_is_told_with_its_tasks(client, task_states):
    async with client.graph("two") as g:
        first = g.task(LAMBDA)
        g.task(LAMBDA, after=first)
    watch = await client.watch(graph=g.graph_id)
    await client.schedule(LAMBDA)

    await task_states.end_all_that_may_run()
    await task_states.end_all_that_may_run()

    events = await told(watch, 3)
    assert [event.kind for event in events] == [TASK, TASK, GRAPH]
    assert {event.graph_id for event in events} == {g.graph_id}
    assert events[-1].graph_status is duly.GraphStatus.SUCCEEDED
    assert events[-1].task_id == ""


async def test_a_graph_is_told_after_a_node_whose_transaction_began_later_and_committed_earlier(
    client, task_states, dsn
):
    names = (LAMBDA, "mail.read")
    await task_states.register(names[1])
    async with client.graph("two") as g:
        for name in names:
            g.task(name)
    watch = await client.watch(graph=g.graph_id)
    one, other = [await task_states.take_of(name) for name in names]
    beside = await task_states.claimed()
    begun, later = [
        [Result(each.task_id, each.token, Outcome.SUCCESS) for each in tasks]
        for tasks in ([one, beside], [other])
    ]

    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute(
            "select from task_assoc where task_id = %s for update", [UUID(bytes=beside.task_id)]
        )
        ending = asyncio.create_task(set_results(task_states.store, begun))
        await until_a_statement_waits_for_a_lock(dsn)
        await set_results(task_states.store, later)
        await holder.rollback()
    await ending

    events = await told(watch, 3)
    assert [event.kind for event in events] == [TASK, TASK, GRAPH]
    ids = [str(UUID(bytes=each.task_id)) for each in (one, other)]
    assert [event.task_id for event in events[:2]] == ids


async def test_a_graph_that_its_last_task_extends_is_told_when_the_new_one_has_ended(client, task_states):
    async with client.graph("grows") as g:
        g.task(LAMBDA)
    watch = await client.watch(graph=g.graph_id)
    last = await task_states.take_of(LAMBDA)
    added = NewNode(Node("added"), NewTask(new_task_id().bytes, LAMBDA, b"{}"))

    await set_results(task_states.store, [Result(last.task_id, last.token, Outcome.SUCCESS, nodes=(added,))])
    await task_states.end_all_that_may_run()

    assert [event.kind for event in await told(watch, 3)] == [TASK, TASK, GRAPH]


async def test_a_watch_is_of_lambdas_and_of_a_session(client, task_states):
    for name in ("mail.read", "team/mail.send"):
        await task_states.register(name)
    of_one = await client.watch(lambdas=["mail.read", "team/mail.send"])
    of_prefix = await client.watch(lambdas=["mail.*"])
    of_session = await client.watch(session="ann")
    names = ["mail.read", "team/mail.send", LAMBDA]
    for name in names:
        await client.schedule(name)
        claimed = await task_states.take_of(name)
        await set_results(task_states.store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])
    in_session = await client.schedule(LAMBDA, session="ann")
    await task_states.end_all_that_may_run()

    assert [event.lambda_name for event in await told(of_one, 2)] == names[:2]
    assert [event.lambda_name for event in await told(of_prefix, 3)] == ["mail.read", LAMBDA, LAMBDA]
    assert [(event.task_id, event.session) for event in await told(of_session)] == [
        (in_session.task_id, "ann")
    ]


@pytest.mark.parametrize(
    "after",
    ["x", "AAAA", "AQ" + "A" * 44, "é", "A" * 100_000],
    ids=["short", "bytes", "numbers", "letters", "long"],
)
async def test_a_position_that_is_made_up_is_refused(client, after):
    with pytest.raises((duly.InvalidTaskError, duly.WatchLostError), match=r"position|not known"):
        await client.watch(after=after)


async def test_a_position_goes_on_with_what_it_is_of_only(client):
    watch = await client.watch(lambdas=["a"])

    with pytest.raises(duly.InvalidTaskError, match="of something else"):
        await client.watch(lambdas=["b"], after=watch.position)


async def test_a_watch_that_nobody_called_for_is_lost(client, store, frontend):
    watch = await client.watch()
    async with store.connection() as connection:
        await connection.execute("update watch set until_at = duly_now() - interval '1 second'")

    await WatchSweep(store, timedelta(days=1)).run_once()

    async with serve_frontend(store) as other, duly.AsyncClient(other.address) as later:
        with pytest.raises(duly.WatchLostError, match="begin another"):
            await later.watch(after=watch.position)


async def test_events_that_were_removed_are_missed_and_later_ones_are_not(client, store, task_states):
    watch = await client.watch()
    began = watch.position
    await end(task_states)
    await told(watch)
    async with store.connection() as connection:
        await connection.execute("update task_event set at = at - interval '1 day'")
    await WatchSweep(store, timedelta(hours=23)).run_once()
    later = await end(task_states)

    assert [event.task_id for event in await told(watch)] == [later]
    with pytest.raises(duly.WatchLostError, match="removed"):
        await client.watch(after=began)
