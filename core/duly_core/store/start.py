"""A service's first meeting with the store: wait for it, and bring its schema up to date."""

import asyncio

import structlog

from duly_core.errors import StoreUnavailableError
from duly_core.loop import backoff, wait_for, worth_telling
from duly_core.store.dsn import parse
from duly_core.store.migrate import migrate
from duly_core.store.settings import StoreSettings

log = structlog.get_logger()


async def migrate_when_there(settings: StoreSettings, stop: asyncio.Event) -> bool:
    """Migrate as soon as Postgres answers; services may start before it does. False if `stop` came first.

    Raises:
        SettingsError: the DSN is no address at all.
    """
    parse(settings.dsn)
    failures = 0
    while not stop.is_set():
        try:
            await asyncio.to_thread(migrate, settings.dsn)
        except StoreUnavailableError as error:
            failures += 1
            if worth_telling(failures):
                log.warning("waiting for Postgres (store.dsn)", reason=str(error), failures=failures)
            await wait_for(stop, backoff(failures))
        else:
            return True
    return False
