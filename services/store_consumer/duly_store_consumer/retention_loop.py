"""Runs the rounds of the retention: partitions are made ahead, and finished tasks removed after their time."""

from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.store.retention import Retention
from duly_store_consumer import events
from duly_store_consumer.events import log

_AGAIN = timedelta(seconds=30)


class RetentionLoop:
    """A loop of its own, so that its failures do not stop the task path."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    async def run_once(self) -> timedelta:
        """Run one round; return the pause until the next."""
        try:
            done = await self._retention.run_once()
        except StoreUnavailableError as error:
            log.warning("retention failed; trying again later", reason=str(error))
            return _AGAIN
        events.retention_round(done)
        return _AGAIN if done.locked else done.pause
