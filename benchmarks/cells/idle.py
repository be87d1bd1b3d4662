"""What an installation costs that has nothing to do, by its number of cells; a further cell's cost is the slope."""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg

import duly
from benchmarks.cells.installation import Installation, installed
from benchmarks.cpu import memory_by_process, seconds_by_process

_SETTLE, _SETTLE_A_CELL = 60.0, 12.0
"""Seconds after which what the start made is done (autovacuum goes from database to database), and connections that nobody needs are closed."""
_WARM_CALLS, _CALLS = 20, 300
_PARTS = ("server", "postgres", "controller", "executor", "callbacks")
_STATISTICS = """
select sum(xact_commit + xact_rollback)::int8, sum(numbackends)::int8 from pg_stat_database where datname like 'c%'
"""


@dataclass(frozen=True, slots=True)
class Idle:
    """What one installation costs per second while nothing is to be done."""

    cells: int
    is_sole: bool
    has_worker: bool
    cpu_ms: dict[str, float]
    """Of CPU a second, by process."""
    mib: dict[str, float]
    """PSS, by process."""
    transactions: float
    """A second, in all cells."""
    connections: int
    call_ms: list[float] = field(repr=False)
    """Of calls that concern all cells, one after the other."""

    def as_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)


@asynccontextmanager
async def in_a_folder(cells: int, **options: bool) -> AsyncIterator[Installation]:
    """Start an installation in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o711)
        async with installed(folder, cells, **options) as here:
            yield here


async def measure_idle(cells: int, seconds: float, *, workers: bool = False, sole: bool = False) -> Idle:
    """Start an installation, let it settle, and measure."""
    async with in_a_folder(cells, workers=workers, sole=sole) as here:
        await asyncio.sleep(_SETTLE + cells * _SETTLE_A_CELL)
        dsn = here.cells["c0"].dsn_of("c0")
        before, began, statistics = _cpu(), time.monotonic(), _ask(dsn)
        await asyncio.sleep(seconds)
        used, elapsed, after = _cpu(), time.monotonic() - began, _ask(dsn)
        used.subtract(before)
        memory = memory_by_process(os.getpid())
        calls = await _call_all(here.frontend)
    return Idle(
        cells,
        sole,
        workers,
        {name: used[name] / elapsed * 1e3 for name in _PARTS if used[name]},
        {name: memory[name] for name in _PARTS if memory[name]},
        (after[0] - statistics[0]) / elapsed,
        after[1],
        calls,
    )


async def _call_all(frontend: str) -> list[float]:
    """Return how long calls of all cells take, in ms."""
    taken = []
    async with duly.AsyncClient(frontend) as client:
        for number in range(_WARM_CALLS + _CALLS):
            began = time.perf_counter()
            await client.lambdas()
            if number >= _WARM_CALLS:
                taken.append((time.perf_counter() - began) * 1e3)
    return taken


def _ask(dsn: str) -> tuple[int, int]:
    with psycopg.connect(dsn) as connection:
        transactions, connections = connection.execute(_STATISTICS).fetchone() or (0, 0)
    return transactions, connections


def _cpu() -> Counter[str]:
    return seconds_by_process(os.getpid())  # with those of backends that have ended
