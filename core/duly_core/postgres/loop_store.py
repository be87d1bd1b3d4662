"""The connections of the loops that look at one store: the services of one process share them, where there are many stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.process.pace import USUAL, Pace


class LoopStore:
    """Open while some service needs it."""

    def __init__(self, pace: Pace = USUAL) -> None:
        """Make one; `pace` is that of the loops."""
        self._pace = pace
        self._users = 0
        self._store: Store | None = None
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def lend(self, settings: StoreSettings) -> AsyncIterator[Store]:
        """Lend it; the first user opens it, and the last one closes it."""
        async with self._turn:
            if self._store is None:
                opened = Store(settings, gives_back=True, spares=lambda: self._pace.spares)
                await opened.__aenter__()
                self._store = opened
            store = self._store
            self._users += 1
        try:
            yield store
        finally:
            self._users -= 1
            if not self._users:
                self._store = None
                await store.__aexit__()
