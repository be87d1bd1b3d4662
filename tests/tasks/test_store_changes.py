"""Changing what nobody runs yet: at once where it waits, refused where it runs, and never lost to a claim."""

import asyncio
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks import updates as changes
from duly_core.tasks.dead_letters import redrive
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import (
    Applied,
    Encoding,
    Proposal,
    ResourceNeed,
    Result,
    Scheduling,
    Session,
    TaskChange,
)
from duly_core.tasks.updates import Changed, ChangeVerdict
from duly_wire.enums import EdgeCondition, FailureKind, Outcome, Priority, SessionOrder
from duly_wire.ids import new_task_id
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import end, write_graph
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA, SECOND

HOUR = timedelta(hours=1)
ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
CALLER = claims.Caller("host", b"p" * 14)


async def change(task_states, task, **what):
    answers, _ = await changes.update_pending(task_states.store, [TaskChange(task.task_id, **what)])
    return answers.get(task.task_id)


async def failed(task_states):
    """A task that waits for its next attempt."""
    task = await task_states.processing()
    result = Result(
        task.task_id,
        task.token,
        Outcome.RETRIABLE_FAILURE,
        failure_kind=FailureKind.CALLBACK,
        retry_after=HOUR,
    )
    await set_results(task_states.store, [result])
    return task


async def work(task_states, priority=Priority.NORMAL):
    """What a host that asks for work gets."""
    pick = claims.Pick(QueueKey(LAMBDA, priority), 10, 0)
    return (await claims.claim_work(task_states.store, [pick], [CALLER], 10, CLAIM_TIMEOUT)).tasks


@pytest.mark.parametrize("rung", ["new", "enqueued", "failed"])
async def test_a_task_that_nobody_runs_takes_a_new_time_priority_and_payload(task_states, clock, rung):
    task = await (failed(task_states) if rung == "failed" else getattr(task_states, rung)())

    answer = await change(
        task_states, task, delay=HOUR, priority=Priority.URGENT, payload=b"[1]", encoding=Encoding.JSON
    )

    row = await task_states.row(task.task_id)
    assert (answer.verdict, answer.status, answer.due_in) == (ChangeVerdict.CHANGED, Status.NEW, HOUR)
    assert (row["status"], row["priority"], row["payload"], row["edits"]) == ("new", 1, b"[1]", 1)
    assert await work(task_states, Priority.URGENT) == []
    await clock.tick(HOUR)
    assert [each.payload for each in await work(task_states, Priority.URGENT)] == [b"[1]"]


async def test_what_is_not_said_stays_as_it_is(task_states, clock):
    task = await task_states.new(payload=b'"as it was"', priority=Priority.LOW, delay=HOUR)
    before = await task_states.row(task.task_id)

    await change(task_states, task, priority=Priority.HIGH)

    after = await task_states.row(task.task_id)
    assert after == before | {"priority": 2, "edits": 1, "has_events": True}


async def test_a_task_that_is_enqueued_is_due_again_at_once_and_its_message_is_refused(
    task_states, enqueued_task
):
    answer = await change(task_states, enqueued_task, payload=b"2", encoding=Encoding.JSON)

    proposal = Proposal(enqueued_task.task_id, b"t" * 16, LAMBDA)
    assert (answer.status, answer.due_in) == (Status.NEW, timedelta())
    assert await claims.claim(task_states.store, [(proposal, "host")], CLAIM_TIMEOUT) == [None]
    due = await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    assert [each.task_id for each in due] == [enqueued_task.task_id]
    (claimed,) = await claims.claim(task_states.store, [(proposal, "host")], CLAIM_TIMEOUT)
    assert claimed.payload == b"2"


@pytest.mark.parametrize("rung", ["claimed", "processing"])
async def test_a_task_that_runs_is_left_alone(task_states, rung):
    task = await getattr(task_states, rung)()
    before = await task_states.row(task.task_id)

    answer = await change(task_states, task, priority=Priority.URGENT, payload=b"2", encoding=Encoding.JSON)

    assert (answer.verdict, answer.status) == (ChangeVerdict.NOT_PENDING, Status(rung))
    assert await task_states.row(task.task_id) == before


async def test_a_task_that_has_ended_is_left_alone_and_one_that_never_was_is_not_answered(task_states):
    task = await task_states.new()
    await tasks.cancel_tasks(task_states.store, [task.task_id])
    unknown = TaskChange(new_task_id().bytes, priority=Priority.LOW)

    answers, _ = await changes.update_pending(
        task_states.store, [TaskChange(task.task_id, priority=Priority.LOW), unknown]
    )

    assert answers == {task.task_id: Changed(ChangeVerdict.NOT_PENDING, Status.CANCELLED)}


async def test_a_payload_beyond_its_lambdas_limit_changes_nothing(task_states):
    await task_states.register(payload_limit=3)
    task = await task_states.new(payload=b"{}")
    before = await task_states.row(task.task_id)

    answer = await change(task_states, task, payload=b"1234", encoding=Encoding.JSON, delay=HOUR)

    assert (answer.verdict, answer.payload_limit) == (ChangeVerdict.PAYLOAD_TOO_LARGE, 3)
    assert await task_states.row(task.task_id) == before


@pytest.mark.parametrize("by_key", [False, True])
async def test_a_repeat_of_the_schedule_of_a_changed_task_is_still_a_repeat(task_states, by_key):
    task = await task_states.new(payload=b"1", idempotency_key="k" if by_key else None)
    for payload in (b"2", b"3"):
        await change(task_states, task, payload=payload, encoding=Encoding.RAW, priority=Priority.HIGH)

    again = await schedule.schedule(task_states.store, [task])
    as_changed = task._replace(payload=b"3", encoding=Encoding.RAW, priority=Priority.HIGH)
    other = await schedule.schedule(task_states.store, [as_changed])

    assert [(each.verdict, each.task_id) for each in again] == [(Scheduling.REPEATED, task.task_id)]
    assert [each.verdict for each in other] == [Scheduling.CONFLICT]


async def test_a_redriven_task_that_was_changed_before_is_claimed_with_what_it_was_changed_to(task_states):
    task = await task_states.new()
    await change(task_states, task, payload=b"2", encoding=Encoding.JSON)
    (claimed,) = await work(task_states)
    await set_results(task_states.store, [Result(task.task_id, claimed.token, Outcome.FATAL_FAILURE)])
    await redrive(task_states.store, [task.task_id])

    assert [each.payload for each in await work(task_states)] == [b"2"]


async def test_a_claim_that_began_before_a_change_runs_what_it_was_changed_to(task_states, dsn):
    """The claim's snapshot is older than the change: it waits for the row, and finds it due all the same."""
    task = await task_states.enqueued(payload=b"old")
    proposal = Proposal(task.task_id, b"t" * 16, LAMBDA)
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "update task_assoc set edits = edits + 1 where task_id = %s", [UUID(bytes=task.task_id)]
        )
        await other.execute(
            "update task set payload = 'new', edits = edits + 1 where task_id = %s",
            [UUID(bytes=task.task_id)],
        )
        claim = asyncio.ensure_future(claims.claim(task_states.store, [(proposal, "host")], CLAIM_TIMEOUT))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

    (claimed,) = await claim

    assert (claimed.payload, claimed.is_stale) == (b"new", False)


async def test_work_that_was_looked_for_before_a_change_runs_what_it_was_changed_to(task_states, dsn):
    """Without a queue the claim waits for nobody: it is stopped here between its snapshot and its pick."""
    task = await task_states.new(payload=b"old")
    task_id = UUID(bytes=task.task_id)
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as other:
        await other.execute("select pg_advisory_lock(7)")
        await other.execute(
            "create or replace function duly_now() returns timestamptz language sql volatile as "
            "'select pg_advisory_xact_lock_shared(7); select clock_timestamp()'"
        )
        looking = asyncio.ensure_future(work(task_states))
        await until_a_statement_waits_for_a_lock(dsn)
        async with other.transaction():
            await other.execute("update task_assoc set edits = edits + 1 where task_id = %s", [task_id])
            await other.execute(
                "update task set payload = 'new', edits = edits + 1 where task_id = %s", [task_id]
            )
        await other.execute("select pg_advisory_unlock(7)")

        claimed = await looking

    assert [(each.payload, each.is_stale) for each in claimed] == [(b"new", False)]


async def test_many_changes_at_once_of_the_same_tasks_all_count(task_states):
    made = [await task_states.new() for _ in range(20)]

    await asyncio.gather(
        *(
            changes.update_pending(
                task_states.store,
                [TaskChange(task.task_id, payload=b"%d" % turn, encoding=Encoding.JSON) for task in order],
            )
            for turn, order in enumerate([made, made[::-1], made[10:] + made[:10]])
        )
    )

    claimed = await work(task_states)
    rows = [await task_states.row(task.task_id) for task in made]
    assert {row["edits"] for row in rows} == {3}
    assert {task.payload for task in claimed} <= {b"0", b"1", b"2"}
    assert len(claimed) == 10


async def test_a_change_that_waits_for_a_claim_changes_the_other_tasks(task_states, dsn):
    """With partitions chosen at run time, this ended the server on Postgres 18 (decision 0017)."""
    needs = (ResourceNeed("database", "", 1),)
    first, second = [await task_states.new(resources=needs) for _ in range(2)]
    asked = [TaskChange(task.task_id, delay=HOUR) for task in (first, second)]

    async with task_states.store.connection() as other, other.transaction():
        await other.execute(
            "update task_assoc set status = 'claimed', token = task_id, holder = 'host', fence = 1, "
            "claimed_at = now(), next_trigger_at = now() + interval '1 h' where task_id = %s",
            [UUID(bytes=first.task_id)],
        )
        changing = asyncio.create_task(changes.update_pending(task_states.store, asked))
        await until_a_statement_waits_for_a_lock(dsn)
    answers, _ = await changing

    assert answers[first.task_id].verdict is ChangeVerdict.NOT_PENDING
    assert answers[second.task_id].verdict is ChangeVerdict.CHANGED
    row = await task_states.row(second.task_id)
    assert row["scheduled_at"] - row["created_at"] > HOUR - SECOND


async def test_a_change_of_the_time_moves_both_ways(task_states, clock):
    task = await task_states.new(delay=HOUR)

    sooner = await change(task_states, task, delay=timedelta())
    moment = (await task_states.row(task.task_id))["created_at"] + 2 * HOUR
    later = await change(task_states, task, scheduled_at=moment)

    assert sooner.due_in == timedelta()
    assert 2 * HOUR - SECOND < later.due_in <= 2 * HOUR
    await clock.tick(2 * HOUR - SECOND)
    assert await work(task_states) == []
    await clock.tick(SECOND)
    assert len(await work(task_states)) == 1


async def test_a_task_that_waits_in_a_session_is_changed_and_goes_on_waiting(task_states):
    await task_states.processing(session=Session("s"))
    waits = await task_states.new(session=Session("s"))

    answer = await change(
        task_states, waits, priority=Priority.LOW, payload=b"[2]", encoding=Encoding.JSON, delay=HOUR
    )

    row = await task_states.row(waits.task_id)
    assert (answer.verdict, answer.status, answer.due_in) == (ChangeVerdict.CHANGED, Status.WAITING, None)
    assert (row["status"], row["priority"], row["payload"]) == ("waiting", Priority.LOW, b"[2]")


async def test_a_task_that_waited_begins_with_its_change_when_it_is_released(task_states):
    head = await task_states.processing(session=Session("s"))
    waits = await task_states.new(session=Session("s"))
    await change(task_states, waits, priority=Priority.LOW, payload=b"[2]", encoding=Encoding.JSON)

    await set_results(task_states.store, [Result(head.task_id, head.token, Outcome.SUCCESS)])

    assert await work(task_states) == []
    (claimed,) = await work(task_states, Priority.LOW)
    assert (claimed.task_id, claimed.payload) == (waits.task_id, b"[2]")


async def test_a_node_that_waits_is_changed_and_is_not_due_before_its_new_time(task_states, store, clock):
    await task_states.register()
    graph = await write_graph(store, {"b": {"a": EdgeCondition.SUCCEEDED}})
    asked = TaskChange(graph.ids["b"], payload=b"[2]", encoding=Encoding.JSON, delay=HOUR)

    answers, _ = await changes.update_pending(store, [asked])

    assert answers[asked.task_id].verdict is ChangeVerdict.CHANGED
    await end(store, list((await graph.claim()).values()))
    assert await graph.claim() == {}
    await clock.tick(HOUR)
    assert (await graph.claim())["b"].payload == b"[2]"


async def test_a_task_that_is_to_end_without_a_run_is_not_changed(task_states, store):
    await task_states.register()
    graph = await write_graph(store, {"b": {"a": EdgeCondition.SUCCEEDED}})
    await end(store, list((await graph.claim()).values()), Outcome.FATAL_FAILURE)

    answers, _ = await changes.update_pending(store, [TaskChange(graph.ids["b"], priority=Priority.LOW)])

    answer = answers[graph.ids["b"]]
    assert (answer.verdict, answer.status) == (ChangeVerdict.NOT_PENDING, Status.WAITING)


async def test_a_payload_that_is_too_large_for_a_task_that_waits_is_refused(task_states):
    await task_states.processing(session=Session("s"))
    waits = await task_states.new(session=Session("s"))

    answer = await change(task_states, waits, payload=b"x" * 300_000, encoding=Encoding.RAW)

    assert answer.verdict is ChangeVerdict.PAYLOAD_TOO_LARGE


async def test_the_time_of_a_task_that_waits_in_order_of_due_times_stays(task_states):
    due = Session("s", order=SessionOrder.DUE)
    await task_states.processing(session=due)
    waits = await task_states.new(session=due)

    refused = await change(task_states, waits, delay=HOUR)
    changed = await change(task_states, waits, priority=Priority.URGENT)

    assert (refused.verdict, changed.verdict) == (ChangeVerdict.ORDERED_BY_TIME, ChangeVerdict.CHANGED)


async def test_a_task_that_is_released_while_it_is_to_be_changed_is_changed_all_the_same(task_states, dsn):
    await task_states.processing(session=Session("s"))
    second = await task_states.new(session=Session("s"))
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from session for update")
        await other.execute(
            "update task_assoc set status = 'new', next_trigger_at = duly_now() where task_id = %s",
            [UUID(bytes=second.task_id)],
        )
        asked = asyncio.ensure_future(change(task_states, second, priority=Priority.URGENT))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

    answer = await asked

    assert (answer.verdict, answer.status) == (ChangeVerdict.CHANGED, Status.NEW)


async def test_a_change_that_waited_for_sessions_does_not_wait_for_a_task_that_ends_since(
    store, task_states, dsn
):
    first, released = (
        await task_states.processing(session=Session("b")),
        await task_states.new(session=Session("b")),
    )
    other, waits = (
        await task_states.processing(session=Session("a")),
        await task_states.new(session=Session("a")),
    )
    asked = [TaskChange(task.task_id, priority=Priority.LOW) for task in (released, waits)]

    async with await psycopg.AsyncConnection.connect(dsn) as holding:
        await holding.execute("select from session where key = '/a' for update")
        changing = asyncio.create_task(changes.update_pending(store, asked))
        await until_a_statement_waits_for_a_lock(dsn)
        await set_results(store, [success(first)])
        (running,) = await work(task_states)
        ending = asyncio.create_task(set_results(store, [success(running), success(other)]))
        await until_a_statement_waits_for_a_lock(dsn, statements=2)
        await holding.commit()
    answers, _ = await changing
    written = await ending

    assert running.task_id == released.task_id
    assert written.verdicts == [Applied.APPLIED] * 2
    assert answers.keys() == {waits.task_id, released.task_id}
    assert answers[waits.task_id].verdict is ChangeVerdict.CHANGED
    assert answers[released.task_id].verdict is ChangeVerdict.NOT_PENDING


def success(task):
    return Result(task.task_id, task.token, Outcome.SUCCESS)


async def test_a_task_that_is_claimed_while_it_is_to_be_changed_is_refused_as_running(task_states, dsn):
    """The statement finds it pending, waits, and finds a row that it may not change: it is asked again."""
    task = await task_states.new()
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "update task_assoc set status = 'claimed', token = gen_random_uuid(), holder = 'host' where task_id = %s",
            [UUID(bytes=task.task_id)],
        )
        asked = asyncio.ensure_future(change(task_states, task, priority=Priority.URGENT))
        await until_a_statement_waits_for_a_lock(dsn)
        await other.commit()

    answer = await asked

    assert (answer.verdict, answer.status) == (ChangeVerdict.NOT_PENDING, Status.CLAIMED)


async def test_an_end_that_waits_for_its_session_does_not_stop_a_change_of_its_tasks(task_states, dsn):
    low, high = sorted(new_task_id().bytes for _ in range(2))
    await task_states.new(task_id=high, session=Session("s"))
    head = await task_states.take()
    await task_states.heartbeat(head)
    await task_states.new(task_id=low, session=Session("s"))
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from session for update")
        result = Result(high, head.token, Outcome.SUCCESS)
        ended = asyncio.ensure_future(set_results(task_states.store, [result]))
        await until_a_statement_waits_for_a_lock(dsn)

        asked = asyncio.ensure_future(
            changes.update_pending(
                task_states.store, [TaskChange(task_id, priority=Priority.URGENT) for task_id in (low, high)]
            )
        )
        await other.commit()
        await ended
        answers, _ = await asked

    assert answers[low].verdict is ChangeVerdict.CHANGED
    assert answers[high].verdict is ChangeVerdict.NOT_PENDING
    assert await task_states.status(low) == "new"


async def test_the_time_of_a_head_in_order_of_due_times_stays_and_the_rest_of_it_can_be_changed(task_states):
    due = Session("s", order=SessionOrder.DUE)
    head = await task_states.new(session=due)
    before = await task_states.row(head.task_id)

    refused = await change(task_states, head, delay=HOUR, priority=Priority.URGENT)
    after = await task_states.row(head.task_id)
    changed = await change(task_states, head, priority=Priority.URGENT)

    assert (refused.verdict, refused.status) == (ChangeVerdict.ORDERED_BY_TIME, Status.NEW)
    assert after == before
    assert changed.verdict is ChangeVerdict.CHANGED
