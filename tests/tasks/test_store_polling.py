"""The Store Consumer's side of the store: what is due, in which order, and when to look again."""

import asyncio
from collections import Counter
from datetime import timedelta

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import polling
from duly_wire.enums import Priority
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA, SECOND

NORMAL = QueueKey(LAMBDA, Priority.NORMAL)
ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}
OTHER = "report.make"


def ids(tasks):
    return [task.task_id for task in tasks]


def about(one, other):
    return abs(one - other) < SECOND / 2


async def enqueue(task_states, room=ROOM):
    return await polling.enqueue(task_states.store, room, ENQUEUE_TIMEOUT)


async def send_again(task_states, room=ROOM):
    return await polling.handle_timeouts(task_states.store, room, ENQUEUE_TIMEOUT, 100)


async def test_what_is_due_is_enqueued_and_watched_from_then_on(task_states):
    due = await task_states.new(priority=Priority.HIGH)
    await task_states.new(delay=SECOND * 60)

    enqueued = await enqueue(task_states)

    row = await task_states.row(due.task_id)
    assert [(task.task_id, task.queue) for task in enqueued] == [
        (due.task_id, QueueKey(LAMBDA, Priority.HIGH))
    ]
    assert row["status"] == "enqueued"
    assert about(row["next_trigger_at"], row["created_at"] + ENQUEUE_TIMEOUT)
    assert await enqueue(task_states) == []


async def test_a_task_is_enqueued_when_its_time_comes_and_not_before(task_states, clock):
    task = await task_states.new(delay=timedelta(hours=1))
    await clock.tick(timedelta(minutes=59))
    assert await enqueue(task_states) == []

    await clock.tick(timedelta(minutes=1))

    assert ids(await enqueue(task_states)) == [task.task_id]


async def test_no_more_than_the_room_is_enqueued_the_longest_due_first(task_states, clock):
    late, later, latest = [await task_states.new(delay=SECOND * n) for n in (3, 1, 2)]
    await clock.tick(10 * SECOND)

    first = await enqueue(task_states, {NORMAL: 2})
    second = await enqueue(task_states, {NORMAL: 2})

    assert set(ids(first)) == {later.task_id, latest.task_id}
    assert ids(second) == [late.task_id]


async def test_each_queue_has_room_of_its_own(task_states):
    await task_states.register(OTHER)
    tasks = [
        await task_states.new(lambda_name=name, priority=priority)
        for name in (LAMBDA, OTHER)
        for priority in (Priority.URGENT, Priority.LOW)
        for _ in range(3)
    ]
    room = {QueueKey(LAMBDA, Priority.URGENT): 1, QueueKey(OTHER, Priority.LOW): 2}

    enqueued = await enqueue(task_states, room)

    assert Counter(task.queue for task in enqueued) == room
    assert set(ids(enqueued)) <= set(ids(tasks))
    assert await enqueue(task_states, {}) == []


async def test_two_consumers_share_the_backlog_without_overlap(task_states, dsn):
    tasks = [await task_states.new() for _ in range(120)]
    async with Store(StoreSettings(dsn=dsn)) as other:
        rounds = [
            polling.enqueue(store, {NORMAL: 20}, ENQUEUE_TIMEOUT) for store in (task_states.store, other) * 6
        ]

        taken = [task for batch in await asyncio.gather(*rounds) for task in batch]

    taken += await enqueue(task_states)  # rows that both passed over while the other held them
    assert Counter(ids(taken)) == Counter(ids(tasks))


async def test_a_consumer_passes_over_rows_that_another_holds(task_states, dsn):
    held, free = await task_states.new(), await task_states.new()
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "select from task_assoc where task_id = encode(%s, 'hex')::uuid for update", [held.task_id]
        )

        assert ids(await enqueue(task_states)) == [free.task_id]

    assert ids(await enqueue(task_states)) == [held.task_id]


async def test_a_message_that_nobody_answered_is_sent_again_after_its_time(task_states, clock, enqueued_task):
    assert (await send_again(task_states)).again == []
    await clock.tick(ENQUEUE_TIMEOUT + SECOND)

    silence = await send_again(task_states)

    assert ids(silence.again) == [enqueued_task.task_id]
    assert (silence.reclaimed, silence.ended) == (0, 0)
    row = await task_states.row(enqueued_task.task_id)
    assert (row["status"], row["crashes"]) == ("enqueued", 0)
    assert about(row["next_trigger_at"], row["created_at"] + 2 * ENQUEUE_TIMEOUT + SECOND)
    assert (await send_again(task_states)).again == []


async def test_a_message_in_a_full_queue_is_not_sent_again_and_is_looked_at_later(
    task_states, clock, enqueued_task
):
    await clock.tick(ENQUEUE_TIMEOUT + SECOND)

    assert (await send_again(task_states, room={})).again == []
    assert (await send_again(task_states)).again == []  # it stands behind nobody's rows meanwhile

    await clock.tick(ENQUEUE_TIMEOUT + SECOND)
    assert ids((await send_again(task_states)).again) == [enqueued_task.task_id]


async def test_messages_are_sent_again_up_to_each_queues_room(task_states, clock):
    await task_states.register(OTHER)
    for name in (LAMBDA, OTHER):
        for _ in range(4):
            await task_states.enqueued(lambda_name=name)
    await clock.tick(ENQUEUE_TIMEOUT + SECOND)
    room = {NORMAL: 1, QueueKey(OTHER, Priority.NORMAL): 3}

    silence = await send_again(task_states, room)

    assert Counter(task.queue for task in silence.again) == room


async def test_what_could_not_be_sent_is_put_back_within_the_delay_spread_out(task_states, clock):
    tasks = [await task_states.new() for _ in range(40)]
    await enqueue(task_states)

    await polling.put_back(task_states.store, ids(tasks), 5 * SECOND)

    rows = [await task_states.row(task.task_id) for task in tasks]
    waits = [row["next_trigger_at"] - min(row["created_at"] for row in rows) for row in rows]
    assert {row["status"] for row in rows} == {"new"}
    assert max(waits) < 8 * SECOND
    assert max(waits) - min(waits) > SECOND
    await clock.tick(8 * SECOND)
    assert set(ids(await enqueue(task_states))) == set(ids(tasks))


@pytest.mark.parametrize("rung", ["new", "claimed", "processing"])
async def test_putting_back_touches_only_what_is_enqueued(task_states, rung):
    task = await getattr(task_states, rung)()
    before = await task_states.row(task.task_id)

    await polling.put_back(task_states.store, [task.task_id], SECOND)

    assert await task_states.row(task.task_id) == before


async def test_each_queue_says_when_it_has_something_due_next(task_states, clock):
    await task_states.new(priority=Priority.HIGH, delay=90 * SECOND)
    await task_states.new(priority=Priority.HIGH, delay=60 * SECOND)
    await task_states.new(priority=Priority.LOW)
    await clock.tick(10 * SECOND)
    await task_states.enqueued(priority=Priority.URGENT)
    await task_states.new(priority=Priority.LOW)

    ahead = await polling.next_triggers(task_states.store, list(ROOM), 55 * SECOND)

    assert set(ahead) == {QueueKey(LAMBDA, Priority.HIGH), QueueKey(LAMBDA, Priority.LOW)} or set(ahead) == {
        QueueKey(LAMBDA, Priority.HIGH)
    }
    assert about(ahead[QueueKey(LAMBDA, Priority.HIGH)], 50 * SECOND)
    sooner = await polling.next_triggers(task_states.store, list(ROOM), 40 * SECOND)
    assert QueueKey(LAMBDA, Priority.HIGH) not in sooner


async def test_the_next_silence_is_that_of_the_row_whose_time_passes_first(task_states, clock):
    assert await polling.next_timeout(task_states.store) is None
    await task_states.new()
    assert await polling.next_timeout(task_states.store) is None

    await task_states.enqueued()
    assert about(await polling.next_timeout(task_states.store), ENQUEUE_TIMEOUT)
    await task_states.claimed()
    assert about(await polling.next_timeout(task_states.store), CLAIM_TIMEOUT)
    await clock.tick(CLAIM_TIMEOUT + 5 * SECOND)
    assert about(await polling.next_timeout(task_states.store), -5 * SECOND)


async def test_a_task_that_expires_is_what_is_to_be_looked_at_next(task_states):
    created_at = (await task_states.row((await task_states.new()).task_id))["created_at"]
    await task_states.new(delay=timedelta(hours=1), expires_at=created_at + 30 * SECOND)

    assert about(await polling.next_timeout(task_states.store), 30 * SECOND)
