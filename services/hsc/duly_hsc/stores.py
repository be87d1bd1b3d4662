"""The HSC's connections, a pool for each kind of statement: one kind's trouble must not be another's.

Claims that wait for locks, or for a slow disk, hold their own connections only. Heartbeats have two, and no more
time than lets an Executor try again within its heartbeat_deadline; for a row that is locked they wait a part of
that, so that the others of their group are renewed in time.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from duly_core.config.timing import Timing
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_hsc.cells.own_cell import SOLE, OwnCell
from duly_hsc.settings import HscSettings

BEATING = 2
"""Connections for heartbeats: as many statements may run at a time."""

_RESULTS_BESIDE = 2
"""Connections of the results' pool beyond the results': for releases and for notifications."""

_JOINED_ACQUIRE_TIMEOUT = timedelta(milliseconds=500)
_JOINED_LOCK_TIMEOUT = timedelta(milliseconds=100)
"""A statement that writes little does not wait for what the look after it wants: it is written alone then."""


@dataclass(frozen=True, slots=True)
class HscStores:
    """The same store, through pools of their own."""

    claims: Store
    beats: Store
    results: Store
    """And releases, and notifications."""
    joined: Store | None
    """Looks for work that go with another statement: one at a time. None: none does."""
    cell: OwnCell = SOLE
    """The cell that the store is."""

    @property
    def all(self) -> tuple[Store, ...]:
        """Every pool; the first is the one that matters most."""
        return tuple(store for store in (self.beats, self.results, self.claims, self.joined) if store)


@asynccontextmanager
async def open_stores(
    store: StoreSettings,
    hsc: HscSettings,
    timing: Timing,
    cell: OwnCell = SOLE,
    *,
    gives_back: bool = False,
) -> AsyncIterator[HscStores]:
    """Open the pools; `store.connections` is not asked, the numbers are those of [hsc]. They may give back connections."""

    def pool(
        connections: int,
        longest: timedelta | None = None,
        lock_timeout: timedelta | None = None,
        **bounds: timedelta,
    ) -> Store:
        if longest:
            bounds = {
                "statement_timeout": min(longest, store.statement_timeout),
                "acquire_timeout": min(longest, store.acquire_timeout),
            }
        return Store(
            store.model_copy(update={"connections": connections, **bounds}),
            lock_timeout,
            gives_back=gives_back,
        )

    async with AsyncExitStack() as stack:
        yield HscStores(
            claims=await stack.enter_async_context(pool(hsc.claim_concurrency)),
            beats=await stack.enter_async_context(
                pool(BEATING, timing.heartbeat_deadline / 2, timing.heartbeat_deadline / 4)
            ),
            results=await stack.enter_async_context(pool(hsc.result_concurrency + _RESULTS_BESIDE)),
            # through a pooler no session has a lock_timeout of its own
            joined=None
            if store.pooled
            else await stack.enter_async_context(
                pool(
                    1,
                    lock_timeout=_JOINED_LOCK_TIMEOUT,
                    acquire_timeout=min(_JOINED_ACQUIRE_TIMEOUT, store.acquire_timeout),
                )
            ),
            cell=cell,
        )
