"""Bring the store's schema up to this release, one process at a time."""

from pathlib import Path

import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from duly_core.errors import StoreUnavailableError
from duly_core.store.dsn import describe, sqlalchemy_url

log = structlog.get_logger()

LOCK = 0x64756C79  # "duly": the advisory lock that only one migrating process holds


def migrate(dsn: str) -> None:
    """Run the migrations that are missing, under an advisory lock; starting services call it at once, safely.

    A schema that is newer than this release is left alone: each migration works under the previous release.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or refuses.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    engine = sa.create_engine(sqlalchemy_url(dsn), poolclass=sa.NullPool, connect_args={"connect_timeout": 5})
    try:
        with engine.connect() as connection:
            connection.execute(sa.text("set lock_timeout = '60s'"))
            connection.execute(sa.text("select pg_advisory_lock(:lock)"), {"lock": LOCK})
            connection.commit()
            try:
                current = MigrationContext.configure(connection).get_current_revision()
                if current is not None and current not in known:
                    log.warning("the store's schema is newer than this release", schema=current)
                    return
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                connection.commit()
            finally:
                connection.rollback()
                connection.execute(sa.text("select pg_advisory_unlock(:lock)"), {"lock": LOCK})
                connection.commit()
    except sa.exc.OperationalError as error:
        raise StoreUnavailableError(f"cannot migrate the store at {describe(dsn)}: {error.orig}") from error
    finally:
        engine.dispose()
