"""Processes killed, asked to end, and stopped for a while."""

import asyncio
import os
import signal
from contextlib import closing, suppress
from datetime import timedelta

from tests.chaos.plan import Fault
from tests.chaos.process_tree import Held, callbacks, descendants, executors
from tests.chaos.stack import System

_FOUND_WITHIN = timedelta(seconds=8)
_BACK_WITHIN = timedelta(seconds=15)
_LOOK_EVERY_S = 0.05


async def kill(system: System, fault: Fault) -> str:
    """SIGKILL; returns when what was killed is up again."""
    return await _end(system, fault, signal.SIGKILL)


async def terminate(system: System, fault: Fault) -> str:
    """SIGTERM: a graceful restart."""
    return await _end(system, fault, signal.SIGTERM)


async def pause(system: System, fault: Fault) -> str:
    """SIGSTOP, and SIGCONT later: what a lease decided meanwhile must be respected."""
    victims = await _victims(system, fault)
    with closing(Held(victims)) as held:
        if not held.send(signal.SIGSTOP):
            return ""
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            awake = held.send(signal.SIGCONT)
    return f"SIGSTOP for {fault.seconds:g} s of {_named(victims)}; {awake} were there to go on"


async def hold_away(system: System, fault: Fault) -> str:
    """SIGKILL, and no restart for a while: what it does is done late, and nothing else is."""
    pid = system.pid(fault.target)
    system.hold_down(fault.target)
    try:
        with closing(Held([pid] if pid is not None else [])) as held:
            held.send(signal.SIGKILL)
        await asyncio.sleep(fault.seconds)
    finally:
        system.let_up(fault.target)
    await _until_restarted(system, fault.target, pid)
    return f"SIGKILL, and away for {fault.seconds:g} s"


async def lose(system: System, fault: Fault) -> str:
    """SIGKILL to a whole host, whose claim journals nobody finds."""
    before = system.pid(fault.target)
    system.hold_down(fault.target)
    try:
        victims = await _victims(system, fault)
        with closing(Held(victims)) as held:
            sent = held.send(signal.SIGKILL)
        journals = list((system.claim_journals / fault.target).iterdir())
        for journal in journals:
            journal.unlink(missing_ok=True)
    finally:
        system.let_up(fault.target)
    if not sent:
        return ""
    await _until_restarted(system, fault.target, before)
    return f"SIGKILL to {_named(victims)}, and {sum(journal.suffix == '.claims' for journal in journals)} claim journals lost"


async def _end(system: System, fault: Fault, number: signal.Signals) -> str:
    before = system.pid(fault.target)
    victims = await _victims(system, fault)
    with closing(Held(victims)) as held:
        sent = held.send(number)
    if not sent:
        return ""
    if fault.kind.endswith(("executor", "callback")):
        await _until_there_are(system, fault, victims)
    else:
        await _until_restarted(system, fault.target, before)
    return f"{number.name} to {_named(victims)}"


async def _victims(system: System, fault: Fault) -> list[int]:
    """What is meant: a service, or one part of a host, which may be starting just now."""
    async with asyncio.timeout(_FOUND_WITHIN.total_seconds() + 1):
        for _ in range(int(_FOUND_WITHIN.total_seconds() / _LOOK_EVERY_S)):
            found = _look(system, fault)
            if found:
                return found
            await asyncio.sleep(_LOOK_EVERY_S)
    return []


def _look(system: System, fault: Fault) -> list[int]:
    pid = system.pid(fault.target)
    if pid is None:
        return []
    part = fault.kind.partition("_")[2]
    if part == "executor":
        return _one(executors(pid), fault)
    if part == "callback":
        return _one(callbacks(pid), fault)
    if part == "host" and not fault.kind.startswith("term"):
        # The Controller first, so that it starts no others meanwhile.
        return [pid, *descendants(pid)]
    return [pid]


def _one(found: list[int], fault: Fault) -> list[int]:
    return [found[fault.number % len(found)]] if found else []


async def _until_restarted(system: System, name: str, before: int | None) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_BACK_WITHIN.total_seconds()):
            while system.pid(name) in (None, before):
                await asyncio.sleep(_LOOK_EVERY_S)


async def _until_there_are(system: System, fault: Fault, victims: list[int]) -> None:
    """Another in place of the one that ended."""
    find = executors if fault.kind.endswith("executor") else callbacks
    with suppress(TimeoutError):
        async with asyncio.timeout(_BACK_WITHIN.total_seconds()):
            while True:
                pid = system.pid(fault.target)
                if pid is not None and (found := find(pid)) and not set(victims) & set(found):
                    return
                await asyncio.sleep(_LOOK_EVERY_S)


def _named(pids: list[int]) -> str:
    return ", ".join(map(str, pids)) + ("" if os.getpid() not in pids else " (ourselves!)")
