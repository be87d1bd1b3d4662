"""Brings the store's schema up to this release, step by step, one process at a time.

`python -m duly_core.postgres.schema.migrate` does so for a service that starts, and prints a refusal to stdout.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import psycopg
import structlog
from psycopg.rows import TupleRow

from duly_core.errors import DulyError, SettingsError, StoreUnavailableError
from duly_core.postgres.admin_connection import CONNECT
from duly_core.postgres.dsn import describe, parse
from duly_core.postgres.schema import indexes
from duly_core.postgres.schema.comparison import cannot_compare, keep_or_compare
from duly_core.postgres.schema.definition import schema_sql
from duly_core.postgres.schema.processes import older_processes
from duly_core.postgres.schema.steps import FIRST, STEPS, Kind, Step, needed, newest
from duly_core.postgres.settings import SCHEMA_NAME
from duly_core.postgres.start import MIGRATE_DSN
from duly_core.postgres.statements import load
from duly_core.process.parent import die_with_parent
from duly_core.process.telemetry import TelemetrySettings, set_up_logging

log = structlog.get_logger()

LOCK = 0x64756C79  # "duly": the advisory lock that only one migrating process of a schema holds

_SESSION = (
    # what a role behind a pooler is given is for the task path: here whole tables are read, for as long as it takes
    "statement_timeout = 0",
    "idle_in_transaction_session_timeout = 0",
    "enable_seqscan = on",
    "enable_bitmapscan = on",
    "enable_hashjoin = on",
    "enable_mergejoin = on",
)
_LOCK_TIMEOUT = timedelta(milliseconds=500)
"""While a step waits for a table, all others wait behind it: so it waits briefly, gives up, and tries again."""
_RETRY_FOR = timedelta(seconds=60)
_LONGEST_PAUSE = timedelta(seconds=2)

_LONGEST_WAIT = timedelta(seconds=10)
_ASK_AGAIN = timedelta(milliseconds=50)

BATCH = 1000
"""The rows that a backfill changes in a transaction."""

Connection = psycopg.Connection[TupleRow]

_CATALOGUE = load("postgres/catalogue.sql")
_OLDEST, _TRY_LOCK = _CATALOGUE["oldest_transactions"], _CATALOGUE["try_to_lock_schema"]


@dataclass(frozen=True, slots=True)
class Migrated:
    """What `migrate` did."""

    done: tuple[Step, ...]
    waiting: Step | None
    """The contract step that did not run."""
    waits_for: tuple[str, ...]
    """The processes that it waits for, in words; empty: contract steps were not asked for."""


def migrate(dsn: str, *, contract: bool = False, steps: Sequence[Step] = STEPS) -> Migrated:
    """Run the steps that are missing, under an advisory lock; starting services call it at once, safely.

    Contract steps at the end run with `contract` alone, and when no process of an older release is alive. A schema that is newer
    than this release is left alone: each step works under the release before. One that was there before is compared with
    this release's, unless it is as the last migration left it.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or another process holds the schema, or a table, for long.
        SettingsError: the user may not create tables, the schema is older than the base release, a contract step must run first
            and may not yet, or the schema has this release's version and is another.
    """
    parse(dsn)
    where = describe(dsn)
    try:
        with psycopg.connect(dsn, autocommit=True, **CONNECT) as connection:  # type: ignore[arg-type]  # libpq takes them as text
            for setting in _SESSION:
                connection.execute(f"set {setting}".encode())
            _lock(connection)
            migrated = _Migration(connection, dsn, tuple(steps)).run(contract=contract)
            connection.execute("select pg_advisory_unlock_all()")
            return migrated
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"the store at {where} cannot be reached: {_line(error)}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SettingsError(
            f"cannot migrate the store at {where}: {_line(error)}; let the user of store.dsn create tables there "
            "(grant create on schema public to that user; for a schema that is missing: grant create on database), or run "
            "`duly migrate --dsn` as one who may"
        ) from error


class _Migration:
    """One run over a connection that holds the lock."""

    def __init__(self, connection: Connection, dsn: str, steps: tuple[Step, ...]) -> None:
        self._connection = connection
        self._dsn = dsn
        self._steps = steps

    def run(self, *, contract: bool) -> Migrated:
        current = version_of(self._connection)
        if current is None:
            self._create()
            return Migrated((), None, ())
        if current < FIRST:
            raise SettingsError(
                f"the schema of the store at {describe(self._dsn)} was made before the first release: "
                "make a new database, and name it in store.dsn"
            )
        if current > newest(self._steps):
            log.warning("schema newer than this release", schema=current)
            return Migrated((), None, ())
        done: list[Step] = []
        waiting: Step | None = None
        waits_for: list[str] = []
        for step in self._steps:
            if step.version <= current:
                continue
            if step.kind is Kind.CONTRACT:
                waits_for = self._waits_for(step)
                if waits_for or (not contract and step.version > needed(self._steps)):
                    waiting = step
                    break
            self._run(step)
            done.append(step)
        reached = version_of(self._connection) or FIRST
        try:
            keep_or_compare(self._connection, self._dsn, reached, self._steps)
        except psycopg.errors.InsufficientPrivilege as error:
            raise cannot_compare(self._dsn, error) from error
        return Migrated(tuple(done), waiting, tuple(waits_for))

    def _waits_for(self, step: Step) -> list[str]:
        """Return the processes that a contract step waits for.

        Raises:
            SettingsError: there are some, and this release needs a later step.
        """
        processes = older_processes(self._connection, step.version)
        if processes and step.version < needed(self._steps):
            raise SettingsError(
                f"step {step.version} of the schema takes away what older releases use, and these processes are of "
                f"one: {', '.join(processes)}; end them, and run `duly migrate` again"
            )
        return processes

    def _create(self) -> None:
        """Make this release's schema at once: where there is none, there is nothing to upgrade."""
        with self._connection.transaction():
            self._make_schema()
            schema = self._schema()
            self._connection.execute(
                "create table alembic_version (version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num))"
            )
            self._connection.execute(schema_sql(schema).encode())
            self._connection.execute("insert into alembic_version values (%s)", [newest(STEPS)])
        keep_or_compare(self._connection, self._dsn, newest(STEPS), STEPS, is_new=True)

    def _make_schema(self) -> None:
        """Make the schema of the search path (`store.schema_name`) if it is missing.

        Raises:
            SettingsError: the search path has no schema that exists, and does not name one alone.
        """
        ((home, path),) = self._connection.execute(
            "select current_schema(), current_setting('search_path')"
        ).fetchall()
        if home is not None:
            return
        if not SCHEMA_NAME.fullmatch(path):
            raise SettingsError(
                f"the search path at {describe(self._dsn)} ({path}) has no schema that exists: set store.schema_name"
            )
        self._connection.execute(f"create schema {path}".encode())

    def _run(self, step: Step) -> None:
        log.info("schema: step begins", step=step.version, kind=str(step.kind), name=step.name)
        sql = step.sql(self._schema())
        match step.kind:
            case Kind.EXPAND | Kind.CONTRACT:
                self._patiently(step, lambda: self._in_a_transaction(step, sql))
            case Kind.INDEX:
                indexes.build(self._connection, sql, partial(self._patiently, step))
                self._reached(step)
            case Kind.BACKFILL:
                self._backfill(step, sql)
        log.info("schema: step done", step=step.version)

    def _in_a_transaction(self, step: Step, sql: str) -> None:
        with self._connection.transaction():
            self._connection.execute(sql.encode())
            self._reached(step)

    def _backfill(self, step: Step, sql: str) -> None:
        """Change rows batch by batch, and rest between them as long as a batch took: others want the disk, too."""
        changed = 0
        while True:
            began = time.monotonic()
            count = self._patiently(
                step, lambda: self._connection.execute(sql.encode(), {"batch": BATCH}).rowcount
            )
            if count == 0:
                break
            changed += count
            log.info("schema: rows changed", step=step.version, rows=changed)
            time.sleep(min(time.monotonic() - began, _LONGEST_PAUSE.total_seconds()))
        self._reached(step)

    def _reached(self, step: Step) -> None:
        self._connection.execute("update alembic_version set version_num = %s", [step.version])

    def _patiently(
        self, step: Step, work: Callable[[], int | None], timeout: timedelta = _LOCK_TIMEOUT
    ) -> int:
        """Do what may have to wait for others' locks: give up early, so that nobody waits behind it, and try again.

        Raises:
            StoreUnavailableError: somebody holds a table for long.
        """
        self._connection.execute(f"set lock_timeout = {_milliseconds(timeout)}".encode())
        end = time.monotonic() + _RETRY_FOR.total_seconds()
        pause = _ASK_AGAIN.total_seconds()
        while True:
            try:
                return work() or 0
            except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected) as error:
                if time.monotonic() > end:
                    oldest = [text for (text,) in self._connection.execute(_OLDEST.sql, {})]
                    raise StoreUnavailableError(
                        f"step {step.version} of the schema waits for a table that others hold ({_line(error)}); the oldest "
                        f"transactions: {'; '.join(oldest) or 'none now'}. What was done stays; run `duly migrate` again"
                    ) from error
            time.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 (spreads load)
            pause = min(2 * pause, _LONGEST_PAUSE.total_seconds())

    def _schema(self) -> str:
        ((schema,),) = self._connection.execute("select quote_ident(current_schema())").fetchall()
        return str(schema)


def version_of(connection: Connection) -> str | None:
    """Return the version of the schema that is there; None: there is none."""
    row = connection.execute("select to_regclass('alembic_version') is not null").fetchone()
    if row != (True,):
        return None
    found = connection.execute("select version_num from alembic_version").fetchone()
    return None if found is None else str(found[0])


def _lock(connection: Connection) -> None:
    """Take the lock, asking for it again and again: a statement that waits has a snapshot, and for those with an old
    snapshot an index that is built concurrently waits.

    Raises:
        StoreUnavailableError: another process migrates, and takes its time.
    """
    end = time.monotonic() + _LONGEST_WAIT.total_seconds()
    while True:
        taken = connection.execute(_TRY_LOCK.sql.encode(), {"lock": LOCK}).fetchone()
        if taken == (True,):
            return
        if time.monotonic() > end:
            raise StoreUnavailableError("another process brings the schema up to date, and is not done yet")
        time.sleep(_ASK_AGAIN.total_seconds())


def _milliseconds(time: timedelta) -> int:
    return time // timedelta(milliseconds=1)


def _line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]


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
