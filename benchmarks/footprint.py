"""What a system costs that has nothing to do: CPU over half a minute, and memory."""

import asyncio
import os

from benchmarks.cpu import count_by_process, memory_by_process, seconds_by_process
from benchmarks.meter import Figures
from benchmarks.system import Running, System

_SETTLE = 5.0
_IDLE = 30.0


async def footprint(system: System, running: Running, tasks: int) -> Figures:
    """After `tasks` tasks: CPU of everything but the client in percent of a core, and PSS in MiB."""
    await running.warm_up(system.processes)
    first = running.numbers(tasks)
    await running.driver.ask("single", first=first, tasks=tasks)
    await running.started(range(first, first + tasks), 600)
    await running.settled(600)
    await asyncio.sleep(_SETTLE)
    before = seconds_by_process(os.getpid())
    await asyncio.sleep(_IDLE)
    used = seconds_by_process(os.getpid())
    used.subtract(before)
    memory = memory_by_process(os.getpid())
    own = used.pop("bench", 0.0), memory.pop("bench", 0.0)
    if system.name == "duly":  # this process is the local stack's supervisor, and an idle one now
        used["supervisor"] = own[0]
    used.pop("client", None)
    memory.pop("client", None)
    processes = count_by_process(os.getpid())
    values = {
        "idle_cpu_percent": sum(used.values()) / _IDLE * 100,
        "memory_mib": sum(memory.values()),
        "processes": float(
            sum(count for name, count in processes.items() if name not in {"bench", "client"})
        ),
    }
    percent = {f"{name}_percent": seconds / _IDLE * 100 for name, seconds in used.items() if seconds > 0}
    return Figures(values | percent, {}, dict(memory))
