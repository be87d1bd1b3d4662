"""Measures now and then how many tasks of each queue are due, and how long the first has been."""

from datetime import timedelta

from duly_core.counting.backlog import read_ready
from duly_core.postgres.pool import Store
from duly_store_consumer import events
from duly_store_consumer.live_config import LiveConfig

_EVERY = timedelta(seconds=15)


class BacklogWatch:
    """Looks at one row of each queue, and counts the rows of those that have something due."""

    def __init__(self, store: Store, live_config: LiveConfig) -> None:
        self._store = store
        self._live_config = live_config
        self._looked_at = float("-inf")

    async def look(self, now: float) -> None:
        """Look, if it is time; `now` is the loop's.

        Raises:
            StoreUnavailableError: nothing was measured.
        """
        if now - self._looked_at < _EVERY.total_seconds():
            return
        self._looked_at = now
        events.backlog(await read_ready(self._store, self._live_config.queues))
