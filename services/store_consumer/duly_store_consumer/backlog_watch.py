"""Measures now and then how long the first task of each lambda has been due."""

from datetime import timedelta

from duly_core.store import polling
from duly_core.store.pool import Store
from duly_store_consumer import events
from duly_store_consumer.live_config import LiveConfig

_EVERY = timedelta(seconds=15)


class BacklogWatch:
    """Looks at one row of each queue."""

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
        overdue = {queue.lambda_name: timedelta() for queue in self._live_config.queues}
        ahead = await polling.next_triggers(self._store, self._live_config.queues)
        for queue, due_in in ahead.items():
            overdue[queue.lambda_name] = max(overdue[queue.lambda_name], -due_in)
        for name, since in overdue.items():
            events.oldest_ready.labels(name).set(since.total_seconds())
