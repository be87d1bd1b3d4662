"""Runs the rounds of the breakers: once a second, if there are any."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta

from duly_core.gates import breakers
from duly_core.gates.cache import GateCache
from duly_core.postgres.pool import Store
from duly_core.process.pace import USUAL, Pace
from duly_store_consumer import events
from duly_store_consumer.gate_loop import NotifyDue

_EVERY = timedelta(seconds=1)
_FORGET_EVERY = 600.0
"""Seconds between two removals of old counts."""


class BreakerLoop:
    """`run_once` is a round."""

    def __init__(
        self,
        store: Store,
        gates: GateCache,
        lambdas: Callable[[], Collection[str]],
        notify_due: NotifyDue,
        pace: Pace = USUAL,
    ) -> None:
        """Make one.

        Args:
            store: where.
            gates: knows which lambdas have breakers.
            lambdas: returns the registered ones.
            notify_due: told how far ahead tasks of these lambdas are due, and how many there are.
            pace: of this store.
        """
        self.wake = asyncio.Event()
        self._pace = pace
        self._store = store
        self._gates = gates
        self._lambdas = lambdas
        self._notify_due = notify_due
        self._forget_at = float("-inf")

    async def run_once(self) -> timedelta:
        """Run one round; return the pause until the next.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        if not self._gates.breaker_lambdas:
            events.breakers_open(())
            return self._pace.rest(_EVERY, self.wake)
        judged = await breakers.judge_breakers(self._store, self._lambdas())
        if judged.open_lambdas is not None:
            events.breakers_open(judged.open_lambdas)
        for moved in judged.moved:
            events.breaker_moved(moved)
        if judged.due_lambdas:
            self._notify_due(timedelta(), judged.due_lambdas, len(judged.due_lambdas))
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            await breakers.forget_counts(self._store)
            self._forget_at = now + _FORGET_EVERY
        return _EVERY
