"""A service's first meeting with the store: wait for it, and check its schema, or bring that up to date."""

import asyncio
import os
import signal
import sys
from collections import defaultdict
from contextlib import suppress

import structlog

from duly_core.errors import DulyError, SettingsError, StoreUnavailableError
from duly_core.postgres.dsn import describe, parse
from duly_core.postgres.password import full_address
from duly_core.postgres.schema.check import SchemaState, check_store, look_at_schema
from duly_core.postgres.settings import StoreSettings, direct
from duly_core.process.current_cell import current_cell
from duly_core.process.loop import backoff, wait_for, worth_logging
from duly_core.process.parent import PARENT_PID

log = structlog.get_logger()

MIGRATE_DSN = "DULY_MIGRATE_DSN"
"""Tells the migrating process which store to migrate: a DSN may have a password, so it is no argument."""


class Migration:
    """Makes each store ready once for all services of one process."""

    def __init__(self) -> None:
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By address: a store that is away holds up no other."""

    async def done(self, settings: StoreSettings, stop: asyncio.Event, role: str | None = None) -> bool:
        """Return when the store is ready; False if `stop` came first. See `ready_when_there`."""
        async with self._turns[settings.dsn]:
            return await ready_when_there(settings, stop, role)


async def ready_when_there(settings: StoreSettings, stop: asyncio.Event, role: str | None = None) -> bool:
    """Check the store as soon as Postgres answers; services may start before it does. False if `stop` came first.

    With `store.migrate` a schema that is missing or older is brought up to date. In a cell none is made: its tasks would be hidden. `role` has the rights that are needed.

    Raises:
        SettingsError: the DSN is not an address at all, or the schema or a right is missing.
    """
    parse(settings.dsn)
    failures = 0
    while not stop.is_set():
        try:
            state = await look_at_schema(settings) if settings.migrate else SchemaState.USABLE
            if state is SchemaState.MISSING and (cell := current_cell.get()):
                raise SettingsError(
                    f"cell {cell} is at {describe(settings.dsn)}, and no schema of Duly is there: restore it from a backup, or say where the "
                    f"cell is: `duly cells set {cell} --at ADDRESS`"
                )
            if state is not SchemaState.USABLE:
                await _migrate(await asyncio.to_thread(_past_the_pooler, settings), stop)
                if stop.is_set():
                    return False
            await check_store(settings, role)
        except StoreUnavailableError as error:
            failures += 1
            if worth_logging(failures):
                log.warning("waiting for Postgres (store.dsn)", reason=str(error), failures=failures)
            await wait_for(stop, backoff(failures))
        else:
            return not stop.is_set()
    return False


async def _migrate(dsn: str, stop: asyncio.Event) -> None:
    """Migrate in a process of its own, so that what makes schemas does not stay in a service's memory.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or the process was killed.
        DulyError: the migration cannot be done; says why.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",
        "-m",
        "duly_core.postgres.schema.migrate",
        env=os.environ | {MIGRATE_DSN: dsn, PARENT_PID: str(os.getpid())},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    saying = asyncio.ensure_future(process.communicate())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([saying, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not saying.done():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
    said, _ = await saying
    reason = said.decode(errors="replace").strip()
    if process.returncode == 0 or stop.is_set():
        return
    if process.returncode == os.EX_CONFIG:
        raise SettingsError(reason)
    if process.returncode == os.EX_UNAVAILABLE or (process.returncode or 0) < 0:
        raise StoreUnavailableError(reason or "the migrating process was killed")
    raise DulyError("the schema cannot be brought up to date; the log above says why")


def _past_the_pooler(settings: StoreSettings) -> str:
    address = direct(settings)
    if address.pooled:
        raise StoreUnavailableError(
            "the schema is not this release's, and a pooler is no way to migrate: set store.direct_dsn, "
            "or run `duly migrate --dsn` with the address of Postgres itself"
        )
    return full_address(address)
