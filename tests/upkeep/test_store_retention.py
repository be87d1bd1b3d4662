"""Finished tasks leave with their partitions; what outlives one, and what has no partition, is where it should be."""

import asyncio
from itertools import pairwise
from uuid import UUID

import psycopg
import pytest

from duly_core.access.audit_entries import AuditEntry
from duly_core.access.audit_log import StoredAuditLog, list_events
from duly_core.errors import StoreUnavailableError
from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit
from duly_core.results.store import set_results
from duly_core.tasks import dead_letters, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.schedule import schedule
from duly_core.tasks.task import ResourceNeed, Result, Scheduling
from duly_core.upkeep.partitions import Partition, add, first_id, list_partitions
from duly_core.upkeep.retention import Retention, RetentionRound
from duly_wire.enums import FailureKind, Outcome
from tests.fixtures import whole
from tests.fixtures.clock import Clock
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.retention import DAY, Uptime, finished, store_now, until_nothing_is_left
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, TaskStates


async def test_partitions_are_made_ahead_and_once(
    task_states: TaskStates, retention: Retention, dsn: str
) -> None:
    first = await retention.run_once()
    second = await retention.run_once()

    assert len(first.added) in (6, 7)  # the first partition held two days when it was made
    assert second.added == []
    async with task_states.store.connection() as connection:
        there = await list_partitions(connection)
    assert [partition.name for partition in there] == ["first", *first.added]
    assert all(before.end == after.lowest for before, after in pairwise(there))


async def test_days_that_a_clock_passed_over_get_their_partitions_when_it_is_set_back(
    retention: Retention, task_states: TaskStates, clock: Clock
) -> None:
    await clock.tick(100 * DAY)
    await retention.run_once()
    await clock.tick(-100 * DAY)

    done = await retention.run_once()

    assert len(done.added) == 8


async def test_no_partition_is_made_while_the_default_one_is_too_large_to_be_read_under_a_lock(
    retention: Retention, task_states: TaskStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duly_core.upkeep.retention.MOST_READ_BYTES", 0)
    await task_states.new(
        task_id=UUID(int=first_id(await store_now(task_states) + 900 * DAY).int | 7 << 76 | 2 << 62).bytes
    )

    done = await retention.run_once()

    assert (done.crowded, done.added) == (True, [])
    monkeypatch.setattr("duly_core.upkeep.retention.MOST_READ_BYTES", done.rest_bytes)
    assert (await retention.run_once()).added


async def test_a_partition_that_was_made_by_hand_is_one(
    retention: Retention, task_states: TaskStates, dsn: str
) -> None:
    now = await store_now(task_states)
    bounds = f"from (duly_first_id('{now + 5 * DAY:%Y-%m-%d 00:00Z}')) to (duly_first_id('{now + 40 * DAY:%Y-%m-%d 00:00Z}'))"
    with psycopg.connect(dsn, autocommit=True) as operator:
        operator.execute(f"create table attempt_by_hand partition of attempt for values {bounds}".encode())
        operator.execute(
            f"create table task_by_hand partition of task for values {bounds} with (fillfactor = 50)".encode()
        )

    done = await retention.run_once()

    assert len(done.added) in (3, 4)
    async with task_states.store.connection() as connection:
        there = await list_partitions(connection)
    assert [partition.name for partition in there] == ["first", *done.added, "by_hand"]
    assert all(before.end == after.lowest for before, after in pairwise(there))


async def test_what_ended_long_ago_leaves_with_its_partition_and_its_keys(
    task_states: TaskStates, retention: Retention, dsn: str, clock: Clock, uptime: Uptime
) -> None:
    task_id = await finished(
        task_states, idempotency_key="once", attributes=(("order", 17), ("urgent", True))
    )
    assert len(ask(dsn, "select * from task_attribute")) == 2
    await clock.tick(10 * DAY)

    done = await until_nothing_is_left(retention)

    assert done.dropped == ["first"]
    assert done.moved == 0
    assert await tasks.get_tasks(task_states.store, [task_id]) == {}
    assert ask(dsn, "select * from idempotency_key") == []
    await clock.tick(DAY)  # the next walk
    uptime.now += DAY
    await until_nothing_is_left(retention)
    assert ask(dsn, "select * from task_attribute") == []


async def test_what_is_alive_outlives_its_partition_and_runs(
    task_states: TaskStates, retention: Retention, dsn: str, clock: Clock
) -> None:
    ahead = await task_states.new(delay=40 * DAY, idempotency_key="later", attributes=(("order", 17),))
    await finished(task_states)
    await clock.tick(10 * DAY)

    done = await until_nothing_is_left(retention)

    assert (done.dropped, done.moved) == (["first"], 1)
    assert ask(dsn, "select tableoid::regclass::text from task") == [("task_rest",)]
    assert ask(dsn, "select name, value from task_attribute") == [("order", "17")]
    (again,) = await schedule(task_states.store, [ahead])
    assert again.verdict is Scheduling.REPEATED
    await clock.tick(31 * DAY)
    await polling.enqueue(
        task_states.store, {QueueKey(ahead.lambda_name, ahead.priority): 1}, ENQUEUE_TIMEOUT
    )
    claimed = await task_states.claim(ahead)
    await set_results(task_states.store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])
    assert await task_states.status(ahead.task_id) == "success"


async def test_dead_letters_are_kept_for_longer_with_their_attempts_and_can_run_again(
    task_states: TaskStates, retention: Retention, clock: Clock
) -> None:
    dead = await finished(task_states, Outcome.FATAL_FAILURE)
    await clock.tick(10 * DAY)
    await until_nothing_is_left(retention)

    kept = await tasks.get_attempts(task_states.store, [dead])
    answers = await dead_letters.redrive(task_states.store, [dead])

    assert len(kept[dead]) == 1
    assert answers[dead].verdict is dead_letters.Verdict.REDRIVEN


async def test_dead_letters_leave_when_their_own_time_is_over(
    task_states: TaskStates, retention: Retention, dsn: str, clock: Clock, uptime: Uptime
) -> None:
    dead = await finished(task_states, Outcome.FATAL_FAILURE, idempotency_key="dead")
    await clock.tick(10 * DAY)
    await until_nothing_is_left(retention)
    await clock.tick(30 * DAY)
    uptime.now += 30 * DAY

    done = await until_nothing_is_left(retention)

    assert done.removed == 1
    assert await tasks.get_tasks(task_states.store, [dead]) == {}
    left = ask(
        dsn,
        "select task_id from dead_letter union all select task_id from attempt "
        "union all select task_id from idempotency_key",
    )
    assert left == []


async def test_rows_that_came_before_their_partition_are_moved_into_it(
    task_states: TaskStates, retention: Retention, dsn: str, clock: Clock
) -> None:
    (milliseconds,) = ask(dsn, "select (extract(epoch from now() + interval '4 days') * 1000)::int8")[0]
    early = UUID(int=int(str(milliseconds)) << 80 | 7 << 76 | 2 << 62).bytes
    await task_states.new(task_id=early)
    before = ask(dsn, "select tableoid::regclass::text from task")

    done = await retention.run_once()

    assert before == [("task_rest",)]
    ((after,),) = ask(dsn, "select tableoid::regclass::text from task")
    assert after in {f"task_{name}" for name in done.added}
    assert await task_states.status(early) == "new"


async def test_nothing_is_stalled_by_a_table_that_somebody_holds(
    task_states: TaskStates, retention: Retention, dsn: str, clock: Clock
) -> None:
    await finished(task_states)
    await clock.tick(10 * DAY)
    async with await psycopg.AsyncConnection.connect(dsn) as holder:
        await holder.execute("select from task")

        done = await retention.run_once()

        assert done.locked
        await task_states.new()


async def test_only_one_tidies_at_a_time(task_states: TaskStates, retention: Retention, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from turn where name = 'upkeep' for update")

        done = await retention.run_once()

    assert done == RetentionRound()


async def test_an_end_without_its_entity_does_not_become_one(task_states: TaskStates, dsn: str) -> None:
    claimed = await task_states.claimed()
    with psycopg.connect(dsn) as operator:
        operator.execute("delete from task")

    await set_results(task_states.store, [Result(claimed.task_id, claimed.token, Outcome.SUCCESS)])

    assert ask(dsn, "select task_id from task union all select task_id from task_assoc") == []


async def test_a_dead_end_without_its_entity_leaves_no_dead_letter(task_states: TaskStates, dsn: str) -> None:
    claimed = await task_states.claimed()
    with psycopg.connect(dsn) as operator:
        operator.execute("delete from task")

    failed = Result(
        claimed.task_id,
        claimed.token,
        Outcome.FATAL_FAILURE,
        failure_kind=FailureKind.CALLBACK,
        failure_message="",
    )
    await set_results(task_states.store, [failed])

    assert ask(dsn, "select task_id from task union all select task_id from dead_letter") == []


async def test_a_row_that_waited_while_its_partition_was_made_is_asked_for_again(
    task_states: TaskStates, dsn: str, clock: Clock
) -> None:
    now = await store_now(task_states)
    day = Partition("20990101", first_id(now + 15 * DAY), first_id(now + 16 * DAY))
    task_id = UUID(int=first_id(now + 15.5 * DAY).int | 7 << 76 | 2 << 62).bytes
    async with await psycopg.AsyncConnection.connect(dsn) as maker:
        await maker.execute("lock table task_rest in access exclusive mode")
        writing = asyncio.create_task(task_states.new(task_id=task_id))
        await until_a_statement_waits_for_a_lock(dsn)
        assert await add(maker, day)

    with pytest.raises(StoreUnavailableError, match="made a partition meanwhile"):
        await writing

    await task_states.new(task_id=task_id)
    assert ask(dsn, "select tableoid::regclass::text from task") == [("task_20990101",)]


async def test_keys_of_resources_that_nobody_uses_are_forgotten_and_others_are_kept(
    task_states: TaskStates, retention: Retention, dsn: str
) -> None:
    await task_states.register()
    await whole.put_resource(task_states.store, ResourceLimit("tenant", 0, per_key=True))
    await task_states.new(resources=(ResourceNeed("tenant", "parked"),))
    await task_states.end_all_that_may_run()
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "insert into resource_use (resource, key, used, starts_until) values ('tenant', 'idle', 0, null), "
            "('tenant', 'used', 1, null), ('tenant', 'over', 0, now()), ('tenant', 'later', 0, now() + interval '1 day')"
        )

    await retention.run_once()

    assert ask(dsn, "select key from resource_use order by key") == [("later",), ("parked",), ("used",)]


async def test_audit_events_are_kept_for_their_time(
    retention: Retention, task_states: TaskStates, clock: Clock, uptime: Uptime
) -> None:
    log = StoredAuditLog(task_states.store)
    await log.record(AuditEntry("ann", "", "old", "OK", ""))
    for days, method in ((300, "young"), (66, "new")):
        await clock.tick(days * DAY)
        uptime.now += days * DAY
        await log.record(AuditEntry("ann", "", method, "OK", ""))
    await until_nothing_is_left(retention)
    kept = await list_events(task_states.store, before=2**62, limit=10)
    assert [event.entry.method for event in kept] == ["new", "young"]
