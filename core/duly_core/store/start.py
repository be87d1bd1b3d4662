"""A service's first meeting with the store: wait for it, and bring its schema up to date."""

import asyncio
from pathlib import Path

import psycopg
import structlog

from duly_core.errors import StoreUnavailableError
from duly_core.loop import backoff, wait_for, worth_telling
from duly_core.store.dsn import parse
from duly_core.store.pool import connect_arguments
from duly_core.store.settings import StoreSettings, direct

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
            if not await _is_up_to_date(settings):
                # imported only now: a service that is started anew is there a second sooner without it
                from duly_core.store.migrate import migrate

                await asyncio.to_thread(migrate, _past_the_pooler(settings))
        except StoreUnavailableError as error:
            failures += 1
            if worth_telling(failures):
                log.warning("waiting for Postgres (store.dsn)", reason=str(error), failures=failures)
            await wait_for(stop, backoff(failures))
        else:
            return True
    return False


def _past_the_pooler(settings: StoreSettings) -> str:
    address = direct(settings)
    if address.pooled:
        raise StoreUnavailableError(
            "the schema is not this release's, and a pooler is no way to migrate: set store.direct_dsn, "
            "or run `duly migrate --dsn` with the address of Postgres itself"
        )
    return address.dsn


async def _is_up_to_date(settings: StoreSettings) -> bool:
    """Whether the schema is just this release's; if it cannot be told, whoever migrates finds out and says why."""
    newest = max(path.stem for path in (Path(__file__).parent / "migrations" / "versions").glob("[0-9]*.py"))
    try:
        async with await psycopg.AsyncConnection.connect(
            **connect_arguments(settings), autocommit=True
        ) as connection:
            cursor = await connection.execute("select version_num from alembic_version")
            return await cursor.fetchone() == (newest.split("_")[0],)
    except psycopg.Error:
        return False
