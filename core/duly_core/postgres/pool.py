"""Connections to the store: one pool a process, with a bound on every wait."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar, cast
from weakref import WeakValueDictionary

import psycopg
import psycopg_pool
from psycopg.adapt import Loader
from psycopg.pq import Format
from psycopg.rows import AsyncRowFactory, TupleRow, tuple_row

from duly_core.errors import (
    CellFencedError,
    DulyError,
    NoConnectionError,
    NotInCellError,
    RowLockedError,
    StatementTimeoutError,
    StoreUnavailableError,
)
from duly_core.postgres import arrays
from duly_core.postgres import session_options as session
from duly_core.postgres.connection import Connection as OwnConnection
from duly_core.postgres.connection import PendingConnects, connection_of, hang_up
from duly_core.postgres.dsn import describe, parse
from duly_core.postgres.password import read_password_in_thread
from duly_core.postgres.prepared import Prepared, Query
from duly_core.postgres.refusals import REFUSED, StatementRefusals
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import Statement
from duly_core.process.current_cell import cell_fenced

Connection = psycopg.AsyncConnection[TupleRow]
Row = TypeVar("Row")

_BYTEA_OID = 17


class Step(NamedTuple, Generic[Row]):
    """A statement that goes with others in one transaction."""

    statement: Statement
    parameters: Mapping[str, Any]
    shape: AsyncRowFactory[Row]
    """Makes its rows (rows.py)."""


_RECONNECT = timedelta(seconds=1)
"""How long the pool tries again by itself; after that a caller who needs a connection makes it try again, so that an
outage is not prolonged by a backoff that grew with it."""

_UNAVAILABLE = (
    psycopg.OperationalError,  # lost connections, timeouts (57014), shutdowns and deadlocks alike
    psycopg.errors.IdleInTransactionSessionTimeout,  # this process stood still in a transaction
    psycopg_pool.PoolTimeout,
    psycopg_pool.PoolClosed,
    psycopg.errors.ReadOnlySqlTransaction,  # a standby: the primary is elsewhere, or will be
    psycopg.errors.FeatureNotSupported,  # a standby again: it has no unlogged tables
)
"""What may pass without a change of ours: the caller tries again."""

_KINDS: Mapping[type[BaseException], type[StoreUnavailableError]] = {
    psycopg.errors.LockNotAvailable: RowLockedError,
    psycopg.errors.QueryCanceled: StatementTimeoutError,
    psycopg_pool.PoolTimeout: NoConnectionError,
}

_FENCED, _NOT_IN_CELL = "DU001", "DU002"
"""SQLSTATEs of the triggers of cells (cells/functions.sql)."""

_GIVEN_BACK_AFTER, _KEPT_FOR = timedelta(seconds=15), timedelta(minutes=10)
"""How long a connection stays that nobody needs."""

_IS_STANDBY = Statement("is_standby", "select pg_is_in_recovery()")

_SPARED_FOR = 0.25
"""Seconds that a statement waits for another one rather than for a connection of its own, which costs as much as many statements."""

_GRACE = timedelta(seconds=1)
"""How much longer than statement_timeout a connection may be held: by then the server would have answered."""

# Characters of a statement that psycopg does not parse anew each time; its own limit is 4,096. The statements of tasks do not
# vary, and the longest are `claim_work` and `fail`: to parse these took up to 70 us of CPU for each group.
with suppress(ImportError):  # it is private to psycopg; without it all works as before
    from psycopg import _queries

    _queries.MAX_CACHED_STATEMENT_LENGTH = 32 * 1024

_BYTES_LOADER = cast("type[Loader]", psycopg.adapters.get_loader(_BYTEA_OID, Format.BINARY))
"""psycopg's own of bytea, which is written in C."""


async def _configure(connection: Connection) -> None:
    await connection.set_autocommit(True)
    connection.prepare_threshold = 0
    for kind in arrays.KINDS:
        connection.adapters.register_dumper(kind, arrays.dumper(kind))
    # a UUID's 16 bytes as they come: no UUID object is made on the hot path
    connection.adapters.register_loader(arrays.UUID.ELEMENT, _BYTES_LOADER)


async def _configure_pooled(connection: Connection) -> None:
    """Behind a pooler the next transaction may be in another session, which knows nothing of this one's statements."""
    await _configure(connection)
    connection.prepare_threshold = None


def application_name(settings: StoreSettings) -> str:
    """Return how Postgres calls the sessions of services of a store."""
    return f"duly {settings.schema_name}" if settings.schema_name not in ("", "public") else "duly"


def connect_arguments(settings: StoreSettings, lock_timeout: timedelta | None = None) -> dict[str, Any]:
    """libpq parameters with every wait bounded: connecting, a statement, a lock, a dead peer."""
    return {
        **parse(settings.dsn),
        "connect_timeout": max(2, round(settings.connect_timeout.total_seconds())),
        "keepalives_idle": 5,
        "keepalives_interval": 3,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "application_name": application_name(settings),
        "client_encoding": "utf8",  # what arrays.py writes, whatever the environment or the database says
        **session.start_up(settings, lock_timeout),
    }


async def connect_arguments_now(
    settings: StoreSettings, lock_timeout: timedelta | None = None
) -> dict[str, Any]:
    """The same with the password as it is now, for one connection.

    Raises:
        StoreUnavailableError: the password cannot be read.
    """
    password = await read_password_in_thread(settings)
    arguments = connect_arguments(settings, lock_timeout)
    return arguments if password is None else arguments | {"password": password}


def is_refused(error: BaseException) -> bool:
    """Tell whether Postgres refused a statement, so that nothing of its transaction is written."""
    return isinstance(error, psycopg.Error) and error.sqlstate is not None


def is_repeated(error: BaseException) -> bool:
    """Tell whether it refused a row because there is one with the same key."""
    return isinstance(error, psycopg.errors.UniqueViolation)


class Answers:
    """When a Postgres last did what it was told by this process: shared by all pools to it."""

    _KNOWN: ClassVar[WeakValueDictionary[str, "Answers"]] = WeakValueDictionary()

    def __init__(self) -> None:
        self.at = float("-inf")
        """On the loop's clock."""
        self.asked_at = float("-inf")
        """When it was asked last only to see whether it answers."""

    @classmethod
    def of(cls, dsn: str) -> "Answers":
        """Return those of an address."""
        found = cls._KNOWN.get(dsn)
        if found is None:
            found = cls._KNOWN[dsn] = cls()
        return found


class Store:
    """The pool, and how a statement is run; what the statements say is in the other modules."""

    def __init__(
        self,
        settings: StoreSettings,
        lock_timeout: timedelta | None = None,
        *,
        gives_back: bool = False,
        spares: Callable[[], bool] | None = None,
    ) -> None:
        """Make one.

        Args:
            settings: of the store.
            lock_timeout: a statement waits for a lock no longer; None: as long as it may run.
            gives_back: whether connections are closed that nobody needs for a while; else one is kept.
            spares: tells whether to wait for a moment, rather than to open a second connection; None: never.
        """
        self.spares = spares
        """Tells whether to wait for a moment, rather than to open a second connection."""
        self._turn = asyncio.Lock()
        """Is held, while connections are spared, by who has one."""
        parse(settings.dsn)
        self.settings = settings
        self.longest_held = (settings.statement_timeout + _GRACE).total_seconds()
        """Seconds; whoever holds a connection for longer is hung up on."""
        self.answers = Answers.of(settings.dsn)
        self.answered_at = float("-inf")
        """When Postgres last did what it was asked, on the loop's clock."""
        self._refusals = StatementRefusals()
        self._connecting = PendingConnects()
        self._cell_fenced = cell_fenced.get()
        self._pool: psycopg_pool.AsyncConnectionPool[OwnConnection] = psycopg_pool.AsyncConnectionPool(
            connection_class=self._connecting.connection_class,
            kwargs=partial(connect_arguments_now, settings, lock_timeout),
            min_size=0 if gives_back else 1,
            max_idle=(_GIVEN_BACK_AFTER if gives_back else _KEPT_FOR).total_seconds(),
            max_size=settings.connections,
            timeout=settings.acquire_timeout.total_seconds(),
            reconnect_timeout=_RECONNECT.total_seconds(),
            configure=_configure_pooled if settings.pooled else _configure,
            open=False,
        )

    async def __aenter__(self) -> Self:
        await self._pool.open(wait=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.close(timeout=2)
        await self._connecting.abandon()

    @property
    def where(self) -> str:
        """Host, port and database, for messages."""
        return describe(self.settings.dsn)

    async def take_turn(self) -> bool:
        """Wait for a moment until nobody else has a connection, if they are spared; return whether `end_turn` must be called."""
        if self.spares is None or not self.spares():
            return False
        try:
            async with asyncio.timeout(_SPARED_FOR):
                return await self._turn.acquire()
        except TimeoutError:  # the other one takes its time
            return False

    def end_turn(self) -> None:
        """Let others have a connection."""
        self._turn.release()

    def refusal(self) -> str | None:
        """Return what Postgres refuses until somebody acts; None: nothing."""
        reason = self._refusals.lasting()
        return reason and f"Postgres at {self.where} refuses statements: {reason}"

    def connection(self) -> "_Lent":
        """Lend a connection in autocommit mode, for an `async with`.

        Raises:
            StoreUnavailableError: no connection is available, it was lost, or the statement timed out.
            RowLockedError: one of these, too; the statement waited too long for a row that somebody else holds.
        """
        return _Lent(self, self._pool)

    def problem(self, error: BaseException | None, *, hung: bool) -> DulyError | None:
        """What an error of psycopg means to whoever asked the store; None: it is not the store's."""
        if isinstance(error, psycopg.errors.UndefinedTable) and self.answered_at == float("-inf"):
            # a service that starts makes the schema, or reports why it cannot
            return StoreUnavailableError(f"Postgres at {self.where} has no schema of Duly yet")
        if isinstance(error, REFUSED):
            return self._refusals.note(error, self.where)
        if isinstance(error, _UNAVAILABLE):
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            if hung:
                reason = f"no answer within {self.longest_held:g} s"
            return _KINDS.get(type(error), StoreUnavailableError)(
                f"Postgres at {self.where} did not do it: {reason}"
            )
        if isinstance(error, psycopg.Error) and error.sqlstate == _FENCED:
            self._cell_fenced()
            return CellFencedError(f"Postgres at {self.where} did not do it: {error.diag.message_primary}")
        if isinstance(error, psycopg.Error) and error.sqlstate == _NOT_IN_CELL:
            return NotInCellError(str(error.diag.message_primary))
        if isinstance(error, psycopg.errors.CheckViolation) and error.diag.constraint_name is None:
            # a row on its way to the default partition stood behind the one that its partition was made with
            return StoreUnavailableError(f"Postgres at {self.where} made a partition meanwhile")
        return None

    async def run(self, statement: Statement, parameters: Mapping[str, Any]) -> list[TupleRow]:
        """Run one statement in a transaction of its own and fetch its rows."""
        return await self.run_as(tuple_row, statement, parameters)

    async def run_as(
        self, shape: AsyncRowFactory[Row], statement: Statement, parameters: Mapping[str, Any]
    ) -> list[Row]:
        """Do the same, with rows as `shape` makes them (rows.py)."""
        async with self.connection() as connection:
            return await fetch_as(shape, connection, statement, parameters)

    async def run_step(self, step: Step[Row]) -> list[Row]:
        """Run one statement in a transaction of its own and fetch its rows."""
        return await self.run_as(step.shape, step.statement, step.parameters)

    async def run_together(self, *steps: Step[Any]) -> list[list[Any]]:
        """Run statements in one transaction and one round trip; the rows of each. None may need the rows of another."""
        async with self.connection() as connection:
            if (prepared := _prepared(connection)) and not any(step.statement.anew for step in steps):
                queries = [Query(step.shape, step.statement.sql, step.parameters) for step in steps]
                return await prepared.fetch_together(queries)
            # no statement begins the transaction: it ends with the pipeline
            async with connection.pipeline():
                cursors = [await _execute(connection, *step) for step in steps]
            return [await cursor.fetchall() for cursor in cursors]

    async def discard_broken(self) -> None:
        """Look at each idle connection, so that nobody is lent one that was hung up."""
        with suppress(psycopg.Error, psycopg_pool.PoolClosed):
            await self._pool.check()

    async def ping(self) -> None:
        """Ask Postgres whether it can be written to.

        Raises:
            StoreUnavailableError: it does not answer, or is a standby.
        """
        async with self.connection() as connection:
            if await fetch(connection, _IS_STANDBY, {}) == [(True,)]:
                raise StoreUnavailableError(f"Postgres at {self.where} is a standby")


StoreNow = Callable[[], Store]
"""Returns the store to use now: that of a cell may be another one tomorrow."""


def store_now(store: Store | StoreNow) -> StoreNow:
    """Return what returns this store, if it is one."""
    return (lambda: store) if isinstance(store, Store) else store


class _Lent:
    """A connection on loan. Written out: as nested context managers it cost a fifth of a small RPC's Python."""

    def __init__(self, store: Store, pool: "psycopg_pool.AsyncConnectionPool[OwnConnection]") -> None:
        self._store = store
        self._pool = pool
        self._hung = False
        self._has_turn = False

    async def __aenter__(self) -> Connection:
        loop = asyncio.get_running_loop()
        if self._store.spares is not None:
            self._has_turn = await self._store.take_turn()
        try:
            self._connection = await self._acquire(loop)
        except BaseException as error:
            self._end_turn()
            if not isinstance(error, _UNAVAILABLE):
                raise
            raise self._store.problem(error, hung=False) or error from error
        # a server that hangs keeps the peer alive and ends no statement: only we can end the wait
        self._watch = loop.call_later(self._store.longest_held, self._hang_up)
        self._connection.lent_at = loop.time()
        return self._connection

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._watch.cancel()
        self._connection.lent_at = None
        if error is None:
            self._store.answered_at = self._store.answers.at = asyncio.get_running_loop().time()
        try:
            await self._pool.putconn(self._connection)  # which looks at the state that it is in
        finally:
            self._end_turn()
        problem = self._store.problem(error, hung=self._hung)
        if problem is not None:
            raise problem from error

    def _end_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            self._store.end_turn()

    async def _acquire(self, loop: asyncio.AbstractEventLoop) -> OwnConnection:
        end = loop.time() + self._store.settings.acquire_timeout.total_seconds()
        while True:
            left = timedelta(seconds=max(0.001, end - loop.time()))
            try:
                return await connection_of(self._pool, min(left, _RECONNECT))
            except psycopg_pool.PoolTimeout:
                if loop.time() >= end:
                    raise

    def _hang_up(self) -> None:
        self._hung = True
        hang_up(self._connection)


async def fetch(
    connection: Connection, statement: Statement, parameters: Mapping[str, Any]
) -> list[TupleRow]:
    """Run a statement on this connection, in binary and prepared unless it is planned anew, and fetch its rows."""
    return await fetch_as(tuple_row, connection, statement, parameters)


async def fetch_as(
    shape: AsyncRowFactory[Row], connection: Connection, statement: Statement, parameters: Mapping[str, Any]
) -> list[Row]:
    """Do the same, with rows as `shape` makes them (rows.py)."""
    if not statement.anew and (prepared := _prepared(connection)):
        return await prepared.fetch(shape, statement.sql, parameters)
    cursor = await _execute(connection, statement, parameters, shape)
    return await cursor.fetchall()


def _prepared(connection: Connection) -> Prepared | None:
    """Return what runs prepared statements on a connection; None: psycopg's cursors are needed."""
    if (
        isinstance(connection, OwnConnection)
        and connection.prepare_threshold is not None
        and connection.autocommit
        and not connection.pgconn.pipeline_status
    ):
        return connection.prepared
    return None


async def _execute(
    connection: Connection,
    statement: Statement,
    parameters: Mapping[str, Any],
    shape: AsyncRowFactory[Row],
) -> psycopg.AsyncCursor[Row]:
    cursor = connection.cursor(binary=True, row_factory=shape)
    await cursor.execute(statement.sql, parameters, prepare=not statement.anew)
    return cursor
