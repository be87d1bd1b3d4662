"""The loss of one cell: each has a Postgres of its own. That of one stops, or hangs, while tasks are scheduled in all; then it is back."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from statistics import median, quantiles
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

import duly
from benchmarks.cells.idle import in_a_folder
from benchmarks.cells.installation import Installation
from benchmarks.cells.load import _until_registered
from duly_local.postgres.embedded import EmbeddedPostgres

HOW = ("stops", "hangs")
_EVERY = 0.1
"""Seconds between two tasks of a namespace."""
_TIMEOUT = 5.0
_WARM_UP = 3.0
_ENDED_WITHIN = 90.0
"""Longer than claims of a host that lost them live."""
_BETWEEN = "between"
"""While the Postgres stops and starts: not counted."""
_UNFINISHED = "select count(*) from task where finished_at is null"


@dataclass(slots=True)
class Loss:
    """What the namespaces of the cell that stayed saw before, during and after the loss; and those of the lost one."""

    how: str
    calls: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    took_ms: dict[str, list[float]] = field(default_factory=dict)
    """From the call until the task has ended."""
    unfinished: int = 0
    """Tasks of the lost cell that have not ended after it is back."""

    def note(self, when: str, seconds: float | None) -> None:
        """Note a task that ended; None: its call failed."""
        self.calls[when] += 1
        if seconds is None:
            self.failed[when] += 1
        else:
            self.took_ms.setdefault(when, []).append(seconds * 1e3)

    def percentiles(self, when: str) -> tuple[float, float, float]:
        """Return median, p99 and maximum of the times, in ms."""
        times = self.took_ms[when]
        return (
            median(times),
            quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else times[0],
            max(times),
        )

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {
            "how": self.how,
            "calls": dict(self.calls),
            "failed": dict(self.failed),
            "took_ms": self.took_ms,
            "unfinished": self.unfinished,
        }


async def measure_loss(seconds: float, how: str) -> Loss:
    """Run tasks in two cells for so long; lose the Postgres of the second for as long; have it back for as long."""
    found = Loss(how)
    async with (
        in_a_folder(2, workers=True, apart=True) as here,
        duly.AsyncClient(here.frontend) as client,
    ):
        await _until_registered(client)
        phase = [_BETWEEN]
        end = asyncio.Event()
        # ns0 and ns2 live in c0, ns1 and ns3 in c1
        calls = [
            asyncio.ensure_future(
                _go_on(client, f"ns{number}/noop", "lost" if number % 2 else "others", phase, found, end)
            )
            for number in range(4)
        ]
        await asyncio.sleep(_WARM_UP)
        phase[0] = "1 before"
        await asyncio.sleep(seconds)
        lost = here.cells["c1"]
        phase[0] = "2 during"
        if how == "stops":
            await asyncio.to_thread(lost.stop)
            await asyncio.sleep(seconds)
            phase[0] = _BETWEEN
            lost.start()  # from the main thread, as it must be: the calls stand still
        else:
            with _hanging(lost):
                await asyncio.sleep(seconds)
                phase[0] = _BETWEEN
        await asyncio.sleep(_TIMEOUT)  # calls of the lost cell begin again
        phase[0] = "3 after"
        await asyncio.sleep(seconds)
        end.set()
        await asyncio.gather(*calls)
        found.unfinished = await _unfinished(here)
    return found


@contextmanager
def _hanging(postgres: EmbeddedPostgres) -> Iterator[None]:
    """Stop all processes of a Postgres where they are, and let them go on."""
    server = postgres.pid or 0
    stopped = []
    try:
        os.kill(server, SIGSTOP)  # before its children: it starts no others
        stopped.append(server)
        children = Path(f"/proc/{server}/task/{server}/children").read_text(encoding="ascii")
        for pid in map(int, children.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, SIGSTOP)
                stopped.append(pid)
        yield
    finally:
        for pid in reversed(stopped):
            with suppress(ProcessLookupError):
                os.kill(pid, SIGCONT)


async def _unfinished(here: Installation) -> int:
    dsn = make_conninfo(
        here.cells["c0"].dsn_of("c1"), port=here.cells["c1"].port
    )  # with the first one's password
    until = time.monotonic() + _ENDED_WITHIN
    with psycopg.connect(dsn, autocommit=True) as connection:
        while True:
            (count,) = connection.execute(_UNFINISHED).fetchone() or (0,)
            if not count or time.monotonic() > until:
                return int(count)
            await asyncio.sleep(1)


async def _go_on(
    client: duly.AsyncClient, name: str, kind: str, phase: list[str], found: Loss, end: asyncio.Event
) -> None:
    while not end.is_set():
        when, began = f"{kind} {phase[0]}", time.monotonic()
        try:
            async with asyncio.timeout(_TIMEOUT):
                await client.wait(await client.schedule(name, b""))
            took: float | None = time.monotonic() - began
        except (duly.DulyError, TimeoutError):
            took = None
        if _BETWEEN not in when and phase[0] != _BETWEEN:
            found.note(when, took)
        await asyncio.sleep(max(0.0, began + _EVERY - time.monotonic()))
