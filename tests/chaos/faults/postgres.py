"""Postgres crashed, restarted, away, stopped, its sessions ended, its rows locked."""

import asyncio
import os
import signal
from contextlib import suppress

import psycopg

from tests.chaos.plan import Fault
from tests.chaos.stack import System

_TERMINATE = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and application_name <> 'chaos' and random() < %s
"""
_LOCK = "select task_id from task_assoc order by random() limit %s for update"


async def inject(system: System, fault: Fault) -> str:
    """Do what the fault's kind says."""
    return await _HOW[fault.kind](system, fault)


async def _kill(system: System, fault: Fault) -> str:
    return await _down(system, signal.SIGKILL if fault.number % 2 else signal.SIGQUIT, fault.seconds)


async def _restart(system: System, _: Fault) -> str:
    return await _down(system, signal.SIGINT, 0)


async def _outage(system: System, fault: Fault) -> str:
    return await _down(system, signal.SIGINT, fault.seconds)


async def _down(system: System, number: signal.Signals, seconds: float) -> str:
    postgres = system.postgres
    async with postgres.lifecycle:
        postgres.hold_down()
        try:
            await postgres.end(number)
            await asyncio.sleep(seconds)
        finally:
            postgres.let_up()
        await postgres.wait_until_up()
    return f"{number.name} to the postmaster, down for {seconds:g} s"


async def _pause(system: System, fault: Fault) -> str:
    """All of its processes stop: connections stay open, and nobody answers."""
    postgres = system.postgres
    async with postgres.lifecycle:
        stopped = postgres.processes()
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            for pid in {*stopped, *postgres.processes()}:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
    return f"SIGSTOP of {len(stopped)} processes for {fault.seconds:g} s"


async def _fail_over(system: System, fault: Fault) -> str:
    """The primary is lost for good, and its standby takes over with all that was acknowledged."""
    async with system.postgres.lifecycle:
        if not await system.postgres.fail_over(fault.seconds):
            return ""
        await system.follow_postgres()
        await system.postgres.wait_until_up()
    return f"the standby was promoted after {fault.seconds:g} s without the primary's commits"


async def _terminate(system: System, fault: Fault) -> str:
    async with system.postgres.lifecycle, await system.postgres.connect() as connection:
        cursor = await connection.execute(_TERMINATE, (fault.amount,))
        row = await cursor.fetchone()
    return f"{row[0]} sessions ended" if row and row[0] else ""


async def _lock(system: System, fault: Fault) -> str:
    """Somebody looks at live tasks for a while, and forgets to commit."""
    locked = 0
    with suppress(psycopg.OperationalError):  # another fault ended the session, and with it the locks
        async with await system.postgres.connect() as connection, connection.transaction():
            cursor = await connection.execute(_LOCK, (int(fault.amount) or 1,))
            locked = len(await cursor.fetchall())
            await asyncio.sleep(fault.seconds)
    return f"{locked} rows locked for {fault.seconds:g} s" if locked else ""


_HOW = {
    "postgres_kill": _kill,
    "postgres_restart": _restart,
    "postgres_outage": _outage,
    "postgres_pause": _pause,
    "postgres_failover": _fail_over,
    "postgres_terminate": _terminate,
    "postgres_lock": _lock,
}
