"""Events: a task waits for one without a holder, receives it once, and none is missed, however sends and waits meet."""

import asyncio
from base64 import b64decode
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

import psycopg
import pytest

from duly_core.events import store as events
from duly_core.events.rules import MOST_GIVEN_AT_ONCE, MOST_KEPT, MOST_RECEIVED, EventWait, RefusedEvent
from duly_core.events.store import EventKeyId, NewEvent, Sent
from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, polling, schedule, updates
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import Applied, AttemptOutcome, NewTask, ResourceNeed, Result, Session, TaskChange
from duly_core.upkeep.retention import Retention
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.database import ask, count, until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA, SECOND

HOUR = timedelta(hours=1)
WEEK = timedelta(days=7)


def waits_for(task, *keys, name="first:1", needs_all=False, timeout=HOUR):
    return Result(
        task.task_id,
        task.token,
        Outcome.WAIT_FOR_EVENT,
        event_wait=EventWait(name, keys, needs_all, timeout),
    )


async def wait(store, task, *keys, **details):
    """End an attempt: its callback waits for events."""
    assert (await set_results(store, [waits_for(task, *keys, **details)])).verdicts == [Applied.APPLIED]


def refuses(task, *keys, refused, reason="expected bool, got str", **details):
    """End an attempt: its callback cannot read what it received of some keys."""
    waiting = waits_for(task, *keys, **details)
    told = tuple(RefusedEvent(key, reason) for key in refused)
    return waiting._replace(event_wait=waiting.event_wait._replace(refused=told))


def event(key, value=b'"yes"', event_id=None, namespace="", sent_by=None):
    return NewEvent(EventKeyId(namespace, key), event_id or new_task_id().bytes.hex(), value, 1, sent_by)


async def send(store, *sent):
    return (await events.send(store, sent, WEEK)).answers


async def time_out(store, clock, ahead=HOUR + SECOND):
    await clock.tick(ahead)
    return await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)


def execute(dsn, statement):
    with psycopg.connect(dsn) as connection:
        connection.execute(statement)


def received(task):
    return [
        (each["wait"], each.get("key"), b64decode(each["value"]) if "value" in each else None)
        for each in task.received or ()
    ]


async def test_a_task_waits_without_a_holder_and_its_next_run_has_the_event(task_states, processing_task):
    store, task = task_states.store, processing_task

    await wait(store, task, "approved")
    waiting = await task_states.row(task.task_id)
    answers = await send(store, event("approved", b'"yes"', sent_by="ann"))
    again = await task_states.take_of(LAMBDA)

    assert (waiting["status"], waiting["parked_on"], waiting["parked_key"]) == (
        "waiting",
        "event:",
        "approved",
    )
    assert (waiting["holder"], waiting["failures"]) == (None, 0)
    assert answers == [Sent(receivers=1)]
    assert received(again) == [("first:1", "approved", b'"yes"')]
    assert (again.task_id, again.fence, again.failures) == (task.task_id, 2, 0)
    assert again.received[0]["sent_by"] == "ann"
    (run,) = (await tasks.get_attempts(store, [task.task_id]))[task.task_id]
    assert (run.outcome, run.failure_kind) == (AttemptOutcome.WAITED, None)


async def test_an_event_that_was_sent_since_the_task_was_scheduled_ends_the_wait_at_once(task_states):
    store = task_states.store
    await send(store, event("approved", b"0"))
    task = await task_states.processing()
    kept = await send(store, event("approved", b"1"), event("approved", b"2"))

    await wait(store, task, "approved")
    first = await task_states.take_of(LAMBDA)
    await wait(store, first, "approved", name="first:2")
    second = await task_states.take_of(LAMBDA)

    assert kept == [Sent(), Sent()]
    assert received(second) == [("first:1", "approved", b"1"), ("first:2", "approved", b"2")]


async def test_a_send_that_is_repeated_is_one_event(task_states, processing_task):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")

    first = await send(store, event("approved", b"1", "my id"), event("approved", b"1", "my id"))
    again = await send(store, event("approved", b"2", "my id"))

    task = await task_states.take_of(LAMBDA)
    await wait(store, task, "approved", name="first:2")
    assert first == [Sent(receivers=1), Sent(is_repeated=True)]
    assert again == [Sent(is_repeated=True)]
    assert await task_states.status(task.task_id) == "waiting"


async def test_each_task_that_waits_for_a_key_receives_its_event(task_states):
    store = task_states.store
    waiting = [await task_states.processing() for _ in range(3)]
    for task in waiting:
        await wait(store, task, "approved")

    answers = await send(store, event("approved"))

    assert answers == [Sent(receivers=3)]
    assert {await task_states.status(task.task_id) for task in waiting} == {"new"}


async def many_that_wait(task_states, number, *keys):
    store, pick = task_states.store, Pick(QueueKey(LAMBDA, Priority.NORMAL), 500, 0)
    await task_states.register()
    new = [NewTask(new_task_id().bytes, LAMBDA, b"{}") for _ in range(number)]
    for first in range(0, number, 500):
        await schedule.schedule(store, new[first : first + 500])
        caller = Caller("host", first.to_bytes(14, "big"))
        held = (await claims.claim_work(store, [pick], [caller], 500, HOUR)).tasks
        await set_results(store, [waits_for(task, *keys) for task in held])
    return [task.task_id for task in new]


async def sender_dies(store, *sent):
    """Send as a sender does that is killed after its first transaction."""
    async with store.connection() as connection, connection.transaction():
        return await events.send_within(connection, sent, WEEK)


async def test_a_send_to_a_crowd_writes_five_hundred_tasks_in_a_transaction(task_states, dsn):
    await many_that_wait(task_states, 2_000, "open")

    sent = await events.send(task_states.store, [event("open")], WEEK)

    written = "select count(*), max(size) from (select count(*) as size from task_assoc where status = 'new' group by xmin::text) as page"
    assert (sent.answers, sent.due) == ([Sent(receivers=2_000)], {LAMBDA})
    assert ask(dsn, written) == [(4, MOST_GIVEN_AT_ONCE)]
    assert count(dsn, "event_wait") == 0
    assert ask(dsn, "select count(*) from event_key where given_to is not null") == [(0,)]


async def test_after_each_page_of_a_crowd_its_lambdas_are_told(task_states, dsn):
    await many_that_wait(task_states, 1_200, "open")
    first = await sender_dies(task_states.store, event("open"))
    told = []

    def tell(due):
        told.append(({*due}, *ask(dsn, "select count(*) from task_assoc where status = 'new'")))

    sent = await events.finish(task_states.store, first, tell)

    assert told == [({LAMBDA}, (1_000,)), ({LAMBDA}, (1_200,))]
    assert sent.answers == [Sent(receivers=1_200)]


async def test_of_each_unfinished_key_one_event_that_was_stored_goes_on(task_states):
    await send(task_states.store, event("open", event_id="before"))
    await many_that_wait(task_states, 501, "open")
    asked = [event("open", event_id="before"), event("other"), event("open"), event("open")]

    parts = events.split(await sender_dies(task_states.store, *asked), asked)
    sent = await events.finish(task_states.store, events.join(parts[2:]))

    assert [each.unfinished - {"/other"} for each in parts] == [set(), set(), {"/open"}, set()]
    assert sent.answers == [Sent(receivers=501), Sent()]


@pytest.mark.parametrize("goes_on", ["a repeat", "the Store Consumer", "the next event"])
async def test_what_a_sender_that_died_did_not_give_is_given_once_to_the_rest(task_states, dsn, goes_on):
    store = task_states.store
    await many_that_wait(task_states, 1_200, "open")
    first = event("open", b"1")

    died = await sender_dies(store, first)
    between = ask(dsn, "select count(*) from task_assoc where status = 'new'")
    if goes_on == "a repeat":
        assert await send(store, first) == [Sent(is_repeated=True)]
    elif goes_on == "the next event":
        assert await send(store, event("open", b"2")) == [Sent()]
    else:
        found = await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)
        assert found.released == {LAMBDA}

    assert died.answers == [Sent(receivers=MOST_GIVEN_AT_ONCE)]
    assert between == [(MOST_GIVEN_AT_ONCE,)]
    got = "select count(*), min(jsonb_array_length(received)), max(jsonb_array_length(received)), max(received -> 0 ->> 'value') from task"
    assert ask(dsn, got) == [(1_200, 1, 1, "MQ==")]
    assert ask(dsn, "select count(*) from task_assoc where status = 'new'") == [(1_200,)]
    assert ask(dsn, "select count(*) from event_key where given_to is not null") == [(0,)]


async def test_a_task_that_waits_again_while_an_event_is_given_to_others_gets_it_once(task_states):
    store = task_states.store
    await many_that_wait(task_states, 501, "open")
    await sender_dies(store, event("open", b"1"))
    pick, caller = Pick(QueueKey(LAMBDA, Priority.NORMAL), 1, 0), Caller("host", bytes(14))
    (task,) = (await claims.claim_work(store, [pick], [caller], 1, HOUR)).tasks

    await wait(store, task, "open", name="first:2")
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)
    between = await task_states.status(task.task_id)
    answers = await send(store, event("open", b"2"))

    assert (received(task), between) == ([("first:1", "open", b"1")], "waiting")
    assert answers == [Sent(receivers=1)]


async def test_the_first_of_several_keys_ends_the_wait_and_the_other_event_is_for_the_next_wait(
    task_states, processing_task
):
    store, task = task_states.store, processing_task
    await wait(store, task, "paid", "refused")

    both = await send(store, event("refused", b"1"), event("paid", b"2"))
    task = await task_states.take_of(LAMBDA)
    await wait(store, task, "paid", "refused", name="first:2")
    task = await task_states.take_of(LAMBDA)

    assert both == [Sent(receivers=1), Sent()]
    assert received(task) == [("first:1", "refused", b"1"), ("first:2", "paid", b"2")]


async def test_a_wait_for_all_ends_with_the_last_of_its_keys(task_states, processing_task):
    store, task = task_states.store, processing_task
    await send(store, event("legal", b"1"))
    await wait(store, task, "legal", "finance", "board", needs_all=True)

    one = await send(store, event("board", b"2"), event("board", b"3"))
    between = await task_states.status(task.task_id)
    last = await send(store, event("finance", b"4"))
    task = await task_states.take_of(LAMBDA)

    assert (one, between, last) == ([Sent(receivers=1), Sent()], "waiting", [Sent(receivers=1)])
    assert received(task) == [
        ("first:1", "legal", b"1"),
        ("first:1", "board", b"2"),
        ("first:1", "finance", b"4"),
    ]


async def test_a_wait_whose_time_is_over_runs_the_task_and_charges_nothing(
    task_states, processing_task, clock
):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")

    early = await time_out(store, clock, HOUR - SECOND)
    late = await time_out(store, clock, 2 * SECOND)
    sent = await send(store, event("approved"))
    task = await task_states.take_of(LAMBDA)

    assert (early.event_waits, late.event_waits, late.released) == (0, 1, {LAMBDA})
    assert sent == [Sent()]
    assert [(each["wait"], each["timed_out"]) for each in task.received] == [("first:1", True)]
    assert (task.failures, task.crashes) == (0, 0)


async def test_no_tenant_waits_for_the_events_of_another(task_states):
    store = task_states.store
    for name in ("a/x", "b/x"):
        await task_states.register(name)
    of_a, of_b = [await task_states.processing(lambda_name=name) for name in ("a/x", "b/x")]
    for task in (of_a, of_b):
        await wait(store, task, "approved")

    answers = await send(store, event("approved", namespace="b"), event("approved"))

    assert answers == [Sent(receivers=1), Sent()]
    assert await task_states.status(of_a.task_id) == "waiting"
    assert await task_states.status(of_b.task_id) == "new"


async def test_a_key_keeps_so_many_events_and_refuses_more(task_states):
    store = task_states.store
    await send(store, *(event("approved") for _ in range(MOST_KEPT - 1)))

    answers = await send(store, event("approved"), event("approved"), event("other"))

    assert answers == [Sent(), Sent(is_refused=True), Sent()]


async def test_a_task_that_is_to_be_cancelled_ends_in_place_of_a_wait(task_states):
    store = task_states.store
    kept, parked = [await task_states.processing() for _ in range(2)]
    await send(store, event("approved"))
    await tasks.cancel_tasks(store, [kept.task_id, parked.task_id])

    await wait(store, kept, "approved")
    await wait(store, parked, "other")

    assert await task_states.status(kept.task_id) == "cancelled"
    assert await task_states.status(parked.task_id) == "cancelled"


async def test_a_task_that_waits_can_be_cancelled_and_its_event_reaches_nobody(task_states, processing_task):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")

    await tasks.cancel_tasks(store, [task.task_id])
    answers = await send(store, event("approved"))

    assert await task_states.status(task.task_id) == "cancelled"
    assert answers == [Sent()]


@pytest.mark.parametrize("needs_all", [False, True])
async def test_sends_and_waits_that_meet_miss_no_event(task_states, needs_all):
    store = task_states.store
    waiting = [await task_states.processing() for _ in range(12)]
    await wait(store, waiting[0], "a", "b", needs_all=needs_all)

    await asyncio.gather(
        *(set_results(store, [waits_for(task, "a", "b", needs_all=needs_all)]) for task in waiting[1:]),
        *(send(store, event(key, key.encode())) for key in ("a", "b")),
    )

    runs = {each.task_id for each in (await task_states.end_all_that_may_run())}
    assert runs == {task.task_id for task in waiting}


async def test_a_redrive_keeps_what_was_received_and_waits_again_for_what_did_not_come(
    task_states, processing_task, clock
):
    store, task = task_states.store, processing_task
    await wait(store, task, "manager")
    await send(store, event("manager", b"1"))
    task = await task_states.take_of(LAMBDA)
    await wait(store, task, "director", name="first:2")
    await time_out(store, clock)
    task = await task_states.take_of(LAMBDA)
    await task_states.fail(task)

    await dead_letters.redrive(store, [task.task_id])
    task = await task_states.take_of(LAMBDA)

    assert received(task) == [("first:1", "manager", b"1")]


async def test_a_session_goes_on_when_the_task_that_waits_has_ended(task_states):
    store = task_states.store
    first = await task_states.processing(session=Session("a"))
    second = await task_states.new(session=Session("a"))

    await wait(store, first, "approved")
    between = await task_states.end_all_that_may_run()
    await send(store, event("approved"))
    ends = [await task_states.end_all_that_may_run() for _ in range(2)]

    assert between == []
    assert [[task.task_id for task in each] for each in ends] == [[first.task_id], [second.task_id]]


async def test_a_task_that_waits_holds_no_units(task_states):
    store = task_states.store
    await whole.put_resource(store, ResourceLimit("crane", 1))
    first = await task_states.processing(resources=(ResourceNeed("crane"),))
    second = await task_states.new(resources=(ResourceNeed("crane"),))

    await wait(store, first, "approved")
    ran = await task_states.end_all_that_may_run()

    assert [task.task_id for task in ran] == [second.task_id]


async def test_a_graph_that_fails_fast_drops_the_node_that_waits_and_its_event_reaches_nobody(task_states):
    store = task_states.store
    graph = await write_graph(store, {"waits": {}, "fails": {}}, fail_fast=True)
    nodes = await graph.claim()
    await wait(store, nodes["waits"], "approved")

    await task_states.fail(nodes["fails"])
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)
    answers = await send(store, event("approved"))

    assert (await graph.statuses())["waits"] == "dropped"
    assert answers == [Sent()]


async def test_a_wait_ends_with_the_expiry_of_its_task(task_states, clock):
    store = task_states.store
    expires_at = datetime.now(UTC) + timedelta(minutes=5)
    task = await task_states.processing(expires_at=expires_at)
    await wait(store, task, "approved")

    await time_out(store, clock, timedelta(minutes=6))
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)

    assert await task_states.status(task.task_id) == "fatal_failure"


async def test_what_waits_is_not_changed(task_states, processing_task):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")

    change = TaskChange(task.task_id, priority=Priority.URGENT)
    (changed,) = (await updates.update_pending(store, [change])).answers.values()

    assert changed.verdict is updates.ChangeVerdict.NOT_PENDING


async def test_a_task_that_received_as_much_as_one_may_fails_for_good(task_states, dsn, processing_task):
    store, task = task_states.store, processing_task
    execute(
        dsn,
        "update task set received = (select jsonb_agg(jsonb_build_object('wait', 'x', 'key', 'k', 'seq', 0,"
        " 'encoding', 1, 'value', '', 'sent_at', 0)) from generate_series(1, 100))",
    )

    await wait(store, task, "approved")

    row = await task_states.row(task.task_id)
    assert (row["status"], row["failure_kind"]) == ("fatal_failure", FailureKind.BAD_RESULT)
    assert "as many events as one may" in row["failure_message"]


async def test_events_leave_after_their_time_and_waits_and_keys_with_their_tasks(
    task_states, dsn, clock, processing_task
):
    store = task_states.store
    other = await task_states.processing()
    for task in (processing_task, other):
        await wait(store, task, "approved", timeout=2 * WEEK)
    await send(store, event("other"))
    await tasks.cancel_tasks(store, [other.task_id])
    await clock.tick(WEEK + HOUR)

    await Retention(store, WEEK, WEEK, timedelta(days=1)).run_once()

    assert count(dsn, "event") == 0
    assert ask(dsn, "select task_id::text from event_wait") == [(str(UUID(bytes=processing_task.task_id)),)]
    assert ask(dsn, "select key, events from event_key") == [("/approved", 0)]


async def test_numbers_of_events_grow_though_the_key_was_forgotten(task_states, dsn, processing_task):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")
    await send(store, event("approved", b"1"))
    execute(dsn, "delete from event; delete from event_key")
    task = await task_states.take_of(LAMBDA)
    await wait(store, task, "approved", name="first:2")

    answers = await send(store, event("approved", b"2"))

    assert answers == [Sent(receivers=1)]


async def test_with_a_queue_beside_the_store_the_reference_is_sent_again(task_states, processing_task):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")

    await send(store, event("approved"))
    again = await task_states.take()

    assert received(again) == [("first:1", "approved", b'"yes"')]


@pytest.fixture
def holding(dsn):
    """A transaction of somebody else that holds rows until it is left."""

    @asynccontextmanager
    async def hold(statement, *parameters):
        async with await psycopg.AsyncConnection.connect(dsn) as connection:
            await connection.execute(statement, parameters)
            yield

    return hold


ROW = "select from task_assoc where task_id = %s for update"


async def test_a_wait_that_meets_a_send_under_way_sees_its_event(dsn, task_states, processing_task, holding):
    store, task = task_states.store, processing_task
    sent = (
        "with locked as (insert into event_key (key) values ('/approved') returning key) insert into event "
        "(key, event_id, encoding, value, sent_at, expires_at) select key, '1', 1, '1', duly_now(), 'infinity' from locked"
    )

    async with holding(sent):
        waiting = asyncio.create_task(wait(store, task, "approved"))
        await until_a_statement_waits_for_a_lock(dsn)
    await waiting

    assert received(await task_states.take_of(LAMBDA)) == [("first:1", "approved", b"1")]


async def test_a_send_that_meets_a_wait_under_way_ends_it(dsn, task_states, processing_task, holding):
    store, task = task_states.store, processing_task

    async with holding(ROW, UUID(bytes=task.task_id)):
        waiting = asyncio.create_task(wait(store, task, "approved"))
        await until_a_statement_waits_for_a_lock(dsn)
        sending = asyncio.create_task(send(store, event("approved")))
        await until_a_statement_waits_for_a_lock(dsn, 2)
    await waiting

    assert await sending == [Sent(receivers=1)]
    assert await task_states.status(task.task_id) == "new"


async def test_two_sends_of_all_that_a_task_needs_end_its_wait_though_neither_sees_the_other(
    dsn, task_states, processing_task, holding
):
    store, task = task_states.store, processing_task
    await wait(store, task, "legal", "finance", needs_all=True)

    async with holding(ROW, UUID(bytes=task.task_id)):
        sending = [asyncio.create_task(send(store, event(key))) for key in ("legal", "finance")]
        await until_a_statement_waits_for_a_lock(dsn, 2)
    answers = await asyncio.gather(*sending)

    assert answers == [[Sent(receivers=1)], [Sent(receivers=1)]]
    assert await task_states.status(task.task_id) == "new"


async def test_a_cancel_and_a_send_that_meet_end_the_task_once(dsn, task_states, processing_task, holding):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")

    async with holding(ROW, UUID(bytes=task.task_id)):
        both = [
            asyncio.create_task(tasks.cancel_tasks(store, [task.task_id])),
            asyncio.create_task(send(store, event("approved"))),
        ]
        await until_a_statement_waits_for_a_lock(dsn, 2)
    await asyncio.gather(*both)

    assert await task_states.status(task.task_id) == "cancelled"


async def test_a_refused_event_is_put_aside_and_the_wait_ends_when_it_would_have_ended(task_states, clock):
    store, task = task_states.store, await task_states.processing()
    await wait(store, task, "approved")
    before = (await task_states.row(task.task_id))["next_trigger_at"]
    await clock.tick(HOUR / 2)
    await send(store, event("approved", b'"secret"', sent_by="ann"))
    task = await task_states.take_of(LAMBDA)

    refusal = refuses(task, "approved", refused=["approved"])
    first = await set_results(store, [refusal])
    again = await set_results(store, [refusal])
    waiting = await task_states.row(task.task_id)
    await send(store, event("approved", b"true"))
    after = await task_states.take_of(LAMBDA)

    assert (first.verdicts, again.verdicts) == ([Applied.APPLIED], [Applied.ALREADY_APPLIED])
    assert (waiting["status"], waiting["next_trigger_at"]) == ("waiting", before)
    assert received(after)[1:] == [("first:1", "approved", b"true")]
    assert after.received[0]["refused"]
    assert (after.failures, after.crashes) == (0, 0)
    assert "secret" not in str(after.received) + str(waiting)


async def test_a_refusal_is_in_the_history_and_in_the_audit_log_without_the_value(task_states, dsn):
    store, task = task_states.store, await task_states.processing()
    await wait(store, task, "approved")
    await send(store, event("approved", b'"secret"', sent_by="ann"))
    task = await task_states.take_of(LAMBDA)

    await set_results(store, [refuses(task, "approved", refused=["approved"])])

    ((events,),) = ask(dsn, "select events from task_assoc")
    noted = [each for each in events if each["kind"] == "event_refused"]
    ((actor, method, request),) = ask(dsn, "select actor, method, request from audit_event")
    assert [(each["about"], each["by"]) for each in noted] == [("approved: expected bool, got str", "ann")]
    assert (actor, method) == ("callback", "HscService/RefuseEvent")
    assert '"key": "approved"' in request
    assert '"sent_by": "ann"' in request
    assert "expected bool" not in request


async def test_a_flood_of_wrong_values_ends_no_task_and_leaves_one_mark_a_key(task_states, processing_task):
    store, task = task_states.store, processing_task
    await send(store, *(event("approved", b'"x"') for _ in range(MOST_RECEIVED + 5)))
    await wait(store, task, "approved")
    for _ in range(MOST_RECEIVED + 4):
        task = await task_states.take_of(LAMBDA)
        await set_results(store, [refuses(task, "approved", refused=["approved"])])

    task = await task_states.take_of(LAMBDA)

    assert [each.get("refused") for each in task.received] == [True, None]
    assert task.failures == 0


async def test_what_a_callback_refuses_and_never_received_changes_nothing(task_states, processing_task):
    store, task = task_states.store, processing_task
    await wait(store, task, "approved")
    await send(store, event("approved", b"1"))
    task = await task_states.take_of(LAMBDA)

    forged = refuses(task, "approved", refused=["approved"])._replace(token=b"f" * 16)
    lost = await set_results(store, [forged])
    await set_results(store, [refuses(task, "other", refused=["other"], name="first:2")])
    await send(store, event("other", b"2"))
    after = await task_states.take_of(LAMBDA)

    assert lost.verdicts == [Applied.LOST]
    assert received(after) == [("first:1", "approved", b"1"), ("first:2", "other", b"2")]


async def test_of_all_keys_one_is_refused_and_the_others_stay_received(task_states, processing_task):
    store, task = task_states.store, processing_task
    await wait(store, task, "a", "b", name="all:1", needs_all=True)
    await send(store, event("a", b"1"), event("b", b"2"))
    task = await task_states.take_of(LAMBDA)

    await set_results(store, [refuses(task, "b", refused=["b"], name="all:1", needs_all=True)])
    await send(store, event("b", b"3"))
    after = await task_states.take_of(LAMBDA)

    assert {(wait, key, value) for wait, key, value in received(after) if wait} == {
        ("all:1", "a", b"1"),
        ("all:1", "b", b"3"),
    }


async def test_a_task_that_received_as_much_as_one_may_still_refuses_the_last(task_states, processing_task):
    store, task = task_states.store, processing_task
    await send(store, *(event("approved", b"1") for _ in range(MOST_RECEIVED)))
    for number in range(MOST_RECEIVED):
        await wait(store, task, "approved", name=f"first:{number}")
        task = await task_states.take_of(LAMBDA)

    last = refuses(task, "approved", refused=["approved"], name=f"first:{MOST_RECEIVED - 1}")
    await set_results(store, [last])

    assert await task_states.status(task.task_id) == "waiting"


async def test_what_a_task_refuses_and_never_received_gives_it_no_room(task_states, processing_task):
    store, task = task_states.store, processing_task
    await send(store, *(event("approved", b"1") for _ in range(MOST_RECEIVED)))
    for number in range(MOST_RECEIVED):
        await wait(store, task, "approved", name=f"first:{number}")
        task = await task_states.take_of(LAMBDA)

    forged = refuses(task, "other", refused=["other"], name="first:more")
    await set_results(store, [forged])

    assert await task_states.status(task.task_id) == "fatal_failure"
