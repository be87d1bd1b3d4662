"""The loss of one cell: each has a Postgres of its own, and one of them is stopped while tasks are scheduled in all."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

import duly
from benchmarks.cells.idle import in_a_folder
from benchmarks.cells.load import _until_registered

_EVERY = 0.1
"""Seconds between two tasks of a namespace."""
_TIMEOUT = 5.0


@dataclass(slots=True)
class Loss:
    """What the namespaces of the cells that stayed saw before and during the loss; and those of the lost one."""

    calls: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    took_ms: dict[str, list[float]] = field(default_factory=dict)
    """From the call until the task has ended."""

    def note(self, when: str, seconds: float | None) -> None:
        """Note a task that ended; None: its call failed."""
        self.calls[when] += 1
        if seconds is None:
            self.failed[when] += 1
        else:
            self.took_ms.setdefault(when, []).append(seconds * 1e3)

    def percentile(self, when: str, percent: int) -> float:
        """Return a percentile of the times, in ms."""
        return quantiles(self.took_ms[when], n=100)[percent - 1]

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"calls": dict(self.calls), "failed": dict(self.failed), "took_ms": self.took_ms}


async def measure_loss(seconds: float) -> Loss:
    """Run tasks in two cells for so long, stop the Postgres of the second, and go on for as long."""
    found = Loss()
    async with (
        in_a_folder(2, workers=True, apart=True) as here,
        duly.AsyncClient(here.frontend) as client,
    ):
        await _until_registered(client)
        phase = ["warm-up"]
        end = asyncio.Event()
        # ns0 and ns2 live in c0, ns1 and ns3 in c1
        calls = [
            asyncio.ensure_future(
                _go_on(client, f"ns{number}/noop", "lost" if number % 2 else "others", phase, found, end)
            )
            for number in range(4)
        ]
        await asyncio.sleep(2)
        phase[0] = "before"
        await asyncio.sleep(seconds)
        phase[0] = "during"
        await asyncio.to_thread(here.cells["c1"].stop)
        await asyncio.sleep(seconds)
        end.set()
        await asyncio.gather(*calls)
    return found


async def _go_on(
    client: duly.AsyncClient, name: str, kind: str, phase: list[str], found: Loss, end: asyncio.Event
) -> None:
    while not end.is_set():
        when, began = f"{kind} {phase[0]}", time.monotonic()
        try:
            async with asyncio.timeout(_TIMEOUT):
                await client.wait(await client.schedule(name, b""))
            found.note(when, time.monotonic() - began)
        except (duly.DulyError, TimeoutError):
            found.note(when, None)
        await asyncio.sleep(max(0.0, began + _EVERY - time.monotonic()))
