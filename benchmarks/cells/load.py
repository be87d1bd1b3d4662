"""The same load in each installation: tasks that do nothing, in turns over the namespaces, and what they cost by process."""

import asyncio
import os
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import duly
from benchmarks.cells.idle import in_a_folder
from benchmarks.cells.installation import NAMESPACES
from benchmarks.cpu import seconds_by_process

_GIVE_UP = 60.0
_GROUP = 20
_WARM_UP = 400
_PARTS = ("server", "postgres", "controller", "executor", "callbacks")
_PAYLOAD = b"x" * 100


@dataclass(frozen=True, slots=True)
class Load:
    """What a task costs."""

    cells: int
    """0: a sole store, without a directory."""
    rate: int
    """Tasks a second, in all cells together."""
    tasks: int
    cpu_us: dict[str, float]
    """Of CPU a task, by process."""

    @property
    def total(self) -> float:
        """Of all processes, in us a task."""
        return sum(self.cpu_us.values())

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)


async def measure_load(cells: int, rate: int, seconds: float) -> Load:
    """Start an installation, and run tasks at a fixed rate, so many a call."""
    async with (
        in_a_folder(max(1, cells), workers=True, sole=not cells) as here,
        duly.AsyncClient(here.frontend) as client,
    ):
        await _until_registered(client)
        await run(client, _WARM_UP, rate)
        before = _cpu()
        tasks = await run(client, int(rate * seconds), rate)
        used = _cpu()
        used.subtract(before)
    return Load(cells, rate, tasks, {name: used[name] / tasks * 1e6 for name in _PARTS if used[name]})


async def run(client: duly.AsyncClient, tasks: int, rate: int) -> int:
    """Schedule at this rate, and wait until all have ended; return how many they were."""
    began, waits = time.monotonic(), []
    for first in range(0, tasks, _GROUP):
        await asyncio.sleep(max(0.0, began + first / rate - time.monotonic()))
        waits.append(asyncio.ensure_future(_schedule(client, f"ns{first // _GROUP % NAMESPACES}/noop")))
    last = await asyncio.gather(*waits)
    async with asyncio.timeout(_GIVE_UP):
        for handle in last[-NAMESPACES:]:
            await client.wait(handle)
    return len(waits) * _GROUP


async def _schedule(client: duly.AsyncClient, name: str) -> Any:
    ids = await asyncio.gather(*(client.schedule(name, _PAYLOAD) for _ in range(_GROUP)))
    return ids[-1]


async def _until_registered(client: duly.AsyncClient) -> None:
    async with asyncio.timeout(_GIVE_UP):
        while len({each.name for each in await client.lambdas()}) < NAMESPACES:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.2)


def _cpu() -> Counter[str]:
    return seconds_by_process(os.getpid())
