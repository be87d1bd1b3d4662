"""Measures how many tasks of each queue are due, how long the first has waited, and how many slots serve its lambda."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from duly_core.counting.backlog import Ready, read_ready, read_slots
from duly_core.gates.cache import GateCache
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.process.lambda_metrics import named_lambdas
from duly_core.process.pace import USUAL, Pace
from duly_store_consumer import events

_EVERY = timedelta(seconds=2)
_LONGEST_PAUSE = timedelta(seconds=15)
_SLOTS_EVERY = 15.0
"""Seconds: hosts come and go less often than tasks, and there may be thousands."""
_SHARE = 50
"""A look takes one part of so many of the time: with very many queues it is repeated less often."""


class BacklogWatch:
    """Looks at one row of each queue, and counts the rows of those that have something due, up to a limit."""

    def __init__(
        self,
        store: Store,
        queues: Callable[[], Sequence[QueueKey]],
        gates: GateCache,
        pace: Pace = USUAL,
    ) -> None:
        """Make one; `queues` returns those of the registered lambdas."""
        self.wake = asyncio.Event()
        self._pace = pace
        self._store = store
        self._queues = queues
        self._gates = gates
        self._slots_at = float("-inf")
        self.ready: Mapping[QueueKey, Ready] = {}
        """What was due at the last look, of each queue that had something; what gates hold among it."""

    async def run_once(self) -> timedelta:
        """Look; return the pause until the next look.

        Raises:
            StoreUnavailableError: nothing was measured.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        gates = await self._gates.known()
        queues = self._queues()
        ready = {queue: each for queue, each in (await read_ready(self._store, queues)).items() if each.tasks}
        self.ready = ready
        held = {queue: each for queue, each in ready.items() if gates.holds_back(queue)}
        waiting = {}
        for queue, each in ready.items():
            if queue not in held:
                released_at = self._gates.ends.released_at(queue)
                waited = (
                    each.age if released_at is None else min(each.age, self._gates.store_time() - released_at)
                )
                waiting[queue] = each.waiting_for(waited)
        events.backlog(queues, waiting, held)
        if began >= self._slots_at:
            self._slots_at = began + _SLOTS_EVERY
            events.serving_slots(await read_slots(self._store, _longest(waiting)))
        took = timedelta(seconds=loop.time() - began)
        pause = min(_LONGEST_PAUSE, max(_EVERY, _SHARE * took))
        return pause if ready else self._pace.rest(pause, self.wake)


def _longest(waiting: Mapping[QueueKey, Ready]) -> list[str]:
    """Return the lambdas with the longest backlogs, as many as have series of their own."""
    queues = sorted(waiting, key=lambda queue: -waiting[queue].tasks)
    return list(dict.fromkeys(queue.lambda_name for queue in queues))[: named_lambdas.most]
