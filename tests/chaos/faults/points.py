"""Failpoints: a process crashes, fails, dawdles, is frozen or never answers at one exact place."""

import asyncio
import os
import signal
from contextlib import suppress

from tests.chaos.plan import Fault
from tests.chaos.stack import System
from tests.fixtures.failpoint_table import FAILPOINTS

_LOOK_EVERY_S = 0.02
_FOUND_WITHIN_S = 6.0


async def inject(system: System, fault: Fault) -> str:
    """Give the order, and take it back when nobody has followed it in time."""
    action = fault.kind.partition("_")[2]
    if action == "freeze":
        return await _freeze(system, fault)
    times = 1 + fault.number % 3
    order = {
        "crash": "crash once",
        "raise": f"raise {FAILPOINTS[fault.target].raises} {times}",
        "delay": f"delay {fault.amount:g}s {times}",
        "drop_reply": f"drop_reply {times}",
    }[action]
    before = len(_hits(system, fault.target))
    _give(system, fault.target, order)
    try:
        for _ in range(int(fault.seconds / _LOOK_EVERY_S)):
            await asyncio.sleep(_LOOK_EVERY_S)
            if not (system.failpoints / fault.target).exists():
                break
    finally:
        (system.failpoints / fault.target).unlink(missing_ok=True)
    hits = len(_hits(system, fault.target)) - before
    return f"{order} at {fault.target}, {hits} times" if hits else ""


async def _freeze(system: System, fault: Fault) -> str:
    """Stop a process by SIGSTOP while it is there."""
    reached = system.failpoints / f"{fault.target}.reached"
    before = len(_hits(system, fault.target))
    _give(system, fault.target, "stop")
    try:
        for _ in range(int(_FOUND_WITHIN_S / _LOOK_EVERY_S)):
            await asyncio.sleep(_LOOK_EVERY_S)
            if reached.exists() and len(_hits(system, fault.target)) > before:
                break
        else:
            return ""
        pid = _hits(system, fault.target)[-1]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
    finally:
        (system.failpoints / fault.target).unlink(missing_ok=True)
        reached.unlink(missing_ok=True)
    return f"SIGSTOP for {fault.seconds:g} s of {pid} at {fault.target}"


def _give(system: System, name: str, order: str) -> None:
    written = system.failpoints / f"{name}.order"
    written.write_text(order, encoding="utf-8")
    written.rename(system.failpoints / name)


def _hits(system: System, name: str) -> list[int]:
    """The processes that were there, in their order."""
    try:
        lines = (system.failpoints / f"{name}.hits").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    return [int(line.split()[0]) for line in lines]
