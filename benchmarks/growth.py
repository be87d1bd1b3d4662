"""How Duly's cost grows: with tasks that wait, Executors, lambdas, payloads, and callbacks that take their time."""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.calibration import calibrate
from benchmarks.cpu import seconds_by_process
from benchmarks.duly_submitter import SIZE
from benchmarks.duly_system import Duly, RunningDuly, Shape
from benchmarks.meter import Figures, Meter
from benchmarks.noop import LAMBDAS
from benchmarks.percentiles import percentile
from benchmarks.workloads import end_to_end_bulk, latency

Found = dict[str, Any]
Tell = Callable[[str, Found], None]

WAITING = (10_000, 100_000, 1_000_000)
_DAY = 86_400.0
_MOST_BYTES = 64 * 2**20
_MIX_SECONDS = 30.0
_QUIET = {"bench.takes.1ms": 50.0, "bench.takes.100ms": 10.0}
_GIVE_UP = 600.0
_SETTLE = 3.0
_IDLE = 15.0


@asynccontextmanager
async def _running(
    shape: Shape, environment: Mapping[str, str]
) -> AsyncIterator[tuple[Duly, RunningDuly, Path]]:
    os.environ.update(environment)  # callbacks and submitter read the same
    try:
        with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
            folder = Path(name)
            folder.chmod(0o711)
            duly = Duly(shape)
            async with duly.running(folder) as running:
                await running.start_workers()
                await running.warm_up(duly.processes)
                yield duly, running, folder
    finally:
        for variable in environment:
            del os.environ[variable]


def _found(figures: Figures, folder: Path, **more: Any) -> Found:
    speed = calibrate(folder)
    return {
        **more,
        "values": figures.values,
        "cpu_us_per_task": figures.cpu_us_per_task,
        "calibration": speed,
    }


async def waiting(tasks: int, runs: int, tell: Tell, sizes: Sequence[int] = WAITING) -> None:
    """Schedule, process, a lone task and the poll beside so many tasks that wait for another day, in a store that fills up."""
    async with _running(Shape(), {}) as (duly, running, folder):
        held = 0
        for size in sorted(sizes):
            # what is scheduled last is measured, so that there are `size` of them in the end and not more
            count = max(1, min(tasks, (size - held) // (2 * runs)))
            await _wait_for_another_day(running, max(0, size - held - count * runs))
            await running.driver.ask("call", method="tidy")
            for _ in range(runs):
                meter = Meter()
                seconds = await _wait_for_another_day(running, count)
                figures = meter.stop(count, {"rate": count / seconds})
                tell("waiting", _found(figures, folder, waiting=size, work="schedule", tasks=count))
            held = size
            await running.driver.ask("call", method="tidy")
            for _ in range(runs):
                figures = await end_to_end_bulk(duly, running, tasks)
                tell("waiting", _found(figures, folder, waiting=size, work="end to end", tasks=tasks))
                figures = await latency(duly, running, tasks)
                tell(
                    "waiting", _found(figures, folder, waiting=size, work="a lone task", tasks="20 a second")
                )
                figures = await _polls()
                tell("waiting", _found(figures, folder, waiting=size, work="the poll", tasks="none"))


async def _wait_for_another_day(running: RunningDuly, tasks: int) -> float:
    """Schedule so many; seconds that it took."""
    first = running.numbers(tasks)
    answer = await running.driver.ask("bulk", first=first, tasks=tasks, due_at=time.time() + _DAY)
    return float(answer["ended_at"] - answer["began_at"]) * 1e-9


async def _polls() -> Figures:
    """CPU of those who poll and are asked, with nothing due, in percent of a core."""
    await asyncio.sleep(_SETTLE)
    before = seconds_by_process(os.getpid())
    await asyncio.sleep(_IDLE)
    used = seconds_by_process(os.getpid())
    return Figures(
        {
            f"{name}_percent": (used[name] - before[name]) / _IDLE * 100
            for name in ("store consumer", "hsc", "postgres")
        }
    )


async def executors(tasks: int, runs: int, tell: Tell) -> None:
    """1 to 8 Executors on one host."""
    for _ in range(runs):
        for count in (1, 2, 4, 8):
            async with _running(Shape(executors=count), {}) as (duly, running, folder):
                figures = await end_to_end_bulk(duly, running, tasks)
                tell("executors", _found(figures, folder, executors=count))


async def lambdas(tasks: int, runs: int, tell: Tell) -> None:
    """1 to 100 lambdas, each with tasks of all four priorities."""
    for _ in range(runs):
        for count in (1, 10, 100):
            async with _running(Shape(), {LAMBDAS: str(count)}) as (duly, running, folder):
                figures = await end_to_end_bulk(duly, running, tasks)
                tell("lambdas", _found(figures, folder, lambdas=count, queues=4 * count))


async def payloads(tasks: int, runs: int, tell: Tell) -> None:
    """Payloads of 100 B to 256 KiB; fewer tasks where they are large."""
    for _ in range(runs):
        for size in (100, 1024, 16 * 1024, 256 * 1024):
            count = min(tasks, _MOST_BYTES // size)
            async with _running(Shape(), {SIZE: str(size)}) as (duly, running, folder):
                figures = await end_to_end_bulk(duly, running, count)
                figures.values["mib_per_s"] = figures.values["rate"] * size / 2**20
                tell("payloads", _found(figures, folder, bytes=size, tasks=count))


async def mix(_tasks: int, runs: int, tell: Tell) -> None:
    """How long short callbacks wait for their start while ones of 10 s hold half of the slots, and without those."""
    for _ in range(runs):
        for long_ones in (0.0, 0.4):  # 0.4 a second of 10 s each: four are running at a time
            rates = _QUIET | ({"bench.takes.10000ms": long_ones} if long_ones else {})
            async with _running(Shape(), {}) as (_duly, running, folder):
                meter = Meter()
                answer = await running.driver.ask(
                    "call", method="mix", arguments=[running.submitted, _MIX_SECONDS, rates]
                )
                called = answer["returned"]
                numbers = sorted(number for calls in called.values() for number, _ in calls)
                await running.started(range(numbers[0], numbers[-1] + 1), _GIVE_UP)
                values = {}
                for name, calls in called.items():
                    waits = sorted((running.marks.starts[number][0] - at) * 1e-6 for number, at in calls)
                    values |= {
                        f"{name}: p{part:g}_ms": percentile(waits, part / 100) for part in (50, 99, 100)
                    }
                figures = meter.stop(len(numbers), values)
                tell("mix", _found(figures, folder, long_running=4 if long_ones else 0))


PARTS: dict[str, Callable[[int, int, Tell], Awaitable[None]]] = {
    "waiting": waiting,
    "executors": executors,
    "lambdas": lambdas,
    "payloads": payloads,
    "mix": mix,
}
