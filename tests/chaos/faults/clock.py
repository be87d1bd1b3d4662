"""The store's clock, moved: a small step that timing allows for, and a large one that the failover grace period must."""

import asyncio

from duly_core.process.clock import since_boot_ns
from tests.chaos.plan import Fault
from tests.chaos.stack import System


async def inject(system: System, fault: Fault) -> str:
    """Move it by `amount` seconds; a jump goes back later, which is a jump as well."""
    await _move(system, fault.amount)
    if not fault.seconds:
        return f"duly_now() moved by {fault.amount:+g} s"
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        await _move(system, -fault.amount)
    return f"duly_now() moved by {fault.amount:+g} s, and back after {fault.seconds:g} s"


async def _move(system: System, seconds: float) -> None:
    """Move it; a move whose answer is lost may have been made, so it is noted as well."""
    async with system.postgres.lifecycle, await system.postgres.connect() as connection:
        before_ns = since_boot_ns()
        try:
            await connection.execute(
                "update chaos_clock set ahead = ahead + make_interval(secs => %s)", (seconds,)
            )
        finally:
            system.clock_moves.append((before_ns, since_boot_ns()))
