"""How many references each queue may be sent, and whose depth is asked for: on queues in memory."""

from datetime import timedelta
from typing import cast

import pytest

from duly_core.errors import QueueUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.queue_room import QueueRoom
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import Priority
from tests.fixtures.memory_queue import MemoryQueues, MemorySender
from tests.fixtures.queues import message

LOW, NORMAL, HIGH = (QueueKey("mail.send", each) for each in (Priority.LOW, Priority.NORMAL, Priority.HIGH))
FIRST_BOUND = 1_000
"""How deep a queue may be before anything is known of its hosts."""
BATCH = 2_000


@pytest.fixture
async def queues() -> MemoryQueues:
    return MemoryQueues(timedelta(seconds=30))


@pytest.fixture
async def room(queues: MemoryQueues) -> QueueRoom:
    """The room of three queues of one lambda, none of them looked at yet."""
    live_config = LiveConfig(cast("Store", None), StoreConsumerSettings(batch=BATCH))
    live_config.queues = [LOW, NORMAL, HIGH]
    return QueueRoom(MemorySender(queues), live_config)


async def test_what_a_queue_holds_leaves_less_room(queues: MemoryQueues, room: QueueRoom) -> None:
    queues.add(message(NORMAL, references=300))

    assert await room.for_due(0) == {HIGH: FIRST_BOUND, NORMAL: FIRST_BOUND - 300, LOW: FIRST_BOUND}


async def test_best_priorities_come_first(room: QueueRoom) -> None:
    assert list(await room.for_due(0)) == [HIGH, NORMAL, LOW]


async def test_a_full_queue_is_left_out(queues: MemoryQueues, room: QueueRoom) -> None:
    queues.add(message(HIGH, references=FIRST_BOUND))

    assert HIGH not in await room.for_due(0)


async def test_each_of_many_queues_gets_its_part_of_what_one_statement_takes(room: QueueRoom) -> None:
    room._live_config.queues = [QueueKey(f"many.{number}", Priority.NORMAL) for number in range(100)]

    assert set((await room.for_due(0)).values()) == {100}


async def test_a_lost_reference_has_room_in_a_full_queue(queues: MemoryQueues, room: QueueRoom) -> None:
    queues.add(message(HIGH, references=FIRST_BOUND))

    assert (await room.for_lost(0, 500, {}))[HIGH] == 1


async def test_what_was_just_sent_takes_no_room_from_lost_references(room: QueueRoom) -> None:
    await room.for_due(0)
    room.limits.sent(NORMAL, FIRST_BOUND, 0)

    assert await room.for_lost(0, 500, {NORMAL: FIRST_BOUND}) == {LOW: 500, NORMAL: 500, HIGH: 500}


async def test_queues_that_do_not_tell_their_depth_have_no_room_but_for_lost_references(
    queues: MemoryQueues, room: QueueRoom
) -> None:
    queues.is_away = True

    with pytest.raises(QueueUnavailableError):
        await room.for_due(0)

    assert await room.for_lost(0, 500, {}) == {LOW: 1, NORMAL: 1, HIGH: 1}
    assert room.limits.room([NORMAL], BATCH, 0) == {}
