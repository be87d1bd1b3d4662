"""How each fault of zones is done, and undone. One at a time: each begins when Postgres has a standby that may take over."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from datetime import timedelta

from tests.chaos.faults import sqs
from tests.chaos.plan import Fault
from tests.chaos.process_tree import descendants
from tests.zones.network import both_ways, inwards, outwards
from tests.zones.router import Way
from tests.zones.system import ZonedSystem

_WHOLE_WITHIN = timedelta(seconds=85)
"""How long Postgres may take to have a standby again: it may copy the primary, and other tests share the processors."""
_GONE_WITHIN_S = 20.0
_LOOK_EVERY_S = 0.05


async def wait_until_calm(system: ZonedSystem) -> None:
    """Wait until Postgres has recovered from the previous fault."""
    await system.postgres.wait_until_up(_WHOLE_WITHIN)


async def inject(system: ZonedSystem, fault: Fault) -> str:
    """Inject the fault for its duration, and end it; return what was done, or "" if there was nothing to break."""
    return await _HOW[fault.kind](system, fault)


async def _slow(system: ZonedSystem, fault: Fault) -> str:
    return await _with(system, fault, both_ways(fault.target), Way(fault.amount, fault.amount / 2))


async def _lossy(system: ZonedSystem, fault: Fault) -> str:
    return await _with(system, fault, both_ways(fault.target), Way(loss=fault.amount))


async def _one_way(system: ZonedSystem, fault: Fault) -> str:
    source, target = fault.target.split(">")
    return await _with(system, fault, [(source, target)], Way(loss=1))


async def _mute(system: ZonedSystem, fault: Fault) -> str:
    return await _with(system, fault, outwards(fault.target), Way(loss=1))


async def _deaf(system: ZonedSystem, fault: Fault) -> str:
    return await _with(system, fault, inwards(fault.target), Way(loss=1))


async def _link(system: ZonedSystem, fault: Fault) -> str:
    one, other = fault.target.split("-")
    return await _with(system, fault, both_ways(one, [other]), Way(loss=1))


async def _cut(system: ZonedSystem, fault: Fault) -> str:
    return await _with(system, fault, both_ways(fault.target), Way(loss=1))


async def _with(system: ZonedSystem, fault: Fault, pairs: Iterable[tuple[str, str]], way: Way) -> str:
    pairs = list(pairs)
    primary = await asyncio.to_thread(system.postgres.leader)
    system.network.set_all(pairs, way)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        system.network.set_all(pairs, None)
    return f"for {fault.seconds:g} s; {_place_of(primary)}"


async def _kill_zone(system: ZonedSystem, fault: Fault) -> str:
    """As if its power failed: nobody is told, so the network goes first."""
    primary = await asyncio.to_thread(system.postgres.leader)
    pairs = both_ways(fault.target)
    system.network.set_all(pairs, Way(loss=1))
    await system.kill_zone(fault.target)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        system.network.set_all(pairs, None)
        await system.revive_zone(fault.target)
    return f"SIGKILL to all, away for {fault.seconds:g} s; {_place_of(primary)}"


async def _switch_over(system: ZonedSystem, _: Fault) -> str:
    return await asyncio.to_thread(system.postgres.switch_over)


async def _kill_primary(system: ZonedSystem, _: Fault) -> str:
    zone, pid = await _primary(system)
    if pid is None:
        return ""
    os.kill(pid, signal.SIGKILL)
    return f"SIGKILL to the postmaster in {zone}"


async def _kill_database_host(system: ZonedSystem, fault: Fault) -> str:
    """Patroni and Postgres of the primary, which stay away for a while."""
    zone, pid = await _primary(system)
    if pid is None:
        return ""
    await asyncio.to_thread(system.postgres.kill_patroni, zone)
    for each in (*descendants(pid), pid):
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        await asyncio.to_thread(system.postgres.start_zone, zone)
    return f"SIGKILL to Patroni and Postgres in {zone}, away for {fault.seconds:g} s"


async def _primary(system: ZonedSystem) -> tuple[str, int | None]:
    zone = await asyncio.to_thread(system.postgres.leader)
    return zone or "", zone and await asyncio.to_thread(system.postgres.postmaster, zone)  # type: ignore[return-value]


async def _join(system: ZonedSystem, fault: Fault) -> str:
    """A host joins, works, and leaves again: it drains."""
    system.let_up(fault.target)
    try:
        await asyncio.sleep(fault.seconds)
    finally:
        system.hold_down(fault.target)
        await _end(system, fault.target, signal.SIGTERM)
    return f"joined for {fault.seconds:g} s"


async def _leave(system: ZonedSystem, fault: Fault) -> str:
    return await _away(system, fault, signal.SIGTERM)


async def _kill_host(system: ZonedSystem, fault: Fault) -> str:
    return await _away(system, fault, signal.SIGKILL)


async def _away(system: ZonedSystem, fault: Fault, number: signal.Signals) -> str:
    system.hold_down(fault.target)
    try:
        found = await _end(system, fault.target, number)
        await asyncio.sleep(fault.seconds)
    finally:
        system.let_up(fault.target)
    return f"{number.name}, away for {fault.seconds:g} s" if found else ""


async def _end(system: ZonedSystem, name: str, number: signal.Signals) -> bool:
    pid = system.pid(name)
    if pid is None:
        return False
    victims = [pid, *descendants(pid)] if number is signal.SIGKILL else [pid]
    for each in victims:
        with suppress(ProcessLookupError):
            os.kill(each, number)
    with suppress(TimeoutError):
        async with asyncio.timeout(_GONE_WITHIN_S):
            while system.pid(name) == pid:
                await asyncio.sleep(_LOOK_EVERY_S)
    return True


def _place_of(primary: str | None) -> str:
    return f"primary in {primary}"


_HOW: dict[str, Callable[[ZonedSystem, Fault], Awaitable[str]]] = {
    "zone_latency": _slow,
    "zone_loss": _lossy,
    "zone_one_way": _one_way,
    "zone_mute": _mute,
    "zone_deaf": _deaf,
    "zone_link": _link,
    "zone_cut": _cut,
    "zone_kill": _kill_zone,
    "queue_latency": _slow,
    "queue_loss": _lossy,
    "queue_mute": _mute,
    "queue_cut": _cut,
    "sqs_outage": sqs.inject,
    "database_switchover": _switch_over,
    "database_kill": _kill_primary,
    "database_host": _kill_database_host,
    "fleet_join": _join,
    "fleet_leave": _leave,
    "fleet_kill": _kill_host,
}
