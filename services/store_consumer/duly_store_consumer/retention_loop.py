"""The slow loop of the Store Consumer: partitions are made ahead, and what was kept for its time is removed."""

from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.store.retention import Retention
from duly_store_consumer import events

_AGAIN = timedelta(seconds=30)


class RetentionLoop:
    """`run_once` is a round; it is never in a hurry, and its failures are not the task path's."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    async def run_once(self) -> timedelta:
        """Tidy; answers when to come back."""
        try:
            done = await self._retention.run_once()
        except StoreUnavailableError as error:
            events.retention_failed(str(error))
            return _AGAIN
        events.retention_round(done)
        return _AGAIN if done.locked else done.pause
