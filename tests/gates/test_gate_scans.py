"""Scans behind what gates hold: they settle when there is nothing to find, and do not wait for what others took."""

import os
from datetime import UTC, datetime

import pytest

from duly_core.gates.rules import Gate, GateScope, GateSet, Kind
from duly_core.gates.scans import GateScans
from duly_core.lambdas.names import QueueKey
from duly_wire.enums import Priority

EARLIER = datetime(2026, 11, 22, tzinfo=UTC)
OF_ONE_CUSTOMER = GateScope("*", None, None, "customer-7")
GATES = GateSet([Gate(1, "customer", Kind.PAUSE, OF_ONE_CUSTOMER, None, "ops", "", EARLIER, None)])


@pytest.fixture
def scans():
    return GateScans()


async def looks_until_settled(store, scans, queues):
    """How many looks follow each other at once."""
    for looks in range(1, 100):
        pick = await scans.look(store, GATES, queues, 10)
        if not scans.picked(pick, (), is_all=True):
            return looks
    return None


async def test_looks_at_many_idle_queues_settle_and_one_look_is_enough_afterwards(store, scans):
    queues = [QueueKey(f"lambda-{number}", priority) for number in range(100) for priority in Priority]

    first = await looks_until_settled(store, scans, queues)
    for scan in scans._scans.values():  # as after a second
        scan.rests_until = float("-inf")

    assert first <= len(queues) // 50
    assert await looks_until_settled(store, scans, queues) == 1


async def test_what_others_took_does_not_stop_the_scan_of_a_queue_while_looks_are_full(store, scans):
    queue = QueueKey("mail.send", Priority.NORMAL)
    await scans.look(store, GATES, [queue], 10)
    scans._scans[queue].found[os.urandom(16)] = None

    for _ in range(5):
        pick = await scans.look(store, GATES, [queue], 10)
        assert pick.told[queue]
        scans.picked(pick, (), is_all=False)

    assert not (await scans.look(store, GATES, [queue], 10)).told[queue]
