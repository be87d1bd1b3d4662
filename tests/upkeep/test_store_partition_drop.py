"""How a partition leaves: with its keys, without holding others up, and never by a clock that stepped."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Connection
from duly_core.results.store import set_results
from duly_core.tasks import store as tasks
from duly_core.tasks.task import Result
from duly_core.upkeep.partition_drop import PartitionDrop
from duly_core.upkeep.partitions import list_partitions
from duly_core.upkeep.retention import Retention
from duly_wire.enums import Outcome
from tests.fixtures.clock import Clock
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.retention import DAY, Uptime, finished, store_now, until_nothing_is_left
from tests.fixtures.task_states import TaskStates


async def test_a_partition_that_too_many_tasks_outlive_stays_and_is_thinned_out(
    task_states: TaskStates, retention: Retention, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.upkeep.partition_drop.MOST_MOVED", 1)
    alive = [await task_states.new(delay=40 * DAY) for _ in range(2)]
    gone = await finished(task_states)
    await clock.tick(10 * DAY)

    done = await until_nothing_is_left(retention)

    assert (done.dropped, done.removed) == ([], 1)
    found = await tasks.get_tasks(task_states.store, [gone, *(task.task_id for task in alive)])
    assert found.keys() == {task.task_id for task in alive}


async def test_keys_leave_with_tasks_that_ended_while_their_partition_was_thinned_out(
    task_states: TaskStates,
    retention: Retention,
    dsn: str,
    clock: Clock,
    uptime: Uptime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("duly_core.upkeep.partition_drop.MOST_MOVED", 1)
    held = [await task_states.claimed(idempotency_key=key) for key in ("a", "b")]
    await clock.tick(10 * DAY)
    assert (await until_nothing_is_left(retention)).dropped == []
    await set_results(task_states.store, [Result(task.task_id, task.token, Outcome.SUCCESS) for task in held])
    await clock.tick(10 * DAY)
    uptime.now += 10 * DAY

    done = await until_nothing_is_left(retention)

    assert "first" in done.dropped
    assert ask(dsn, "select * from idempotency_key") == []
    await task_states.new(idempotency_key="a")


async def test_a_key_whose_task_ended_its_time_since_the_keys_were_looked_through_leaves_with_the_partition(
    task_states: TaskStates, dsn: str, clock: Clock
) -> None:
    await finished(task_states, idempotency_key="late")
    kept = await task_states.new(idempotency_key="alive")
    async with task_states.store.connection() as connection:
        (first,) = await list_partitions(connection)
        leaving = PartitionDrop(first, datetime.now(UTC))
        now = datetime.now(UTC)

        @asynccontextmanager
        async def turn() -> AsyncIterator[Connection]:
            yield connection

        while leaving._keys_left:
            await leaving._forget_keys(turn, {"ended_before": now - DAY, "dead_before": now - DAY})
        await leaving.look(turn, {"ended_before": now + DAY, "dead_before": now + DAY})
        async with connection.transaction():
            moved = await leaving.drop(connection)

    assert moved == 1
    assert ask(dsn, "select task_id from idempotency_key") == [(UUID(bytes=kept.task_id),)]


async def test_a_partition_that_somebody_held_is_not_looked_through_again(
    task_states: TaskStates, retention: Retention, dsn: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await finished(task_states)
    await clock.tick(10 * DAY)
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("lock table only attempt in row exclusive mode")
        assert (await retention.run_once()).locked
    monkeypatch.delattr(PartitionDrop, "look")

    done = await retention.run_once()

    assert done.dropped == ["first"]


async def test_what_is_written_after_the_look_outlives_its_partition_all_the_same(
    task_states: TaskStates, dsn: str, clock: Clock
) -> None:
    async with task_states.store.connection() as connection:
        (first,) = await list_partitions(connection)
        leaving = PartitionDrop(first, datetime.now(UTC))
        task = await task_states.new()
        async with connection.transaction():
            moved = await leaving.drop(connection)

    assert moved == 1
    assert await task_states.status(task.task_id) == "new"


async def test_tasks_that_are_too_large_to_be_moved_at_once_stay_where_they_are(
    task_states: TaskStates, retention: Retention, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.upkeep.partition_drop.MOST_MOVED_BYTES", 1_000)
    alive = await task_states.new(delay=40 * DAY, payload=b"x" * 1_001)
    await finished(task_states)
    await clock.tick(10 * DAY)

    done = await until_nothing_is_left(retention)

    assert (done.dropped, done.removed) == ([], 1)
    assert await task_states.status(alive.task_id) == "new"


@pytest.mark.long  # fills a partition
async def test_a_large_partition_is_looked_through_page_by_page_and_dropped(
    task_states: TaskStates, retention: Retention, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.upkeep.partition_drop.PAGE", 2)
    monkeypatch.setattr("duly_core.upkeep.partition_drop.PAGES_A_ROUND", 1)
    alive = [await task_states.new(delay=40 * DAY) for _ in range(3)]
    for number in range(5):
        await finished(task_states, idempotency_key=str(number))
    await clock.tick(10 * DAY)

    done = await until_nothing_is_left(retention)

    assert (done.dropped, done.moved) == (["first"], 3)
    assert {await task_states.status(task.task_id) for task in alive} == {"new"}


async def test_a_partition_that_is_too_much_does_not_keep_the_others(
    task_states: TaskStates,
    retention: Retention,
    clock: Clock,
    uptime: Uptime,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await retention.run_once()
    await clock.tick(20 * DAY)
    uptime.now += 20 * DAY
    look = PartitionDrop.look

    async def is_too_much(self: PartitionDrop, *arguments: Any) -> None:
        if self._partition.name == "first":
            raise StoreUnavailableError("it took too long")
        await look(self, *arguments)

    monkeypatch.setattr(PartitionDrop, "look", is_too_much)
    with pytest.raises(StoreUnavailableError, match="too long"):
        await retention.run_once()

    async with task_states.store.connection() as connection:
        there = await list_partitions(connection)
    assert there[0].name == "first"
    assert there[1].ends_at > (await store_now(task_states)) - 8 * DAY


async def test_nothing_is_removed_by_a_clock_that_stepped_ahead_until_it_is_a_day_old(
    task_states: TaskStates, retention: Retention, clock: Clock, uptime: Uptime
) -> None:
    task_id = await finished(task_states)
    await retention.run_once()
    await clock.tick(10 * DAY)

    stepped = await retention.run_once()
    await clock.tick(-10 * DAY)
    corrected = await retention.run_once()
    await clock.tick(10 * DAY)
    again = await retention.run_once()

    assert (stepped.clock_stepped or DAY) > 9 * DAY
    assert corrected.clock_stepped is None
    assert again.dropped == []
    assert await task_states.status(task_id) == "success"
    uptime.now += 1.1 * DAY
    await clock.tick(1.1 * DAY)
    assert "first" in (await until_nothing_is_left(retention)).dropped


async def test_a_drop_that_waits_holds_nothing_that_others_begin_with(
    task_states: TaskStates, retention: Retention, dsn: str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.upkeep.retention._LOCK_TIMEOUT", "5s")
    await clock.tick(10 * DAY)
    async with await psycopg.AsyncConnection.connect(dsn) as failing:
        await failing.execute("lock table only attempt in row exclusive mode")
        tidying = asyncio.create_task(retention.run_once())
        await until_a_statement_waits_for_a_lock(dsn)

        await failing.execute("lock table only task in row exclusive mode nowait")

    assert (await tidying).dropped == ["first"]
