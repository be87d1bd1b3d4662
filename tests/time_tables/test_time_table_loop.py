"""The loop that fires time tables: when it looks again, whom it tells, and what it does beside another's locks."""

from datetime import timedelta

import pytest

from duly_core.time_tables.time_table import Rhythm
from duly_store_consumer.time_table_loop import TimeTableLoop
from duly_wire.enums import Overlap
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.time_tables import MINUTE

SAFETY = timedelta(minutes=10)


@pytest.fixture
def told():
    return []


@pytest.fixture
def loop(tables, told):
    return TimeTableLoop(tables.consumer_store, lambda: SAFETY, lambda *due: told.append(due))


async def test_it_sleeps_until_the_next_tick(loop, tables):
    await tables.make(rhythm=Rhythm(every=5 * MINUTE))
    row = await tables.row()

    pause = await loop.run_once()

    assert timedelta() < pause <= row.next_fire_at - row.read_at + timedelta(milliseconds=1)
    assert pause > row.next_fire_at - row.read_at - MINUTE


async def test_without_time_tables_or_with_a_far_one_it_looks_again_as_the_safety_net_says(loop, tables):
    assert await loop.run_once() == SAFETY

    await tables.make(rhythm=Rhythm(every=timedelta(days=300)))

    assert await loop.run_once() == SAFETY


async def test_it_tells_of_the_tasks_that_it_wrote_and_looks_again_at_once(loop, tables, told):
    await tables.make("one")
    await tables.make("two")
    await tables.until_due("one")

    pause = await loop.run_once()

    assert (pause, told) == (timedelta(), [({LAMBDA}, 2)])


async def test_a_tick_that_waits_is_looked_after_each_second(loop, tables):
    await tables.make(rhythm=Rhythm(every=5 * MINUTE), overlap=Overlap.BUFFER_ONE)
    for _ in range(2):
        await tables.until_due()
        await loop.run_once()

    assert await loop.run_once() == timedelta(seconds=1)


async def test_what_another_store_consumer_holds_is_looked_at_again_soon(loop, tables, told):
    await tables.make()
    await tables.until_due()
    async with tables.store.connection() as connection, connection.transaction():
        await connection.execute("select from time_table for update")

        pause = await loop.run_once()

    assert (pause, told) == (timedelta(milliseconds=100), [])
    await loop.run_once()
    assert len(told) == 1
