"""What is due goes into the queue that is in the store in the very statement that enqueues it."""

import pytest

from duly.ids import new_task_id
from duly_core.queues.message import MARK, SPREAD, batches, unpack
from duly_core.queues.port import MAX_REFERENCES
from duly_core.routing import Priority, QueueKey
from duly_core.store.pool import fetch
from duly_core.store.schedule import schedule
from duly_core.store.statements import TRANSITIONS
from duly_core.store.trigger import Packing, Sent, enqueue, enqueue_and_send
from duly_core.task import NewTask
from tests.fixtures.ladder import LAMBDA, SECOND

QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
URGENT = QueueKey(LAMBDA, Priority.URGENT)
PACKING = Packing(MARK, MAX_REFERENCES, SPREAD)
PARAMETERS = {
    "lambdas": [LAMBDA],
    "priorities": [int(QUEUE.priority)],
    "room": [10],
    "enqueue_timeout": 60 * SECOND,
    "mark": MARK,
    "most": MAX_REFERENCES,
    "messages": SPREAD,
}


async def scheduled(store, count, priority=Priority.NORMAL, delay=None):
    tasks = [NewTask(new_task_id().bytes, LAMBDA, b"1", priority=priority, delay=delay) for _ in range(count)]
    await schedule(store, tasks)
    return [task.task_id for task in tasks]


async def messages(store):
    """(queue, ids, references counted) of every message."""
    async with store.connection() as connection:
        cursor = await connection.execute(
            "select lambda, priority, body, reference_count from queue_message order by message_id"
        )
        return [
            (QueueKey(row[0], Priority(row[1])), unpack(row[2]), row[3]) for row in await cursor.fetchall()
        ]


@pytest.mark.parametrize("count", [1, 8, 9, 100, 850])
async def test_references_are_packed_as_the_queue_itself_packs_them(ladder, count):
    ids = await scheduled(ladder.store, count)

    sent = await enqueue_and_send(ladder.store, {QUEUE: 2_000}, 60 * SECOND, PACKING)

    packed = await messages(ladder.store)
    assert sent.references == {QUEUE: count}
    assert sorted(task_id for _, task_ids, _ in packed for task_id in task_ids) == sorted(ids)
    assert [len(task_ids) for _, task_ids, _ in packed] == [references for *_, references in packed]
    sizes = sorted(len(each.task_ids) for each in batches({QUEUE: ids}))
    assert sorted(len(task_ids) for _, task_ids, _ in packed) == sizes


async def test_each_queue_gets_its_own_and_no_more_than_its_room(ladder):
    normal = await scheduled(ladder.store, 3)
    urgent = await scheduled(ladder.store, 3, Priority.URGENT)

    sent = await enqueue_and_send(ladder.store, {QUEUE: 2, URGENT: 10}, 60 * SECOND, PACKING)

    packed = await messages(ladder.store)
    assert sent.references == {QUEUE: 2, URGENT: 3}
    assert {task_id for key, ids, _ in packed if key == URGENT for task_id in ids} == set(urgent)
    assert {task_id for key, ids, _ in packed if key == QUEUE for task_id in ids} < set(normal)


async def test_what_was_sent_is_enqueued_and_is_not_sent_again(ladder):
    await scheduled(ladder.store, 5)
    await enqueue_and_send(ladder.store, {QUEUE: 10}, 60 * SECOND, PACKING)

    assert await enqueue_and_send(ladder.store, {QUEUE: 10}, 60 * SECOND, PACKING) == Sent({}, {})
    assert await enqueue(ladder.store, {QUEUE: 10}, 60 * SECOND) == []
    assert len(await messages(ladder.store)) == 5


async def test_it_tells_how_long_until_a_queue_has_something_due_again(ladder):
    await scheduled(ladder.store, 3)
    await scheduled(ladder.store, 1, delay=50 * SECOND)
    await scheduled(ladder.store, 1, delay=90 * SECOND)

    sent = await enqueue_and_send(ladder.store, {QUEUE: 10, URGENT: 10}, 60 * SECOND, PACKING)

    assert sent.ahead.keys() == {QUEUE}
    assert 40 * SECOND < sent.ahead[QUEUE] <= 50 * SECOND


async def test_a_queue_whose_room_was_filled_may_have_more_that_is_due(ladder):
    await scheduled(ladder.store, 3)
    await scheduled(ladder.store, 1, delay=50 * SECOND)

    sent = await enqueue_and_send(ladder.store, {QUEUE: 3}, 60 * SECOND, PACKING)

    assert sent.ahead == {QUEUE: 0 * SECOND}


async def test_a_crash_may_take_it_back_and_so_its_commit_does_not_wait_for_the_disk(ladder):
    async with ladder.store.connection() as connection:
        await connection.execute("set synchronous_commit = on")  # the tests' server has it off
        async with connection.transaction():
            await fetch(connection, TRANSITIONS["enqueue_and_send"], PARAMETERS)
            within = await (await connection.execute("show synchronous_commit")).fetchone()
        after = await (await connection.execute("show synchronous_commit")).fetchone()

    assert (within, after) == (("off",), ("on",))
