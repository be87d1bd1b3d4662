"""Bursts and herds, turned by hand: a backlog drains at the rate of the hosts, and an outage does not come back as one."""

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_store_consumer.reclaim_limiter import ReclaimLimiter
from duly_wire.enums import Priority
from tests.fixtures.simulated_host import (
    CountingSender,
    SimulatedHost,
    Time,
    consumer_on,
    make_due,
    round_of,
    straight_to,
)
from tests.fixtures.task_states import LAMBDA, SECOND

QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
CAPACITY, LOAD, BURST = 50, 30, 700
"""Tasks a second: what the host ends, and what comes in; and what comes at once, at the beginning."""
ENQUEUE_TIMEOUT = 5 * SECOND
IDEAL = BURST // (CAPACITY - LOAD)
"""Seconds in which the burst can be gone."""


@pytest.fixture
def time(clock):
    return Time(clock)


@pytest.fixture
def sent(sender):
    return CountingSender(sender)


@pytest.fixture
def ask(dsn):
    def run(query):
        with psycopg.connect(dsn, autocommit=True) as connection:
            return connection.execute(query).fetchone()[0]

    return run


@pytest.mark.parametrize(
    "bounded",
    [
        pytest.param(True, id="depth bound"),
        pytest.param(
            False, id="no depth bound", marks=pytest.mark.long
        ),  # shows only that the other can fail
    ],
)
async def test_a_burst_over_capacity_drains_at_the_hosts_rate_without_sending_twice(
    task_states, dsn, time, sent, receiver, bounded
):
    """The metastable trap: references that wait longer than enqueue_timeout are sent again, and each costs a claim.

    A few seconds of work stay in the queue and the backlog in the store, so none waits that long. The other run
    has no bound on the depth and shows the trap: with the same hosts, load and burst it sends every task several
    times over, and its goodput falls. So this test can fail.
    """
    depth = 2 * CAPACITY if bounded else 1_000_000
    consumer = consumer_on(
        task_states.store, sent, time, enqueue_timeout=ENQUEUE_TIMEOUT, min_depth=depth, max_depth=depth
    )
    host = SimulatedHost(receiver, [QUEUE], CAPACITY, *straight_to(task_states.store))
    made = BURST
    make_due(dsn, BURST, LAMBDA)
    consumer._queue_room.limits._queue(QUEUE).bound = depth  # as if the queue had been seen drain before
    ticks = 0
    while host.started[LAMBDA] < made - LOAD and ticks < IDEAL / 0.95:
        make_due(dsn, LOAD, LAMBDA)
        made += LOAD
        await round_of(consumer)
        await host.tick()
        await time.tick(SECOND)
        ticks += 1

    goodput = host.started[LAMBDA] / (ticks * CAPACITY)
    pushes = sent.sent[LAMBDA] / host.started[LAMBDA]
    if bounded:
        assert host.started[LAMBDA] >= made - LOAD - CAPACITY
        assert goodput >= 0.95
        assert pushes <= 1.05
    else:
        assert host.started[LAMBDA] < made - 5 * LOAD
        assert goodput < 0.9
        assert pushes > 2


SILENT_TOGETHER = """
update task_assoc set status = 'processing', token = task_id, holder = 'gone', fence = 1,
    next_trigger_at = duly_now() - interval '1 s' where status = 'new'
"""


async def test_leases_that_end_together_are_taken_back_at_the_rate_and_due_tasks_go_on_meanwhile(
    task_states, dsn, time, sent, ask
):
    make_due(dsn, 5_000, LAMBDA)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SILENT_TOGETHER)
    await task_states.register("report.make")
    consumer = consumer_on(task_states.store, sent, time, reclaim_rate=400)
    elapsed = 0.0
    consumer._timeouts._limiter = ReclaimLimiter(400, lambda: elapsed)

    reclaimed, due_sent = [], []
    for _ in range(15):
        make_due(dsn, 5, "report.make")
        before = dict(sent.sent)
        await round_of(consumer)
        reclaimed.append(sent.sent[LAMBDA] - before.get(LAMBDA, 0))
        due_sent.append(sent.sent["report.make"] - before.get("report.make", 0))
        elapsed += 0.2

    assert sum(reclaimed) == ask("select sum(crashes) from task_assoc") == 400 + 14 * 80
    assert all(sum(reclaimed[start : start + 5]) <= 401 for start in range(1, 10))
    assert set(due_sent) == {5}


async def test_at_that_rate_nothing_is_forgotten(task_states, dsn, time, sent, ask):
    """Every kind of silence gets its turn: reclaimed, quarantined and cancelled alike."""
    await task_states.register("report.make", max_crashes=1)
    for name in (LAMBDA, "report.make"):
        make_due(dsn, 60, name)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SILENT_TOGETHER)
        connection.execute(
            "update task_assoc set cancel_requested = true where task_id in (select task_id from task_assoc limit 30)"
        )
    consumer = consumer_on(task_states.store, sent, time, reclaim_rate=20)
    elapsed = 0.0
    consumer._timeouts._limiter = ReclaimLimiter(20, lambda: elapsed)

    for _ in range(12):
        await round_of(consumer)
        elapsed += 1.0

    assert ask("select count(*) from task_assoc where status = 'processing'") == 0
    assert ask("select count(*) from task where status = 'cancelled'") == 30
