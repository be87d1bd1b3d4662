"""The Frontend's connections, a pool for each kind of call: reads must not keep schedules waiting.

Schedules, cancels and registrations have connections of their own. So have reads by id, and lists, which may have to
read much: those are few, and have less time.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from duly_core.access.current import current_caller
from duly_core.config.settings import format_duration
from duly_core.errors import StatementTimeoutError, TooMuchError
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.rpc.call_load import CallLoad
from duly_frontend.load_limits import LoadLimits
from duly_frontend.settings import FrontendSettings

LOCK_TIMEOUT = timedelta(seconds=1.5)
"""How long a write waits for a row, or an idempotency key, that somebody's open transaction holds.

It is shorter than the calls of those that are written with it: they are then served apart, in time."""


@dataclass(frozen=True, slots=True)
class FrontendStores:
    """The same store, through pools of their own."""

    writes: Store
    reads: Store
    """GetTask and WaitTask."""
    lists: Store
    """ListTasks, and what is done by filter."""
    load: LoadLimits
    """What one caller may have."""

    @property
    def all(self) -> tuple[Store, ...]:
        """Every pool; the first is the one that matters most."""
        return self.writes, self.reads, self.lists

    @asynccontextmanager
    async def listing(self, method: str) -> AsyncIterator[Store]:
        """Lend the pool for lists to a call.

        Raises:
            TooMuchError: a statement took too long. Whoever asked again, as after an outage, would only add to it.
            OverloadedError: too many lists are made already, or too many of the caller.
        """
        try:
            async with self.load.lists.turn(current_caller()):
                yield self.lists
        except StatementTimeoutError as error:
            longest = format_duration(self.lists.settings.statement_timeout)
            raise TooMuchError(
                f"{method}: took longer than {longest} (frontend.list_timeout): ask for less, by lambda, collection, "
                "status or time"
            ) from error


@asynccontextmanager
async def open_stores(
    store: StoreSettings,
    frontend: FrontendSettings,
    calls: CallLoad | None = None,
    *,
    gives_back: bool = False,
) -> AsyncIterator[FrontendStores]:
    """Open the pools; `store.connections` are those for writes. They may give back connections.

    `calls` are the bounds of the server; None: it has no other store.
    """

    def pool(connections: int, longest: timedelta | None = None) -> Store:
        bounds = {"statement_timeout": min(longest, store.statement_timeout)} if longest else {}
        return Store(store.model_copy(update={"connections": connections, **bounds}), gives_back=gives_back)

    async with AsyncExitStack() as stack:
        yield FrontendStores(
            writes=await stack.enter_async_context(Store(store, LOCK_TIMEOUT, gives_back=gives_back)),
            reads=await stack.enter_async_context(pool(frontend.read_connections)),
            lists=await stack.enter_async_context(pool(frontend.list_connections, frontend.list_timeout)),
            load=LoadLimits.of(frontend, calls),
        )
