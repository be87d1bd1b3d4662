"""Bring the store's schema up to this release, one process at a time.

`python -m duly_core.postgres.schema.migrate` does so for a service that starts, and tells a refusal on stdout.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import psycopg
import sqlalchemy as sa
import structlog
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from duly_core.errors import DulyError, SettingsError, StoreUnavailableError
from duly_core.postgres.admin_connection import CONNECT
from duly_core.postgres.dsn import describe
from duly_core.postgres.schema.comparison import cannot_compare, keep_or_compare
from duly_core.postgres.schema.digest import FIRST
from duly_core.postgres.schema.migrations.url import sqlalchemy_url
from duly_core.postgres.start import MIGRATE_DSN
from duly_core.process.parent import die_with_parent
from duly_core.process.telemetry import TelemetrySettings, set_up_logging

log = structlog.get_logger()

LOCK = 0x64756C79  # "duly": the advisory lock that only one migrating process holds

_SESSION = (
    # somebody holds a table: whoever waits tries again, and holds nobody up
    "lock_timeout = '10s'",
    # what a role behind a pooler is given is for the task path: here whole tables are read, for as long as it takes
    "statement_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
    "enable_seqscan = on",
    "enable_bitmapscan = on",
    "enable_hashjoin = on",
    "enable_mergejoin = on",
)

_LONGEST_WAIT = timedelta(seconds=10)
_ASK_AGAIN = timedelta(milliseconds=50)


def migrate(dsn: str) -> None:
    """Run the migrations that are missing, under an advisory lock; starting services call it at once, safely.

    A schema that is newer than this release is left alone: each migration works under the previous release. One that was
    there before is compared with this release's, unless it is as the last migration left it.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or another process holds the schema for long.
        SettingsError: the user may not create tables, the schema is older than the first release, or it has this release's
            version and is another.
    """
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    engine = sa.create_engine(sqlalchemy_url(dsn), poolclass=sa.NullPool, connect_args=CONNECT)
    try:
        with engine.connect() as connection:
            for setting in _SESSION:
                connection.execute(sa.text(f"set {setting}"))
            _lock(connection)
            try:
                current = MigrationContext.configure(connection).get_current_revision()
                connection.commit()  # each migration has transactions of its own
                if current is not None and current < FIRST:
                    raise SettingsError(
                        f"the schema of the store at {describe(dsn)} was made before the first release: "
                        "make a new database, and name it in store.dsn"
                    )
                if current is not None and current not in known:
                    log.warning("schema newer than this release", schema=current)
                    return
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
                connection.commit()
                _keep_or_compare(connection, dsn, is_new=current is None)
            finally:
                connection.rollback()
                connection.execute(sa.text("select pg_advisory_unlock(:lock)"), {"lock": LOCK})
                connection.commit()
    except sa.exc.OperationalError as error:
        reason = str(error.orig).strip().splitlines()[0]
        raise StoreUnavailableError(f"the store at {describe(dsn)} cannot be reached: {reason}") from error
    except sa.exc.ProgrammingError as error:
        if not isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
            raise
        reason = str(error.orig).strip().splitlines()[0]
        raise SettingsError(
            f"cannot migrate the store at {describe(dsn)}: {reason}; let the user of store.dsn create tables there "
            "(grant create on schema public to that user), or run `duly migrate --dsn` as one who may"
        ) from error
    finally:
        engine.dispose()


def _keep_or_compare(connection: sa.Connection, dsn: str, *, is_new: bool) -> None:
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError("SQLAlchemy uses another driver than psycopg")
    try:
        keep_or_compare(driver, dsn, is_new=is_new)
    except psycopg.errors.InsufficientPrivilege as error:
        raise cannot_compare(dsn, error) from error
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"the store at {describe(dsn)} does not answer: {error}") from error
    finally:
        driver.rollback()


def _lock(connection: sa.Connection) -> None:
    """Take the lock, asking for it again and again: a statement that waits has a snapshot, and for those with an old
    snapshot an index that is built concurrently waits.

    Raises:
        StoreUnavailableError: another process migrates, and takes its time.
    """
    end = time.monotonic() + _LONGEST_WAIT.total_seconds()
    while True:
        taken = connection.execute(sa.text("select pg_try_advisory_lock(:lock)"), {"lock": LOCK}).scalar()
        connection.commit()
        if taken:
            return
        if time.monotonic() > end:
            raise StoreUnavailableError("another process brings the schema up to date, and is not done yet")
        time.sleep(_ASK_AGAIN.total_seconds())


def main() -> None:
    """Migrate the store that the environment names; the exit code says who must act on a refusal."""
    die_with_parent()
    set_up_logging("migration", TelemetrySettings.load())
    try:
        migrate(os.environ[MIGRATE_DSN])
    except DulyError as error:
        print(error, flush=True)  # noqa: T201 (the service that started this process reads it)
        sys.exit(os.EX_UNAVAILABLE if isinstance(error, StoreUnavailableError) else os.EX_CONFIG)


if __name__ == "__main__":
    main()
