"""The limit of a lone task: the hops from its call to its start, in Duly's layout, with the libraries alone.

Four processes stand where Duly's client, Frontend, HSC and Executor do. Each does what cannot be
left out: a bare gRPC call or answer, one of Duly's own statements, a notification that wakes the next. The last hop,
into the callback's process, is not among them.
"""

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.hops.roles import ROLES
from benchmarks.hops.wire import LAMBDA
from benchmarks.meter import Figures
from benchmarks.percentiles import percentile
from benchmarks.system import BenchmarkError, Program
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.lambdas.store import register
from duly_core.postgres.pool import Store
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.settings import StoreSettings
from duly_local.ports import LOOPBACK, free_ports
from duly_local.postgres.embedded import EmbeddedPostgres

TASKS = 200
_WARM_UP = 20
_EVERY = 0.05
_ANSWER_WITHIN = 60.0


class Part:
    """One process of the chain."""

    def __init__(self, role: str, told: dict[str, Any], folder: Path) -> None:
        self._role = role
        command = [sys.executable, "-m", "benchmarks.hops", role]
        log = folder / f"{role}.log"
        self._program = Program(command, {}, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process = self._program.process
        if self._process.stdin is None:
            raise BenchmarkError("it was started without pipes")
        self._process.stdin.write(json.dumps(told).encode() + b"\n")
        self._process.stdin.flush()

    async def line(self) -> str:
        """The next line that it writes."""
        if self._process.stdout is None:
            raise BenchmarkError("it was started without pipes")
        reading = asyncio.to_thread(self._process.stdout.readline)
        try:
            line = await asyncio.wait_for(reading, _ANSWER_WITHIN)
        except TimeoutError:
            line = b""
        if not line:
            raise BenchmarkError(f"the floor's {self._role} said nothing: see its log")
        return line.decode().strip()

    async def found(self) -> dict[str, Any]:
        """What it found; it ends."""
        answer: dict[str, Any] = json.loads(await self.line())
        return answer

    def tell_to_stop(self) -> None:
        self._process.terminate()

    def stop(self) -> None:
        self._program.stop()


async def floor_latency(folder: Path, tasks: int) -> Figures:
    """Milliseconds from the call to the start, 20 a second; and the microseconds of each part of it, medians."""
    with EmbeddedPostgres(folder / "data") as postgres:
        return await chain(folder, postgres.dsn, min(TASKS, tasks))


async def chain(folder: Path, dsn: str, tasks: int) -> Figures:
    """On this store.

    Raises:
        BenchmarkError: a process of the chain failed, or a task was not claimed.
    """
    await asyncio.to_thread(migrate, dsn)
    async with Store(StoreSettings(dsn=dsn)) as store:
        await register(store, [LambdaPolicy(LAMBDA)])
    frontend, hsc = free_ports(2)
    told = {
        "dsn": dsn,
        "tasks": _WARM_UP,
        "every": _EVERY,
        "frontend": f"{LOOPBACK}:{frontend}",
        "hsc": f"{LOOPBACK}:{hsc}",
    }
    with _standing(told | {"tasks": _WARM_UP + tasks}, folder) as parts:
        for part in parts.values():
            if await part.line() != "ready":
                raise BenchmarkError("the floor's processes did not start: see their logs")
        await _called(told, folder)  # connections are made, statements prepared
        called, took = await _called(told | {"tasks": tasks}, folder)
        started = (await parts["executor"].found())["started"]
        figures = Figures(_values(called, started))
        for role in ("frontend", "hsc"):
            parts[role].tell_to_stop()
            took |= (await parts[role].found())["took_us"]
    for name, values in took.items():
        figures.values[f"{name}_us"] = statistics.median(values[-tasks:])
    await _all_claimed(dsn, _WARM_UP + tasks)
    return figures


@contextmanager
def _standing(told: dict[str, Any], folder: Path) -> Iterator[dict[str, Part]]:
    """Everybody but the client."""
    with ExitStack() as stack:
        parts = {}
        for role in ROLES:
            if role != "client":
                parts[role] = Part(role, told, folder)
                stack.callback(parts[role].stop)
        yield parts


async def _called(told: dict[str, Any], folder: Path) -> tuple[dict[str, int], dict[str, list[float]]]:
    """When each task's call was made, and how long it took."""
    client = Part("client", told, folder)
    try:
        await client.line()
        found = await client.found()
    finally:
        await asyncio.to_thread(client.stop)
    return found["called"], found["took_us"]


def _values(called: dict[str, int], started: dict[str, int]) -> dict[str, float]:
    if missing := called.keys() - started.keys():
        raise BenchmarkError(f"{len(missing)} tasks of the floor did not start")
    waits = sorted((started[task] - at) * 1e-6 for task, at in called.items())
    return {f"p{round(part * 100)}_ms": percentile(waits, part) for part in (0.5, 0.95, 0.99)}


async def _all_claimed(dsn: str, tasks: int) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        cursor = await connection.execute("select count(*) from task_assoc where status = 'claimed'")
        if await cursor.fetchone() != (tasks,):
            raise BenchmarkError(f"the store does not hold {tasks} claimed tasks")
