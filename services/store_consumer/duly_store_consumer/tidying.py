"""The slow loop of the Store Consumer: partitions are made ahead, and what was kept for its time is removed."""

from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.store.retention import Tidier
from duly_store_consumer import events

_AGAIN = timedelta(seconds=30)


class Tidying:
    """`run_once` is a round; it is never in a hurry, and its failures are not the task path's."""

    def __init__(self, tidier: Tidier) -> None:
        self._tidier = tidier

    async def run_once(self) -> timedelta:
        """Tidy; answers when to come back."""
        try:
            done = await self._tidier.run_once()
        except StoreUnavailableError as error:
            events.not_tidied(str(error))
            return _AGAIN
        events.tidied(done)
        return _AGAIN if done.locked else done.pause
