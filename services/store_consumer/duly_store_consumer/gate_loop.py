"""Runs the rounds of the gates: does to due tasks what gates do, and releases what waited for gates that are gone."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from duly_core.gates import store as store_gates
from duly_core.gates import sweeps as gate_sweeps
from duly_core.gates.cache import GateCache
from duly_core.gates.rules import Gate, Kind
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.process import failpoints
from duly_store_consumer import events
from duly_wire.enums import Priority

_ALL_AGAIN = 60.0
"""Seconds after which all is looked at, and not only what is new: sweeps begin with the first due task, for some become due
with an earlier time than others had before."""
_OVERLAP = timedelta(seconds=30)
"""How much earlier than the sweep before a sweep begins to read: transactions commit later than they read the clock."""
_SWEEP_SHARE = 10
"""Sweeps take one part of so many of the time, so that gates on very many queues leave Postgres to others."""
_LONGEST_REST = 60.0
"""Seconds between two sweeps at most, however long one took."""
_LONGEST_ROUND = 1.0
"""Seconds after which a round begins no other sweep, so that gates that expire meanwhile are seen to."""

NotifyDue = Callable[[timedelta, Collection[str], int], object]


@dataclass(slots=True)
class _LastSweep:
    """When a sweep of a gate began that ended with nothing left."""

    at: datetime
    """By the store's clock."""
    from_the_first_at: float
    """When one began with the first due task (the loop's time)."""


class GateLoop:
    """`run_once` is a round; the `wake` of its gates cuts the pause between rounds short."""

    def __init__(
        self,
        store: Store,
        gates: GateCache,
        lambdas: Callable[[], Collection[str]],
        notify_due: NotifyDue,
        *,
        has_queues: bool,
    ) -> None:
        """Make one.

        Args:
            store: where.
            gates: those in force; this loop reads them.
            lambdas: returns the registered ones.
            notify_due: told how far ahead tasks of these lambdas are due, and how many there are.
            has_queues: whether there are queues beside the store.
        """
        self._store = store
        self._gates = gates
        self._lambdas = lambdas
        self._notify_due = notify_due
        self._has_queues = has_queues
        self._sweeps: dict[int, _LastSweep] = {}
        self._changes = -1
        """Of the gates, up to which everything was looked at."""
        self._look_at_all_at = float("-inf")
        self._known: list[str] = []
        """The lambdas of the round before."""
        self._rests_until = float("-inf")
        """When sweeps go on. Gates that change or expire are seen to meanwhile."""
        self._to_sweep: list[Gate] = []
        """What is left of the gates that are swept in turn."""
        self._swept_for = 0.0
        """Seconds that the sweeps of this turn took so far."""
        self._is_full = False
        """Whether a sweep of this turn left something."""

    async def run_once(self) -> timedelta:
        """Run one round; return the pause until the next.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        pause = await self._gates.run_once()
        began_at = asyncio.get_running_loop().time()
        self._follow_lambdas()
        async with failpoints.around("store_consumer.gates"):
            more = await self._look_at_all(began_at)
            if not more and began_at >= self._rests_until:
                more = await self._sweep_all(began_at)
        return timedelta() if more else pause

    def _follow_lambdas(self) -> None:
        """Look at all again if other lambdas are registered than before: the rounds until then passed over their queues."""
        lambdas = list(self._lambdas())
        if lambdas != self._known:
            self._known = lambdas
            self._sweeps.clear()
            self._look_at_all_at = self._rests_until = float("-inf")

    async def _look_at_all(self, now: float) -> bool:
        """Look at what a change of the gates leaves to be done, and now and then at all; whether there is more of it."""
        changes = self._gates.changes
        if changes == self._changes and now < self._look_at_all_at:
            return False
        self._rests_until = float("-inf")
        self._to_sweep = []
        for name in await store_gates.expire_gates(self._store):
            events.log.info("gate expired", gate=name)
        released, more = await gate_sweeps.release_parked(self._store)
        if released:
            events.gate_released(released)
            self._notify_due(timedelta(), released.keys(), sum(released.values()))
        if self._has_queues and self._gates.now:
            taken, freed = await gate_sweeps.take_from_queues(self._store, self._gates.now, self._known)
            if freed:
                self._notify_due(timedelta(), freed, len(freed))
            more |= bool(taken)
        if not more:
            self._changes, self._look_at_all_at = changes, now + _ALL_AGAIN
        return more

    async def _sweep_all(self, now: float) -> bool:
        """Sweep a batch of each gate, as many gates as there is time for; whether there is more."""
        gates = [gate for gate in self._gates.now.gates if gate.sweeps]
        if not self._to_sweep:
            self._sweeps = {
                gate.gate_id: self._sweeps[gate.gate_id] for gate in gates if gate.gate_id in self._sweeps
            }
            # what one gate drops or delays is not parked by another
            self._to_sweep = sorted(gates, key=lambda gate: gate.kind is Kind.PAUSE)
            self._swept_for, self._is_full = 0.0, False
        loop = asyncio.get_running_loop()
        while self._to_sweep:
            self._is_full |= await self._sweep(self._to_sweep.pop(0), now)
            if loop.time() >= now + _LONGEST_ROUND:
                break
        self._swept_for += loop.time() - now
        if self._to_sweep or self._is_full:
            return True
        self._rests_until = loop.time() + min(self._swept_for * _SWEEP_SHARE, _LONGEST_REST)
        return False

    async def _sweep(self, gate: Gate, now: float) -> bool:
        last = self._sweeps.get(gate.gate_id)
        is_partial = last is not None and now < last.from_the_first_at + _ALL_AGAIN
        since = last.at - _OVERLAP if last is not None and is_partial else None
        queues = [
            QueueKey(name, priority)
            for name in self._known
            if gate.scope.covers(name)
            for priority in ([gate.scope.priority] if gate.scope.priority else Priority)
        ]
        began_at = self._gates.store_time()
        swept = await gate_sweeps.sweep(self._store, gate, queues, since)
        if swept.tasks:
            events.gate_swept(gate, swept.tasks)
        if swept.due_lambdas:
            self._notify_due(swept.due_in, swept.due_lambdas, swept.tasks)
        if swept.is_full:
            return True
        from_the_first_at = last.from_the_first_at if last is not None and is_partial else now
        self._sweeps[gate.gate_id] = _LastSweep(began_at, from_the_first_at)
        return False
