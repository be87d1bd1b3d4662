"""Keeps which processes of services there are: each writes a row of its own, again and again."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from duly_core.errors import StoreUnavailableError
from duly_core.fleet.hosts import HostState
from duly_core.fleet.statements import FLEET
from duly_core.postgres.pool import Store
from duly_core.postgres.schema.steps import NEWEST
from duly_core.process.identity import host_name
from duly_core.process.version import duly_version
from duly_core.process.wall_clock import WallClock

AS_STORE_CONSUMER, AS_HSC, AS_FRONTEND = "store-consumer", "hsc", "frontend"
"""Services without which tasks do not run, as they report themselves."""
_INTERVAL = timedelta(seconds=10)
_SELDOM = timedelta(seconds=60)
_EARLIEST = 0.8
_LAST_WORD = 1.0
"""Seconds, at most, to say that a process has ended."""


@dataclass(frozen=True, slots=True)
class ServiceInstance:
    """A process of a service, as it reported itself last."""

    instance_id: str
    service: str
    host_name: str
    version: str
    address: str
    state: HostState
    started_at: datetime
    reported_at: datetime
    clock_ahead: timedelta | None
    """By how much its machine's clock is ahead of the store's; negative: behind. None: unknown."""


_REPORT = FLEET["report_service"]

_NOW = FLEET["store_now"]

_LIST = FLEET["list_services"]


@asynccontextmanager
async def reporting(
    store: Store,
    service: str,
    address: str,
    settings_age: Callable[[], timedelta | None] = lambda: None,
    clock: WallClock | None = None,
    *,
    zone: str = "",
    seldom: bool = False,
) -> AsyncIterator[None]:
    """Report this process while the block lasts, and at its end that it has stopped. A store that is away is no error.

    `settings_age` tells how long ago it read the live settings; None: it has not. `clock` is this machine's. `zone` is where
    it is; it is stored before the address, as in lists of addresses. `seldom`: it reports in another store as usual, too.
    """
    clock = clock or WallClock()
    interval = _SELDOM if seldom else _INTERVAL
    report = {
        "instance_id": f"{host_name()}:{os.getpid()}:{uuid4().hex[:8]}",
        "service": service,
        "host_name": host_name(),
        "version": duly_version(),
        "address": f"{zone}={address}" if zone else address,
        "started_at": datetime.now(UTC),
        "interval": interval,
        "stopped": False,
        "schema_version": NEWEST,
    }

    def measured() -> dict[str, timedelta | None]:
        return {"settings_age": settings_age(), "clock_ahead": clock.ahead}

    async def report_again_and_again() -> None:
        while True:
            with suppress(StoreUnavailableError):  # its own loops report that
                asked = clock.ask()
                ((store_at,),) = await store.run(_NOW, {})
                clock.compare(asked, store_at)
                await store.run(_REPORT, report | measured())
            await asyncio.sleep(
                interval.total_seconds() * random.uniform(_EARLIEST, 1)  # noqa: S311 (spreads load)
            )

    running = asyncio.ensure_future(report_again_and_again())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running}, timeout=_LAST_WORD)
        with suppress(StoreUnavailableError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD):
                await store.run(_REPORT, report | measured() | {"stopped": True})


async def list_services(store: Store, *, alive: bool = False) -> list[ServiceInstance]:
    """Return up to 1,000 processes, those that report before the others; with `alive` no others.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(_LIST, {"alive": alive})
    return [
        ServiceInstance(
            instance_id, service, name, version, address, HostState(state), started_at, reported_at, ahead
        )
        for instance_id, service, name, version, address, state, started_at, reported_at, ahead in rows
    ]
