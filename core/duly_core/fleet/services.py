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
from duly_core.fleet.host_reads import STATE
from duly_core.fleet.hosts import MISSED_REPORTS, HostState
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import Statement
from duly_core.process.identity import host_name
from duly_core.process.version import duly_version

_INTERVAL = timedelta(seconds=10)
_EARLIEST = 0.8
_LAST_WORD = 1.0
"""Seconds, at most, to say that a process has ended."""
_MOST = 1_000


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


_REPORT = Statement(
    "report_service",
    """
insert into service_instance (
    instance_id, service, host_name, version, address, started_at, reported_at, report_interval, stopped,
    settings_read_at
)
values (
    %(instance_id)b::text, %(service)b::text, %(host_name)b::text, %(version)b::text, %(address)b::text,
    %(started_at)b::timestamptz, duly_now(), %(interval)b::interval, %(stopped)b::boolean,
    duly_now() - %(settings_age)b::interval
)
on conflict (instance_id) do update
set reported_at = excluded.reported_at, stopped = excluded.stopped, settings_read_at = excluded.settings_read_at
returning instance_id
""",
)

_LIST = Statement(
    "list_services",
    f"""
select instance_id, service, host_name, version, address, {STATE.replace("host.", "each.")}, started_at, reported_at
from (select *, false as draining from service_instance) as each
where not %(alive)b::boolean
    or not each.stopped and each.reported_at > duly_now() - {MISSED_REPORTS} * each.report_interval
order by each.stopped, each.reported_at < duly_now() - {MISSED_REPORTS} * each.report_interval, each.service, each.instance_id
limit {_MOST}
""",  # noqa: S608 (constants)
)


@asynccontextmanager
async def reporting(
    store: Store, service: str, address: str, settings_age: Callable[[], timedelta | None] = lambda: None
) -> AsyncIterator[None]:
    """Report this process while the block lasts, and at its end that it has stopped. A store that is away is no error.

    `settings_age` tells how long ago it read the live settings; None: it has not.
    """
    report = {
        "instance_id": f"{host_name()}:{os.getpid()}:{uuid4().hex[:8]}",
        "service": service,
        "host_name": host_name(),
        "version": duly_version(),
        "address": address,
        "started_at": datetime.now(UTC),
        "interval": _INTERVAL,
        "stopped": False,
    }

    async def report_again_and_again() -> None:
        while True:
            with suppress(StoreUnavailableError):  # its own loops report that
                await store.run(_REPORT, report | {"settings_age": settings_age()})
            await asyncio.sleep(
                _INTERVAL.total_seconds() * random.uniform(_EARLIEST, 1)  # noqa: S311 (spreads load)
            )

    running = asyncio.ensure_future(report_again_and_again())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait({running}, timeout=_LAST_WORD)
        with suppress(StoreUnavailableError, TimeoutError):
            async with asyncio.timeout(_LAST_WORD):
                await store.run(_REPORT, report | {"stopped": True, "settings_age": settings_age()})


async def list_services(store: Store, *, alive: bool = False) -> list[ServiceInstance]:
    """Return up to 1,000 processes, those that report before the others; with `alive` no others.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(_LIST, {"alive": alive})
    return [
        ServiceInstance(
            instance_id, service, name, version, address, HostState(state), started_at, reported_at
        )
        for instance_id, service, name, version, address, state, started_at, reported_at in rows
    ]
