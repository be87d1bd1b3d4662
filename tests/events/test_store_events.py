"""Events: a task waits for one without a holder, receives it once, and none is missed, however sends and waits meet."""

import asyncio
from base64 import b64decode
from datetime import timedelta

import pytest

from duly_core.events import store as events
from duly_core.events.rules import MOST_KEPT, EventWait
from duly_core.events.store import EventKeyId, NewEvent, Sent
from duly_core.results.store import set_results
from duly_core.tasks import polling
from duly_core.tasks import store as tasks
from duly_core.tasks.task import Applied, AttemptOutcome, Result
from duly_wire.enums import Outcome
from duly_wire.ids import new_task_id
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


def event(key, value=b'"yes"', event_id=None, namespace="", sent_by=None):
    return NewEvent(EventKeyId(namespace, key), event_id or new_task_id().bytes.hex(), value, 1, sent_by)


async def send(store, *sent):
    return (await events.send(store, sent, WEEK)).answers


async def time_out(store, clock, ahead=HOUR + SECOND):
    await clock.tick(ahead)
    return await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)


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
