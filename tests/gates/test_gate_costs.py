"""What a pick costs behind many tasks that gates hold and that are not parked yet: a bounded number of pages, however many
there are."""

import os
from datetime import timedelta

import pytest

from duly_core.gates.cache import GateCache
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.scans import GateScans
from duly_core.gates.store import NewGate
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store, fetch_as
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import NewTask
from duly_wire.enums import Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.full_tables import HELD_BY_A_GATE as FILL
from tests.fixtures.statement_costs import PAGES_FETCHED
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA

HELD = 10_000
QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
APART = [
    pytest.param(timedelta(milliseconds=1), id="due one after the other"),
    pytest.param(timedelta(), id="due at one instant"),
]


class CountingStore(Store):
    """Counts the pages that each statement touches."""

    pages: list[int]

    async def run_as(self, shape, statement, parameters):
        async with self.connection() as connection, connection.transaction():
            before = await (await connection.execute(PAGES_FETCHED)).fetchone()
            rows = await fetch_as(shape, connection, statement, parameters)
            after = await (await connection.execute(PAGES_FETCHED)).fetchone()
        self.pages.append(after[0] - before[0])
        return rows


@pytest.fixture
async def counting(dsn, task_states):
    await task_states.register()
    async with CountingStore(StoreSettings(dsn=dsn)) as opened:
        opened.pages = []
        yield opened


async def hold(counting, apart, **scope):
    """Have many held tasks, and a gate that holds them; return the gates in force."""
    async with counting.connection() as connection:
        await connection.execute("set statement_timeout = '60s'")
        await connection.execute(FILL, {"lambda": LAMBDA, "count": HELD, "apart": apart})
        await connection.execute("analyze task_assoc")
        await connection.execute("reset statement_timeout")
    scope = {"pattern": LAMBDA, "collection": "marketing"} | scope
    await whole.put_gate(
        counting, NewGate("held", Kind.PAUSE, GateScope(**scope), None, "ann", "a test", None)
    )
    cache = GateCache(counting)
    await cache.run_once()
    counting.pages.clear()
    return cache.now


async def free_tasks(counting, count):
    made = [NewTask(new_task_id().bytes, LAMBDA, b"{}") for _ in range(count)]
    await schedule.schedule(counting, made)
    counting.pages.clear()
    return {task.task_id for task in made}


async def claim(counting, gate_set, scans, most=10):
    """One look of an HSC: what it claimed, and whether there may be more."""
    picks = [Pick(QueueKey(LAMBDA, priority), most, 0) for priority in Priority]
    caller = Caller("host", os.urandom(14))
    work = await claims.claim_work(counting, picks, [caller], most, CLAIM_TIMEOUT, gate_set, scans)
    return {task.task_id for task in work.tasks}, bool(work.unread)


async def enqueue(counting, gate_set, scans):
    """One poll of a Store Consumer with SQS."""
    due = await polling.enqueue(counting, {QUEUE: 10}, ENQUEUE_TIMEOUT, gate_set, scans)
    return {task.task_id for task in due}, scans.has_more(QUEUE)


async def until_the_end(counting, gate_set, scans, take=claim):
    """Look until there is no more; how often, and what was taken."""
    taken, looks, more = set(), 0, True
    while more:
        found, more = await take(counting, gate_set, scans)
        taken |= found
        looks += 1
    return looks, taken


@pytest.mark.parametrize("take", [claim, enqueue])
@pytest.mark.parametrize("apart", APART)
async def test_tasks_behind_many_held_ones_are_reached_by_reads_of_bounded_size(counting, apart, take):
    gate_set = await hold(counting, apart)
    free = await free_tasks(counting, 5)
    scans = GateScans()

    looks, taken = await until_the_end(counting, gate_set, scans, take)

    assert taken == free
    assert looks < 20
    assert max(counting.pages) < 2 * HELD
    counting.pages.clear()
    (late,) = await free_tasks(counting, 1)
    found, _ = await take(counting, gate_set, scans)
    assert found == {late}
    assert sum(counting.pages) < 2_000


@pytest.mark.parametrize("scope", [{"priority": Priority.NORMAL}, {"pattern": "mail.*"}, {"pattern": "*"}])
async def test_a_pick_costs_the_same_whatever_the_gate_covers(counting, scope):
    gate_set = await hold(counting, timedelta(milliseconds=1), **scope)
    scans = GateScans()
    await until_the_end(counting, gate_set, scans)

    free = await free_tasks(counting, 3)
    looks, taken = await until_the_end(counting, gate_set, scans)

    assert taken == free
    assert looks < 5
    assert sum(counting.pages) < 8_000


async def test_what_was_found_behind_held_tasks_is_not_taken_if_a_gate_holds_it_by_then(
    counting, task_states
):
    gate_set = await hold(counting, timedelta(milliseconds=1))
    free = await free_tasks(counting, 3)
    scans = GateScans()
    while not (await scans.look(counting, gate_set, [QUEUE], 1)).told[QUEUE]:
        pass
    async with counting.connection() as connection:
        await connection.execute("update task_assoc set collection = 'marketing' where collection = ''")

    found, _ = await claim(counting, gate_set, scans)

    assert found == set()
    assert await task_states.status(min(free)) == "new"
