"""Connections delayed, cut in one or both directions, slow, reset, refused."""

import asyncio

from tests.chaos.links import spoil
from tests.chaos.plan import Fault
from tests.chaos.stack import System


async def inject(system: System, fault: Fault) -> str:
    """Break one link for as long as it lasts."""
    mode = fault.kind.partition("_")[2]
    proxy = system.links[fault.target]
    connections = proxy.connections
    if mode == "reset":
        await proxy.reset()
        return f"{connections} connections reset" if connections else ""
    await spoil(proxy, mode, fault.amount)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        await proxy.heal()
        if fault.number % 3 == 0:  # a network that comes back otherwise than it was
            await proxy.reset()
    return f"{mode} for {fault.seconds:g} s, {connections} connections"
