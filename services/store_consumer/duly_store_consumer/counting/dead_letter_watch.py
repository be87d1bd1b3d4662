"""Counts new dead letters of every kind for the metrics, whoever ended their tasks."""

from datetime import datetime, timedelta

from duly_core.postgres.pool import Store
from duly_core.tasks.dead_letter_counts import count_new
from duly_store_consumer import events

_PAUSE = timedelta(seconds=15)


class DeadLetterWatch:
    """Begins with those that come after its first round."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._until: datetime | None = None

    async def run_once(self) -> timedelta:
        """Count; return the pause until the next round.

        Raises:
            StoreUnavailableError: nothing was counted; the next round counts them.
        """
        found = await count_new(self._store, self._until)
        self._until = found.until
        events.dead_letters(found.by_kind, found.newest_at)
        return _PAUSE
