"""A few connections to the queue's Postgres: every wait is bounded, every failure a QueueUnavailableError."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, LiteralString

import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from duly_core.connecting import Connecting, Connection, connection_of, hung_up_after
from duly_core.errors import QueueUnavailableError
from duly_core.queues.closed import ClosedError
from duly_core.queues.postgres_connection import UNAVAILABLE, connection_string, reason_of

_CONNECTION_WAIT: Final = timedelta(seconds=3)
"""How long a statement waits for a connection: a quick restart of Postgres passes unnoticed."""

_ANSWER_WAIT: Final = timedelta(seconds=8)
"""How long a statement is waited for; a Postgres that is well gives up sooner by itself."""

_CLOSE_WAIT: Final = 0.5


class PostgresLink:
    """A few connections for short statements; they come back by themselves after an outage."""

    def __init__(self, dsn: str) -> None:
        self._conninfo = connection_string(dsn)
        self._connecting = Connecting()
        self._pool = AsyncConnectionPool(
            self._conninfo,
            connection_class=self._connecting.connection_class,
            kwargs={"autocommit": True},
            min_size=1,
            max_size=4,
            # The pool backs off exponentially within one attempt. Short attempts, begun anew by the
            # next statement, find a Postgres that is back after an hour as fast as after a second.
            reconnect_timeout=_CONNECTION_WAIT.total_seconds(),
            name="duly-queue",
            open=False,
        )

    async def open(self) -> None:
        """Begin to connect, and do not wait for it: services start in any order."""
        await self._pool.open(wait=False)

    async def connect(self) -> AsyncConnection[TupleRow]:
        """Make a connection of the caller's own, outside the pool.

        Raises:
            psycopg.Error: it cannot be made.
        """
        return await Connection.connect(self._conninfo, autocommit=True)

    async def run(
        self, statement: LiteralString, parameters: Mapping[str, object], *, prepare: bool = True
    ) -> list[TupleRow]:
        """Run one statement in a transaction of its own; answer its rows. Not prepared, it is planned anew.

        Raises:
            QueueUnavailableError: it was not run, or perhaps not.
        """
        try:
            connection = await connection_of(self._pool, _CONNECTION_WAIT)
            try:
                return await self._ask(connection, statement, parameters, prepare=prepare)
            finally:
                await self._pool.putconn(connection)
        except PoolClosed as error:
            raise ClosedError from error
        except PoolTimeout as error:
            raise QueueUnavailableError(await self._why_no_connection()) from error
        except UNAVAILABLE as error:
            raise QueueUnavailableError(reason_of(error)) from error
        except TimeoutError as error:
            raise QueueUnavailableError(
                f"the queue's Postgres did not answer within {_ANSWER_WAIT.total_seconds():.0f} s"
            ) from error

    async def close(self) -> None:
        """Let go of the connections; one that is at work is closed when its statement ends."""
        await self._pool.close(timeout=_CLOSE_WAIT)
        await self._connecting.abandon()

    async def _ask(
        self,
        connection: AsyncConnection[TupleRow],
        statement: LiteralString,
        parameters: Mapping[str, object],
        *,
        prepare: bool,
    ) -> list[TupleRow]:
        try:
            with hung_up_after(connection, _ANSWER_WAIT):
                cursor = await connection.execute(statement, parameters, prepare=prepare, binary=True)
                return await cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            if connection.closed:  # when Postgres restarts they all are: this failure stands for all of them
                await self._pool.check()
            raise

    async def _why_no_connection(self) -> str:
        """Find out what the pool does not tell."""
        try:
            connection = await self.connect()
        except psycopg.Error as error:
            return reason_of(error)
        await connection.close()
        return f"no connection to the queue's Postgres became free within {_CONNECTION_WAIT.total_seconds():.0f} s"
