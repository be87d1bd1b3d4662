"""Making connections to Postgres so that nothing is left of an attempt that is given up.

psycopg leaves the socket of a cancelled attempt to the garbage collector, and a closed pool leaves its attempts
to themselves. Postgres waits up to a minute for a client that stands half-way through its authentication, and
`drop database`, which waits for every process of the server, waits with it.
"""

import asyncio
import os
import socket
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import cache, cached_property
from typing import Any, ClassVar, Final, Self, TypeVar, cast
from weakref import WeakSet

import psycopg
import structlog
from psycopg import AsyncConnection
from psycopg.abc import PQGen
from psycopg.rows import TupleRow
from psycopg_pool import AsyncConnectionPool

from duly_core.postgres.prepared import Prepared

log = structlog.get_logger()

_ABANDON_WITHIN: Final = timedelta(milliseconds=100)
"""It takes a turn of the loop."""

_SELDOM: Final = 60.0
"""Seconds between looks at a connection that says nothing."""

_STAGGER: Final = timedelta(milliseconds=300)
"""A server that has not answered by then gets company: the next one of the list is tried, too."""

_LISTS: Final = ("host", "hostaddr", "port")
"""libpq's parameters that have a value for each server."""

Waited = TypeVar("Waited")
ConnectionOf = TypeVar("ConnectionOf", bound=AsyncConnection[TupleRow])


class Connection(AsyncConnection[TupleRow]):
    """A connection; an attempt to make one that fails or is cancelled closes its socket at once.

    Of several servers it takes the first that answers and is what `target_session_attrs` asks for.
    """

    OPEN: ClassVar[WeakSet["Connection"]] = WeakSet()
    """All of this process."""
    servers: str = ""
    """The servers that it was to choose from."""
    lent_at: float | None = None
    """Since when somebody has it, on the loop's clock; None: nobody has."""

    @cached_property
    def prepared(self) -> Prepared:
        """What is prepared in its session."""
        return Prepared(self)

    @property
    def address(self) -> str:
        """Where it leads; a name may have got another address since."""
        return f"{self.info.hostaddr or self.info.host}:{self.info.port}"

    @classmethod
    async def connect(cls, conninfo: str = "", **named: Any) -> Self:
        """Connect as psycopg does; but a server that is cut off, and says nothing, does not keep the next one waiting."""
        choices = _each_server(named)
        connection = await (
            cls._connect_to_one_of(conninfo, choices)
            if len(choices) > 1
            else cls._connect_to(conninfo, named)
        )
        connection.servers = servers_of(named)
        Connection.OPEN.add(connection)
        return connection

    @classmethod
    async def _connect_to(cls, conninfo: str, named: dict[str, Any]) -> Self:
        try:
            return await super().connect(conninfo, **named)
        except BaseException as error:
            # the frames of the attempt hold its socket, and the error holds the frames
            traceback.clear_frames(error.__traceback__)
            _say_if_it_is_a_pooler(str(error))
            raise

    @classmethod
    async def _connect_to_one_of(cls, conninfo: str, choices: Sequence[dict[str, Any]]) -> Self:
        attempts: list[asyncio.Task[Self]] = []
        try:
            while True:
                under_way = [attempt for attempt in attempts if not attempt.done()]
                if len(attempts) < len(choices):
                    attempt = asyncio.create_task(cls._connect_to(conninfo, choices[len(attempts)]))
                    attempts.append(attempt)
                    under_way.append(attempt)
                elif not under_way:
                    raise _all_failed(choices, attempts)
                patience = _STAGGER.total_seconds() if len(attempts) < len(choices) else None
                done, _ = await asyncio.wait(under_way, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
                for attempt in done:
                    if attempt.exception() is None:
                        attempts.remove(attempt)
                        return attempt.result()
        finally:
            await _give_up(attempts)

    def _deallocate(self, name: bytes | None) -> PQGen[None]:
        """Do as psycopg, which forgets all statements of the session after a ROLLBACK; ours are gone then, too."""
        if name is None:
            self.prepared.forget()
        return super()._deallocate(name)

    async def wait(self, gen: PQGen[Waited], interval: float = 0.0, timeout: float | None = None) -> Waited:
        """Wait as psycopg does, but without looking ten times a second for an interrupt: a loop is told of those."""
        return await super().wait(gen, interval=max(interval, _SELDOM), timeout=timeout)


def servers_of(named: Mapping[str, Any]) -> str:
    """Return the servers that libpq's parameters name."""
    return " ".join(str(named.get(name) or "") for name in _LISTS)


def _each_server(named: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the parameters for each server alone, in their order; all in one where libpq has to decide."""
    if named.get("load_balance_hosts") == "random" or named.get("target_session_attrs") == "prefer-standby":
        return [named]
    values = {name: str(named.get(name) or "").split(",") for name in _LISTS}
    count = max(map(len, values.values()))
    if any(len(each) not in (1, count) for each in values.values()):
        return [named]  # libpq says what is wrong with it
    return [
        named | {name: (each[place] if len(each) > 1 else each[0]) or None for name, each in values.items()}
        for place in range(count)
    ]


def _all_failed(choices: Sequence[dict[str, Any]], attempts: Sequence[asyncio.Task[Any]]) -> BaseException:
    """The error of the last server, with what was said of each."""
    errors = [attempt.exception() for attempt in attempts]
    last = errors[-1]
    if not isinstance(last, psycopg.Error):
        return last or RuntimeError("no server was tried")
    reasons = [
        f"{choice.get('host') or choice.get('hostaddr')}:{choice.get('port') or 5432}: {_first_line(error)}"
        for choice, error in zip(choices, errors, strict=True)
    ]
    return type(last)("; ".join(reasons)).with_traceback(None)


def _first_line(error: BaseException | None) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


async def _give_up(attempts: Sequence[asyncio.Task[Any]]) -> None:
    """End what is under way, and close what nobody takes."""
    for attempt in attempts:
        attempt.cancel()
    for made in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(made, AsyncConnection):
            await made.close()


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
