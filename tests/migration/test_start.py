"""A service's first meeting with the store: it migrates only where something is to be migrated."""

import asyncio
import sys

import psycopg
import pytest

from duly_core.errors import SettingsError
from duly_core.postgres import start
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration, ready_when_there


@pytest.fixture
def migrations_run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The DSNs that were migrated since."""
    run: list[str] = []
    migrate = start._migrate

    async def counted(dsn: str, stop: asyncio.Event) -> None:
        run.append(dsn)
        await migrate(dsn, stop)

    monkeypatch.setattr(start, "_migrate", counted)
    return run


def empty(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "drop schema public cascade; create schema public; grant all on schema public to public"
        )


@pytest.mark.parametrize(("behind", "runs"), [(False, 0), (True, 1)])
async def test_migrations_run_only_where_the_schema_is_behind(
    dsn: str, migrations_run: list[str], *, behind: bool, runs: int
) -> None:
    if behind:
        empty(dsn)

    assert await ready_when_there(StoreSettings(dsn=dsn, migrate=True), asyncio.Event())

    assert len(migrations_run) == runs


@pytest.mark.long  # a whole server; the next test has the rule
async def test_services_of_one_process_migrate_once(dsn: str, migrations_run: list[str]) -> None:
    empty(dsn)
    migration, stop = Migration(), asyncio.Event()

    done = await asyncio.gather(
        *(migration.done(StoreSettings(dsn=dsn, migrate=True), stop) for _ in range(3))
    )

    assert done == [True, True, True]
    assert len(migrations_run) == 1


async def test_a_user_who_may_not_make_tables_is_told_so(dsn: str) -> None:
    empty(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("revoke all on schema public from public; grant usage on schema public to public")
        connection.execute("drop role if exists duly_reader")
        connection.execute("create role duly_reader login password 'reader'")
    reader = psycopg.conninfo.make_conninfo(dsn, user="duly_reader", password="reader")

    with pytest.raises(SettingsError, match=r"cannot migrate the store at .*grant create on schema public"):
        await ready_when_there(StoreSettings(dsn=reader, migrate=True), asyncio.Event())


IMPORTS = """
import importlib, sys
for service in ("duly_frontend", "duly_hsc", "duly_store_consumer", "duly_server"):
    importlib.import_module(f"{service}.__main__")
    if loaded := {"duly_core.postgres.schema.migrate"} & sys.modules.keys():
        sys.exit(f"{service} loads {loaded}")
"""


async def test_services_that_only_run_statements_do_not_load_what_makes_schemas() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", IMPORTS)

    assert await process.wait() == 0
