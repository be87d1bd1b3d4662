"""Leaves a Postgres server that is cut off for the primary of now: after a failover, or when a name has a new address.

A connection whose server is cut off says nothing until the time of its statement is over, and so does each other one of a pool. Meanwhile
another server of the list may be the primary already. So when a statement waits for long, this looks for the primary on a connection of its
own. If that is another server, and the one that is waited for cannot be written to, all connections to it are hung up. Their callers are told,
and try again on new connections.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import psycopg
import structlog

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.connection import Connection, hang_up, servers_of
from duly_core.postgres.pool import connect_arguments, connect_arguments_now
from duly_core.postgres.settings import StoreSettings

log = structlog.get_logger()

_LONG = timedelta(milliseconds=1_500)
"""A statement that has no answer by then may wait for a server that is gone."""
_ANSWERS_WITHIN = timedelta(seconds=1)
"""A server that can be written to says so by then."""
_CONNECT_WITHIN_S = 2
"""libpq's least."""


async def leave_lost_server(settings: StoreSettings) -> int:
    """Look once, if a statement waits for long; how many connections were hung up."""
    arguments = connect_arguments(settings)
    if not _may_lead_elsewhere(arguments):
        return 0
    waited_for = _waited_for(servers_of(arguments))
    if not waited_for:
        return 0
    arguments = await connect_arguments_now(settings)  # only here: a command may give the password
    # at the same time: work stands still until this is known
    primary, *answers = await asyncio.gather(
        _primary(arguments), *(_primary(arguments | server) for server in waited_for.values())
    )
    if primary is None:
        return 0
    lost = [
        address
        for address, answer in zip(waited_for, answers, strict=True)
        if answer is None and address != primary
    ]
    hung_up = [each for each in Connection.OPEN if not each.closed and each.address in lost]
    for each in hung_up:
        hang_up(each)
    if hung_up:
        log.warning(
            "Postgres does not answer, and another server is the primary: connections closed",
            silent=lost,
            primary=primary,
            connections=len(hung_up),
        )
    return len(hung_up)


def may_lead_elsewhere(settings: StoreSettings) -> bool:
    """Tell whether an address can lead to another server: it names several, or one by its name."""
    return _may_lead_elsewhere(connect_arguments(settings))


def _waited_for(servers: str) -> dict[str, dict[str, str]]:
    """The servers that have not answered for long: the address of each, and the libpq parameters that lead there alone."""
    now = asyncio.get_running_loop().time()
    return {
        each.address: _only(each)
        for each in Connection.OPEN
        if each.servers == servers
        and each.lent_at is not None
        and now - each.lent_at > _LONG.total_seconds()
        and not each.closed
    }


async def _primary(arguments: Mapping[str, Any]) -> str | None:
    """The address of the server that can be written to; None: none can be reached."""
    with suppress(psycopg.Error, OSError, TimeoutError, StoreUnavailableError):
        async with asyncio.timeout(_ANSWERS_WITHIN.total_seconds()):
            connection = await Connection.connect(
                **{**arguments, "connect_timeout": _CONNECT_WITHIN_S}, autocommit=True
            )
            try:
                cursor = await connection.execute("select pg_is_in_recovery()")
                return connection.address if await cursor.fetchone() == (False,) else None
            finally:
                await connection.close()
    return None


def _only(connection: Connection) -> dict[str, str]:
    # with the name, for a certificate and a password file have that, and not the address
    info = connection.info
    return {"host": info.host, "hostaddr": info.hostaddr, "port": str(info.port)}


def _may_lead_elsewhere(arguments: Mapping[str, Any]) -> bool:
    """Whether it names several servers, or one by its name."""
    host = str(arguments.get("hostaddr") or arguments.get("host") or "")
    if "," in host:
        return True
    try:
        ip_address(host)
    except ValueError:
        return bool(host) and not host.startswith("/")
    return False
