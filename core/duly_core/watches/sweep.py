"""Removes watches that nobody called for, and events that are old."""

from datetime import timedelta

from duly_core.postgres.pool import Store
from duly_core.watches.statements import WATCHES

_PAGE = 5_000
_PAGES_A_ROUND = 20
_AT_ONCE = timedelta(milliseconds=100)
_EVERY = timedelta(seconds=30)


class WatchSweep:
    """Several may sweep at a time."""

    def __init__(self, store: Store, keep_for: timedelta) -> None:
        """Make one; `keep_for` is how long events are kept."""
        self._store = store
        self._keep_for = keep_for

    async def run_once(self) -> timedelta:
        """Sweep; return when to go on.

        Raises:
            StoreUnavailableError: some are left for another time.
        """
        await self._store.run(WATCHES["forget_watches"], {})
        for _ in range(_PAGES_A_ROUND):
            asked = {"limit": _PAGE, "older_than": self._keep_for}
            ((removed,),) = await self._store.run(WATCHES["forget_events"], asked)
            if removed < _PAGE:
                return _EVERY
        return _AT_ONCE
