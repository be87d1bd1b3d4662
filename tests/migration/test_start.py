"""A service's first meeting with the store: it migrates only where something is to be migrated."""

import asyncio
import sys

import psycopg
import pytest

import duly_core.store.migrate as migrate_module
from duly_core.store.settings import StoreSettings
from duly_core.store.start import migrate_when_there


@pytest.fixture
def migrations_run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The DSNs that were migrated since."""
    run: list[str] = []
    migrate = migrate_module.migrate
    monkeypatch.setattr(migrate_module, "migrate", lambda dsn: (run.append(dsn), migrate(dsn)))
    return run


@pytest.mark.parametrize(("behind", "runs"), [(False, 0), (True, 1)])
async def test_migrations_run_only_where_the_schema_is_behind(
    dsn: str, migrations_run: list[str], *, behind: bool, runs: int
) -> None:
    if behind:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("delete from alembic_version")
            connection.execute(
                "drop schema public cascade; create schema public; grant all on schema public to public"
            )

    assert await migrate_when_there(StoreSettings(dsn=dsn), asyncio.Event())

    assert len(migrations_run) == runs


@pytest.mark.parametrize("service", ["duly_hsc", "duly_store_consumer"])
async def test_a_service_that_only_runs_statements_does_not_load_what_makes_schemas(service: str) -> None:
    program = (
        f"import sys, {service}.__main__; sys.exit('sqlalchemy' in sys.modules or 'alembic' in sys.modules)"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)

    assert await process.wait() == 0
