"""Making connections to Postgres so that nothing is left of an attempt that is given up.

psycopg leaves the socket of a cancelled attempt to the garbage collector, and a closed pool leaves its attempts
to themselves. Postgres waits up to a minute for a client that stands half-way through its authentication, and
`drop database`, which waits for every process of the server, waits with it.
"""

import asyncio
import os
import socket
import traceback
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any, Final, Self, TypeVar, cast

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

log = structlog.get_logger()

_ABANDON_WITHIN: Final = timedelta(milliseconds=100)
"""It takes a turn of the loop."""

_SELDOM: Final = 60.0
"""Seconds between looks at a connection that says nothing."""

Waited = TypeVar("Waited")
ConnectionOf = TypeVar("ConnectionOf", bound=AsyncConnection[TupleRow])


class Connection(AsyncConnection[TupleRow]):
    """A connection; an attempt to make one that fails or is cancelled closes its socket at once."""

    @classmethod
    async def connect(cls, conninfo: str = "", **named: Any) -> Self:
        """Connect, as psycopg does."""
        try:
            return await super().connect(conninfo, **named)
        except BaseException as error:
            # the frames of the attempt hold its socket, and the error holds the frames
            traceback.clear_frames(error.__traceback__)
            _say_if_it_is_a_pooler(str(error))
            raise

    async def wait(self, gen: PQGen[Waited], interval: float = 0.0, timeout: float | None = None) -> Waited:
        """Wait as psycopg does, but without looking ten times a second for an interrupt: a loop is told of those."""
        return await super().wait(gen, interval=max(interval, _SELDOM), timeout=timeout)


async def connection_of(pool: AsyncConnectionPool[ConnectionOf], timeout: timedelta) -> ConnectionOf:
    """Take a connection of the pool, to be put back.

    A task that is cancelled meanwhile is handed none: where `asyncio.wait_for` swallows a cancellation (before Python
    3.12), as it does when the pool answers at that very moment, it is raised here. A long poll would go on else.

    Raises:
        psycopg_pool.PoolTimeout, psycopg_pool.PoolClosed: no connection is available.
    """
    task = asyncio.current_task()
    asked_to_end = task.cancelling() if task else 0
    try:
        connection = await pool.getconn(timeout=timeout.total_seconds())
    except psycopg.OperationalError as error:
        if task and task.cancelling() > asked_to_end:
            raise asyncio.CancelledError from error
        raise
    if task and task.cancelling() > asked_to_end:
        await pool.putconn(connection)
        raise asyncio.CancelledError
    return connection


def hang_up(connection: AsyncConnection[TupleRow]) -> None:
    """Make a connection's every wait end with an error; whose it is closes it."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as ours:
        ours.shutdown(socket.SHUT_RDWR)


@cache
def _say_it_is_a_pooler() -> None:
    """Once a process: the pool tries again and again, and tells nobody why it fails."""
    log.error(
        "what answers as Postgres is a pooler, which refuses Duly's session settings: set store.pooled = true, and "
        "store.direct_dsn to Postgres itself; see docs/operators/postgres.md"
    )


def _say_if_it_is_a_pooler(reason: str) -> None:
    if "unsupported startup parameter" in reason:
        _say_it_is_a_pooler()


class PendingConnects:
    """The attempts to connect of one pool: what is under way when the pool has closed can be ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self.connection_class = _noted_in(self._tasks)
        """What the pool makes its connections with."""

    async def abandon(self) -> None:
        """End the attempts; their tasks are the pool's, which has no more use for them."""
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_ABANDON_WITHIN.total_seconds())


def _noted_in(tasks: set[asyncio.Task[Any]]) -> type[Connection]:
    """A class of connections that notes who makes one, for as long as it takes."""

    class Noted(Connection):
        @classmethod
        async def connect(cls, conninfo: str = "", **named: Any) -> Self:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            tasks.add(task)
            try:
                return await super().connect(conninfo, **named)
            finally:
                tasks.discard(task)

    return Noted
