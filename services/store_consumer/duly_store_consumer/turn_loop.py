"""Finds out which lambdas have fair keys, so that their keys take turns."""

import asyncio
from datetime import timedelta

from duly_core.gates.cache import GateCache
from duly_core.postgres.pool import Store
from duly_core.process.pace import USUAL, Pace
from duly_core.tasks.turns import TurnGiver, find_fair_lambdas
from duly_store_consumer import events

_PAUSE = timedelta(seconds=1)


class TurnLoop:
    """`run_once` is a round."""

    def __init__(self, store: Store, gates: GateCache, pace: Pace = USUAL) -> None:
        """Make one; `gates` remembers the lambdas that were found."""
        self.wake = asyncio.Event()
        self._pace = pace
        self._store = store
        self._gates = gates
        self._giver = TurnGiver(store)

    async def run_once(self) -> timedelta:
        """Run one round; return the pause until the next.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        for name in await find_fair_lambdas(self._store):
            events.log.info("keys of a lambda take turns from now on", queue=name)
        fair = self._gates.fair
        more = bool(fair) and await self._giver.run_once(fair.keys())
        if fair:
            return timedelta() if more else _PAUSE
        return self._pace.rest(_PAUSE, self.wake, shares=False)  # nobody tells of the first key of a lambda
