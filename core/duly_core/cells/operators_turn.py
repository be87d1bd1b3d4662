"""One change of what operators own at a time: who changes it in a cell holds a lock there, from its first look to its last note."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta

import psycopg
import structlog

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.connection import Connection
from duly_core.postgres.pool import Store, connect_arguments_now
from duly_core.postgres.statements import load

log = structlog.get_logger()

_LOCK = load("cells/changes.sql")["lock_operators_turn"].sql.encode()
_CONNECT_WITHIN = timedelta(seconds=2)
_WAIT_MS = 3_000
"""A round brings the things of one kind within this time, mostly within milliseconds."""
_LONGEST_MS = 30_000
"""Longer than a call may take. A process that is frozen holds up the changes of others for no longer."""
_END_WITHIN = timedelta(seconds=1)


class TurnTakenError(StoreUnavailableError):
    """Another process changes what operators own in this cell."""


@asynccontextmanager
async def turns(
    stores: Mapping[str, Store], *, wait: timedelta | None = None
) -> AsyncIterator[Mapping[str, StoreUnavailableError]]:
    """Keep others from changing what operators own in these cells, until the block ends. A call in it must not take a turn again.

    Each cell's turn has a connection of its own: those of a pool are lent for a shorter time.

    Args:
        stores: by the name of the cell; turns are taken in the order of the names, so that two processes never wait for each other.
        wait: how long others may hold them up, all cells together; None: 3 s.

    Yields:
        By cell, why it has no turn there: a TurnTakenError, or the cell does not answer.
    """
    missed: dict[str, StoreUnavailableError] = {}
    wait = wait or timedelta(milliseconds=_WAIT_MS)
    ends = time.monotonic() + wait.total_seconds()
    async with AsyncExitStack() as held:
        for cell in sorted(stores):
            try:
                connection = await _take(stores[cell], wait, ends - time.monotonic())
            except StoreUnavailableError as error:
                missed[cell] = error
            else:
                held.push_async_callback(_end, cell, connection)
        yield missed


async def _take(store: Store, wait: timedelta, left: float) -> Connection:
    left_ms = max(1, round(left * 1_000))  # a turn that is free is taken, however late; 0 would be no limit
    try:
        async with asyncio.timeout(_CONNECT_WITHIN.total_seconds()):
            connection = await Connection.connect(
                **await connect_arguments_now(store.settings), autocommit=True
            )
    except (psycopg.Error, OSError) as error:
        raise _unavailable(store, error) from error
    try:
        async with asyncio.timeout((_CONNECT_WITHIN + timedelta(milliseconds=left_ms)).total_seconds()):
            await connection.execute(
                f"begin; set local lock_timeout = {left_ms}; set local statement_timeout = {left_ms + 1_000}; "
                f"set local idle_in_transaction_session_timeout = {_LONGEST_MS}"
            )
            await connection.execute(_LOCK)
    except BaseException as error:
        with suppress(psycopg.Error, OSError):
            await connection.close()
        if isinstance(error, psycopg.errors.LockNotAvailable):
            raise TurnTakenError(
                f"another process has been changing what operators own at {store.where} for {wait.total_seconds():g} s: try again"
            ) from error
        if isinstance(error, psycopg.Error | OSError):
            raise _unavailable(store, error) from error
        raise
    return connection


async def _end(cell: str, connection: Connection) -> None:
    try:
        async with asyncio.timeout(_END_WITHIN.total_seconds()):
            await connection.execute("commit")
    except (psycopg.Error, OSError) as error:
        log.warning("turn to change what operators own was lost before its end", cell=cell, reason=str(error))
    with suppress(psycopg.Error, OSError):
        await connection.close()


def _unavailable(store: Store, error: Exception) -> StoreUnavailableError:
    reason = str(error).strip().partition("\n")[0] or type(error).__name__
    return StoreUnavailableError(f"Postgres at {store.where} did not do it: {reason}")
