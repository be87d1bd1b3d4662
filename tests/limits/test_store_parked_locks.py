"""Statements that keep the lock of a task that was parked meanwhile: nobody waits for them while holding its resource.

Postgres locks a row before it compares it again. The lock stays until the end of the transaction, even if the row is no
longer what the statement looks for.
"""

import asyncio
import os
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import fetch, fetch_as
from duly_core.postgres.statements import LOCKS, TRANSITIONS
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks import updates as changes
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import (
    NewTask,
    ReleasedClaim,
    ResourceNeed,
    Result,
    Session,
    TaskChange,
    TaskHeartbeat,
)
from duly_core.tasks.updates import ChangeVerdict
from duly_wire.enums import Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA

HOUR = timedelta(hours=1)
GATE = """
create or replace function duly_now() returns timestamptz language plpgsql volatile as '
begin
    perform pg_advisory_xact_lock_shared(7);
    return clock_timestamp();
end'
"""
"""Statements ask for the time after they took their snapshot. There they stand while another session holds this lock."""


class OneConnection:
    """Runs the store's statements on one connection, and in its transaction."""

    def __init__(self, connection):
        self._connection = connection

    @asynccontextmanager
    async def connection(self):
        yield self._connection

    async def run(self, statement, parameters):
        return await fetch(self._connection, statement, parameters)

    async def run_as(self, shape, statement, parameters):
        return await fetch_as(shape, self._connection, statement, parameters)


def close_gates(dsn):
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(GATE)


async def lock_resources(connection):
    await connection.execute("select from resource_use order by resource, key for update")


async def claim(store, most=1000, priority=Priority.NORMAL):
    picks = [Pick(QueueKey(LAMBDA, priority), most, 0)]
    caller = Caller("host", os.urandom(14))
    return (await claims.claim_work(store, picks, [caller], most, CLAIM_TIMEOUT)).tasks


async def enqueue(store, most=1000):
    return await polling.enqueue(store, {QueueKey(LAMBDA, Priority.NORMAL): most}, ENQUEUE_TIMEOUT)


async def end(store, claimed):
    results = [Result(task.task_id, task.token, Outcome.SUCCESS) for task in claimed]
    return await set_results(store, results)


async def ids_of_the_rest(store):
    """Run what is left to its end, with rounds of the Store Consumer; return the ids."""
    ran = []
    while (ahead := await polling.next_timeout(store)) is not None and ahead <= timedelta():
        await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)
    while claimed := await claim(store):
        await end(store, claimed)
        ran += [task.task_id for task in claimed]
    return ran


@pytest.fixture
async def one_unit(store, task_states):
    await task_states.register()
    await whole.put_resource(store, ResourceLimit("tenant", 1, per_key=True))
    return store


async def scheduled(store, number, **fields):
    made = [
        NewTask(
            new_task_id().bytes, LAMBDA, payload=b"{}", resources=(ResourceNeed("tenant", "a"),), **fields
        )
        for _ in range(number)
    ]
    for task in made:
        await schedule.schedule(store, [task])
    return [task.task_id for task in made]


@pytest.mark.parametrize("pick", [claim, enqueue])
async def test_a_pick_that_keeps_the_lock_of_a_parked_task_and_an_end_do_not_deadlock(one_unit, dsn, pick):
    _, parked, other = await scheduled(one_unit, 3)
    running = await claim(one_unit, 1)
    close_gates(dsn)

    async with one_unit.connection() as first, one_unit.connection() as ending:
        await first.execute("select pg_advisory_lock(7)")
        picking = asyncio.create_task(pick(one_unit))  # sees both tasks as new
        await until_a_statement_waits_for_a_lock(dsn)
        assert await claim(OneConnection(first), 1) == []  # parks the first of them
        async with ending.transaction():
            await lock_resources(ending)
            await first.execute("select pg_advisory_unlock(7)")
            await until_a_statement_waits_for_a_lock(dsn)  # the pick, for the resource
            await end(OneConnection(ending), running)
        assert await picking == []

    assert await ids_of_the_rest(one_unit) == [parked, other]


async def cancel(store, task_ids):
    return set((await tasks.cancel_tasks(store, task_ids)).statuses.values()) == {Status.CANCELLED}


async def change(store, task_ids):
    asked = [TaskChange(task_id, delay=HOUR) for task_id in task_ids]
    answers = (await changes.update_pending(store, asked)).answers
    return {answer.verdict for answer in answers.values()} == {ChangeVerdict.CHANGED}


@pytest.mark.parametrize("move", [cancel, change])
async def test_a_batch_that_keeps_the_lock_of_a_parked_task_and_an_end_do_not_deadlock(one_unit, dsn, move):
    _, parked, other = await scheduled(one_unit, 3)
    running = await claim(one_unit, 1)

    async with (
        one_unit.connection() as parking,
        one_unit.connection() as blocking,
        one_unit.connection() as ending,
    ):
        async with blocking.transaction():
            await blocking.execute(
                "select from task_assoc where task_id = %s for update", [UUID(bytes=other)]
            )
            async with parking.transaction():
                assert await claim(OneConnection(parking), 1) == []
                moving = asyncio.create_task(move(one_unit, [parked, other]))
                await until_a_statement_waits_for_a_lock(dsn)  # for the task that is parked
            await until_a_statement_waits_for_a_lock(dsn)  # for the other one
            await ending.execute("begin")
            await lock_resources(ending)
        await until_a_statement_waits_for_a_lock(dsn)  # for the resource
        await end(OneConnection(ending), running)
        await ending.commit()

    assert await moving
    assert await ids_of_the_rest(one_unit) == []


async def test_a_heartbeat_that_keeps_the_lock_of_a_parked_task_and_an_end_do_not_deadlock(one_unit, dsn):
    """It waits for the row of the task that ends, and not for the resource."""
    await whole.put_resource(one_unit, ResourceLimit("tenant", 2, per_key=True))
    lost, _ = await scheduled(one_unit, 2)
    claimed = {task.task_id: task for task in await claim(one_unit)}
    beats = [TaskHeartbeat(task_id, task.token) for task_id, task in sorted(claimed.items())]
    running = [task for task in claimed.values() if task.task_id != lost]
    close_gates(dsn)

    async with one_unit.connection() as first, one_unit.connection() as ending:
        await first.execute("select pg_advisory_lock(7)")
        beating = asyncio.create_task(claims.heartbeat(one_unit, beats, HEARTBEAT_TIMEOUT))
        await until_a_statement_waits_for_a_lock(dsn)
        await first.execute(
            "update task_assoc set status = 'new', token = null, holder = null, taken = null, next_trigger_at = now() "
            "where task_id = %s",
            [UUID(bytes=lost)],
        )
        await first.execute("update resource set capacity = 1")
        await first.execute("update resource_use set used = 1")
        assert await claim(OneConnection(first)) == []  # parks it
        async with ending.transaction():
            await ending.execute(
                "select from task_assoc where task_id = %s for update", [UUID(bytes=running[0].task_id)]
            )
            await first.execute("select pg_advisory_unlock(7)")
            await until_a_statement_waits_for_a_lock(dsn)  # the heartbeat, for the task that ends
            await end(OneConnection(ending), running)
        await beating

    assert await ids_of_the_rest(one_unit) == [lost]


async def test_a_cancel_that_finds_the_key_gone_and_an_end_do_not_deadlock(one_unit, dsn):
    parked = (await scheduled(one_unit, 2))[1]
    running = await claim(one_unit)
    which = {"task_ids": uuids([parked])}

    async with (
        one_unit.connection() as cancelling,
        one_unit.connection() as ending,
        cancelling.transaction(),
    ):
        async with ending.transaction():
            await end(OneConnection(ending), running)
            await ending.execute("delete from resource_use")  # as retention does with rows that nobody uses
            locking = asyncio.create_task(fetch(cancelling, LOCKS["lock_waiting"], which))
            await until_a_statement_waits_for_a_lock(
                dsn
            )  # for the resource, whose row is gone with the commit
        await locking
        await scheduled(one_unit, 1, priority=Priority.URGENT)
        running = await claim(one_unit, priority=Priority.URGENT)
        assert await claim(one_unit) == []  # parks it again, on another row
        async with ending.transaction():
            await lock_resources(ending)
            ended = asyncio.create_task(
                fetch(cancelling, TRANSITIONS["cancel_waiting"], which | {"without_session": [], "by": None})
            )
            await until_a_statement_waits_for_a_lock(dsn)  # for that row
            await end(OneConnection(ending), running)
        assert parked in {row[0] for row in await ended}

    assert await ids_of_the_rest(one_unit) == []


async def hand_back(store, task):
    await claims.release(store, [ReleasedClaim(task.task_id, task.token)])


async def snooze(store, task):
    await set_results(store, [Result(task.task_id, task.token, Outcome.SNOOZED, retry_after=HOUR)])


@pytest.mark.parametrize("stop", [hand_back, snooze])
async def test_a_claim_that_stops_after_a_cancel_and_an_end_in_its_session_do_not_deadlock(
    one_unit, dsn, stop
):
    first, second = await scheduled(one_unit, 2, session=Session("s"))
    (running,) = await claim(one_unit)
    await tasks.cancel_tasks(one_unit, [first])

    async with one_unit.connection() as ending, ending.transaction():
        await ending.execute(
            "select from session for update"
        )  # sessions first, then resources, as all ends do
        stopping = asyncio.create_task(stop(one_unit, running))
        await until_a_statement_waits_for_a_lock(dsn)
        await lock_resources(ending)
    await stopping

    assert await ids_of_the_rest(one_unit) == [second]
