"""Notifications that something is due, lost and forged: they are never needed, and nothing that is done to them may be worse than late."""

import asyncio
from itertools import cycle

from psycopg import AsyncConnection

from duly_core.postgres.channels import DUE_CHANNEL
from tests.chaos.plan import Fault
from tests.chaos.stack import System

_EVERY_S = 0.1
# A session that listens has said nothing else since.
_DEAFEN = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and query ilike 'listen %'
"""
_FORGED = (
    "",
    "0",
    "0 chaos.work",
    "0 nobody.serves.this",
    "119999 chaos.work,chaos.work_async",
    "999999",
    "-1 chaos.work",
    "1e9",
    "0 " + ",".join(f"lambda.{number}" for number in range(500)),
    "\u00e4\u00f6\u00fc; drop table task",
)


async def inject(system: System, fault: Fault) -> str:
    """Do what the fault's kind says."""
    async with system.postgres.lifecycle, await system.postgres.connect() as connection:
        return await _HOW[fault.kind](connection, fault)


async def _lose(connection: AsyncConnection, fault: Fault) -> str:
    """Whoever listens is cut off, again and again: what is told meanwhile nobody hears."""
    ended = 0
    for _ in range(int(fault.seconds / _EVERY_S)):
        row = await (await connection.execute(_DEAFEN)).fetchone()
        ended += row[0] if row else 0
        await asyncio.sleep(_EVERY_S)
    return f"{ended} listening sessions ended in {fault.seconds:g} s" if ended else ""


async def _forge(connection: AsyncConnection, fault: Fault) -> str:
    """Notifications of nothing, of nobody, of far ahead, and such as nobody understands."""
    sent = 0
    for payload in cycle(_FORGED):
        if sent * _EVERY_S > fault.seconds * len(_FORGED):
            break
        await connection.execute("select pg_notify(%s, %s)", (DUE_CHANNEL, payload))
        sent += 1
        if sent % len(_FORGED) == 0:
            await asyncio.sleep(_EVERY_S)
    return f"{sent} notifications forged"


_HOW = {"notification_lose": _lose, "notification_forge": _forge}
