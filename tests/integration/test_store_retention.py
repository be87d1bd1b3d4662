"""Finished tasks leave with their partitions; what outlives one, and what has no partition, is where it should be."""

import asyncio
from itertools import pairwise
from uuid import UUID

import psycopg
import pytest

from duly_core.errors import StoreUnavailableError
from duly_core.routing import QueueKey
from duly_core.store import dead_letters, tasks, trigger
from duly_core.store.partitions import Partition, add, first_id, list_partitions
from duly_core.store.results import set_results
from duly_core.store.retention import Tidied, Tidier
from duly_core.store.schedule import schedule
from duly_core.task import FailureKind, Outcome, Result, Scheduling
from tests.fixtures.clock import Clock
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.ladder import ENQUEUE_TIMEOUT, Ladder
from tests.fixtures.tidying import DAY, Uptime, finished, store_now, until_nothing_is_left


async def test_partitions_are_made_ahead_and_once(ladder: Ladder, tidier: Tidier, dsn: str) -> None:
    first = await tidier.run_once()
    second = await tidier.run_once()

    assert len(first.added) in (6, 7)  # the first partition held two days when it was made
    assert second.added == []
    async with ladder.store.connection() as connection:
        there = await list_partitions(connection)
    assert [partition.name for partition in there] == ["first", *first.added]
    assert all(before.end == after.lowest for before, after in pairwise(there))


async def test_days_that_a_clock_passed_over_get_their_partitions_when_it_is_set_back(
    tidier: Tidier, ladder: Ladder, clock: Clock
) -> None:
    await clock.tick(100 * DAY)
    await tidier.run_once()
    await clock.tick(-100 * DAY)

    done = await tidier.run_once()

    assert len(done.added) == 8


async def test_no_partition_is_made_while_the_default_one_is_too_large_to_be_read_under_a_lock(
    tidier: Tidier, ladder: Ladder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.store.retention.MOST_READ_BYTES", 0)
    await ladder.new(
        task_id=UUID(int=first_id(await store_now(ladder) + 900 * DAY).int | 7 << 76 | 2 << 62).bytes
    )

    done = await tidier.run_once()

    assert (done.crowded, done.added) == (True, [])
    monkeypatch.setattr("duly_core.store.retention.MOST_READ_BYTES", done.rest_bytes)
    assert (await tidier.run_once()).added


async def test_a_partition_that_was_made_by_hand_is_one(tidier: Tidier, ladder: Ladder, dsn: str) -> None:
    now = await store_now(ladder)
    bounds = f"from (duly_first_id('{now + 5 * DAY:%Y-%m-%d 00:00Z}')) to (duly_first_id('{now + 40 * DAY:%Y-%m-%d 00:00Z}'))"
    with psycopg.connect(dsn, autocommit=True) as operator:
        operator.execute(f"create table attempt_by_hand partition of attempt for values {bounds}".encode())
        operator.execute(
            f"create table task_by_hand partition of task for values {bounds} with (fillfactor = 50)".encode()
        )

    done = await tidier.run_once()

    assert len(done.added) in (3, 4)
    async with ladder.store.connection() as connection:
        there = await list_partitions(connection)
    assert [partition.name for partition in there] == ["first", *done.added, "by_hand"]
    assert all(before.end == after.lowest for before, after in pairwise(there))


async def test_what_ended_long_ago_leaves_with_its_partition_and_its_keys(
    ladder: Ladder, tidier: Tidier, dsn: str, clock: Clock
) -> None:
    task_id = await finished(ladder, idempotency_key="once")
    await clock.tick(10 * DAY)

    done = await until_nothing_is_left(tidier)

    assert done.dropped == ["first"]
    assert done.moved == 0
    assert await tasks.get_tasks(ladder.store, [task_id]) == {}
    assert ask(dsn, "select * from idempotency_key") == []


async def test_what_is_alive_outlives_its_partition_and_runs(
    ladder: Ladder, tidier: Tidier, dsn: str, clock: Clock
) -> None:
    ahead = await ladder.new(delay=40 * DAY, idempotency_key="later")
    await finished(ladder)
    await clock.tick(10 * DAY)

    done = await until_nothing_is_left(tidier)

    assert (done.dropped, done.moved) == (["first"], 1)
    assert ask(dsn, "select tableoid::regclass::text from task") == [("task_rest",)]
    (again,) = await schedule(ladder.store, [ahead])
    assert again.verdict is Scheduling.REPEATED
    await clock.tick(31 * DAY)
    await trigger.enqueue(ladder.store, {QueueKey(ahead.lambda_name, ahead.priority): 1}, ENQUEUE_TIMEOUT)
    claimed = await ladder.claim(ahead)
    await set_results(ladder.store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])
    assert await ladder.status(ahead.task_id) == "success"


async def test_dead_letters_are_kept_for_longer_with_their_attempts_and_can_run_again(
    ladder: Ladder, tidier: Tidier, clock: Clock
) -> None:
    dead = await finished(ladder, Outcome.FATAL_FAILURE)
    await clock.tick(10 * DAY)
    await until_nothing_is_left(tidier)

    kept = await tasks.get_attempts(ladder.store, [dead])
    answers = await dead_letters.redrive(ladder.store, [dead])

    assert len(kept[dead]) == 1
    assert answers[dead].verdict is dead_letters.Verdict.REDRIVEN


async def test_dead_letters_leave_when_their_own_time_is_over(
    ladder: Ladder, tidier: Tidier, dsn: str, clock: Clock, uptime: Uptime
) -> None:
    dead = await finished(ladder, Outcome.FATAL_FAILURE, idempotency_key="dead")
    await clock.tick(10 * DAY)
    await until_nothing_is_left(tidier)
    await clock.tick(30 * DAY)
    uptime.now += 30 * DAY

    done = await until_nothing_is_left(tidier)

    assert done.removed == 1
    assert await tasks.get_tasks(ladder.store, [dead]) == {}
    left = ask(
        dsn,
        "select task_id from dead_letter union all select task_id from attempt "
        "union all select task_id from idempotency_key",
    )
    assert left == []


async def test_rows_that_came_before_their_partition_are_moved_into_it(
    ladder: Ladder, tidier: Tidier, dsn: str, clock: Clock
) -> None:
    (milliseconds,) = ask(dsn, "select (extract(epoch from now() + interval '4 days') * 1000)::int8")[0]
    early = UUID(int=int(str(milliseconds)) << 80 | 7 << 76 | 2 << 62).bytes
    await ladder.new(task_id=early)
    before = ask(dsn, "select tableoid::regclass::text from task")

    done = await tidier.run_once()

    assert before == [("task_rest",)]
    ((after,),) = ask(dsn, "select tableoid::regclass::text from task")
    assert after in {f"task_{name}" for name in done.added}
    assert await ladder.status(early) == "new"


async def test_nothing_is_stalled_by_a_table_that_somebody_holds(
    ladder: Ladder, tidier: Tidier, dsn: str, clock: Clock
) -> None:
    await finished(ladder)
    await clock.tick(10 * DAY)
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("select from task")

        done = await tidier.run_once()

        assert done.locked
        await ladder.new()


async def test_only_one_tidies_at_a_time(ladder: Ladder, tidier: Tidier, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select pg_advisory_xact_lock(%s)", (0x64756C7A,))

        done = await tidier.run_once()

    assert done == Tidied()


async def test_an_end_without_its_entity_does_not_become_one(ladder: Ladder, dsn: str) -> None:
    claimed = await ladder.claimed()
    with psycopg.connect(dsn) as operator:
        operator.execute("delete from task")

    await set_results(ladder.store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])

    assert ask(dsn, "select task_id from task union all select task_id from task_assoc") == []


async def test_a_dead_end_without_its_entity_leaves_no_dead_letter(ladder: Ladder, dsn: str) -> None:
    claimed = await ladder.claimed()
    with psycopg.connect(dsn) as operator:
        operator.execute("delete from task")

    failed = Result(
        claimed.task_id,
        claimed.token,
        Outcome.FATAL_FAILURE,
        failure_kind=FailureKind.CALLBACK,
        failure_message="",
    )
    await set_results(ladder.store, [failed])

    assert ask(dsn, "select task_id from task union all select task_id from dead_letter") == []


async def test_a_row_that_waited_while_its_partition_was_made_is_asked_for_again(
    ladder: Ladder, dsn: str, clock: Clock
) -> None:
    now = await store_now(ladder)
    day = Partition("soon", first_id(now + 15 * DAY), first_id(now + 16 * DAY))
    task_id = UUID(int=first_id(now + 15.5 * DAY).int | 7 << 76 | 2 << 62).bytes
    async with await psycopg.AsyncConnection.connect(dsn) as maker:
        await maker.execute("lock table task_rest in access exclusive mode")
        writing = asyncio.create_task(ladder.new(task_id=task_id))
        await until_a_statement_waits_for_a_lock(dsn)
        assert await add(maker, day)

    with pytest.raises(StoreUnavailableError, match="made a partition meanwhile"):
        await writing

    await ladder.new(task_id=task_id)
    assert ask(dsn, "select tableoid::regclass::text from task") == [("task_soon",)]
