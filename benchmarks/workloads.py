"""What is measured: each workload takes a running system, and answers its figures."""

import random
import time
from collections.abc import Sequence

from benchmarks.meter import Figures, Meter
from benchmarks.percentiles import percentile
from benchmarks.system import BenchmarkError, Running, System

_NANO = 1e-9
_DAY = 86_400.0
_PACED = 200
_PACED_EVERY = 0.05
_LONE = 2_000
_SPREAD_TASKS = 2_000
_SPREAD_OVER = 10.0
_SPIKE_TASKS = 8_000
_SLOWEST = 400
"""Tasks a second that must be submitted, or the first would be due before the last is in."""
_GIVE_UP = 600.0


async def submit_single(system: System, running: Running, tasks: int) -> Figures:
    """Tasks accepted a second, one a call, up to 16 calls at a time; no worker runs."""
    return await _submit(system, running, tasks, "single")


async def submit_bulk(system: System, running: Running, tasks: int) -> Figures:
    """Tasks accepted a second through the bulk API; no worker runs."""
    return await _submit(system, running, tasks, "bulk")


async def _submit(system: System, running: Running, tasks: int, how: str) -> Figures:
    await running.warm_up(system.processes)
    await running.stop_workers()
    # Duly's services would else begin to work on what is due, with or without a worker
    due_at = [time.time() + _DAY] * tasks if system.holds_back else None
    first = running.numbers(tasks)
    meter = Meter()
    answer = await running.driver.ask(how, first=first, tasks=tasks, due_at=due_at)
    return meter.stop(tasks, {"rate": tasks / ((answer["ended_at"] - answer["began_at"]) * _NANO)})


async def drain(system: System, running: Running, tasks: int) -> Figures:
    """Tasks ended a second, of those that were queued before the workers started."""
    await running.warm_up(system.processes)
    await running.stop_workers()
    numbers = await _queue(running, tasks)
    spawned = time.time_ns()
    await running.start_workers()
    await running.any_started(numbers, _GIVE_UP)
    meter = Meter()  # what the workers' own start costs is not the tasks'
    await running.started(numbers, _GIVE_UP)
    settled = await running.settled(_GIVE_UP)
    starts = sorted(running.marks.starts[number][0] for number in numbers)
    return meter.stop(
        tasks,
        {
            "rate": tasks / ((settled - starts[0]) * _NANO),
            "rate_of_starts": tasks / (max(1, starts[-1] - starts[0]) * _NANO),
            "rate_from_spawn": tasks / ((settled - spawned) * _NANO),
            "started_twice": _again(running, numbers),
        },
    )


async def _queue(running: Running, tasks: int, due_at: list[float] | None = None) -> range:
    """Submit by the quickest way that the system has."""
    first = running.numbers(tasks)
    way = await running.driver.ask("hello")
    bulk = way["bulk"] and (way["bulk_takes_times"] or len(set(due_at or ())) <= 1)
    await running.driver.ask("bulk" if bulk else "single", first=first, tasks=tasks, due_at=due_at)
    return range(first, first + tasks)


async def end_to_end_single(system: System, running: Running, tasks: int) -> Figures:
    """From the first submit to the last end stored, submitted and processed at the same time, one task a call."""
    return await _end_to_end(system, running, tasks, "single")


async def end_to_end_bulk(system: System, running: Running, tasks: int) -> Figures:
    """As `end_to_end_single`, through the bulk API."""
    return await _end_to_end(system, running, tasks, "bulk")


async def _end_to_end(system: System, running: Running, tasks: int, how: str) -> Figures:
    await running.warm_up(system.processes)
    first = running.numbers(tasks)
    numbers = range(first, first + tasks)
    meter = Meter()
    answer = await running.driver.ask(how, first=first, tasks=tasks)
    await running.started(numbers, _GIVE_UP)
    settled = await running.settled(_GIVE_UP)
    seconds = (settled - answer["began_at"]) * _NANO
    return meter.stop(tasks, {"rate": tasks / seconds, "started_twice": _again(running, numbers)})


async def latency(system: System, running: Running, tasks: int) -> Figures:
    """From the call of submit to the start, 20 a second, nothing else going on."""
    await running.warm_up(system.processes)
    paced = min(_PACED, tasks)
    first = running.numbers(paced)
    numbers = range(first, first + paced)
    meter = Meter()
    answer = await running.driver.ask("paced", first=first, tasks=paced, every=_PACED_EVERY)
    await running.started(numbers, _GIVE_UP)
    called = dict(zip(numbers, answer["called"], strict=True))
    waits = sorted((running.marks.starts[number][0] - called[number]) * 1e-6 for number in numbers)
    return meter.stop(paced, _percentiles(waits))


async def one_call(system: System, running: Running, tasks: int) -> Figures:
    """From the call of submit to its answer, one caller, one call at a time; no worker runs."""
    await running.warm_up(system.processes)
    await running.stop_workers()
    figures, _ = await _lone(running, tasks, ahead=system.holds_back)
    return figures


async def one_call_idle(system: System, running: Running, tasks: int) -> Figures:
    """As `one_call`, with workers that have nothing to do: the tasks are for another day."""
    await running.warm_up(system.processes)
    figures, _ = await _lone(running, tasks, ahead=True)
    return figures


async def one_call_running(system: System, running: Running, tasks: int) -> Figures:
    """As `one_call`, with workers that run the tasks as they come."""
    await running.warm_up(system.processes)
    figures, numbers = await _lone(running, tasks, ahead=False)
    await running.started(numbers, _GIVE_UP)
    await running.settled(_GIVE_UP)
    figures.values["started_twice"] = _again(running, numbers)
    return figures


async def _lone(running: Running, tasks: int, *, ahead: bool) -> tuple[Figures, range]:
    count = min(_LONE, tasks)
    first = running.numbers(count)
    due_at = [time.time() + _DAY] * count if ahead else None
    meter = Meter()
    answer = await running.driver.ask("lone", first=first, tasks=count, due_at=due_at)
    seconds = (answer["ended_at"] - answer["began_at"]) * _NANO
    waits = sorted(took * 1e-6 for took in answer["took"])
    values = _percentiles(waits) | {"rate": count / seconds}
    return meter.stop(count, values), range(first, first + count)


async def lateness(system: System, running: Running, tasks: int) -> Figures:
    """From the due time to the start: due times at random over 10 s, all submitted ahead."""
    count = min(_SPREAD_TASKS, tasks)
    chance = random.Random(4)  # the same times for everybody
    spread = sorted(chance.uniform(0, _SPREAD_OVER) for _ in range(count))
    figures, _ = await _scheduled(system, running, spread)
    return figures


async def spike(system: System, running: Running, tasks: int) -> Figures:
    """As `lateness`, with all due at one instant: how late they were, and when the last had started."""
    figures, settled_in = await _scheduled(system, running, [0.0] * min(_SPIKE_TASKS, tasks))
    figures.values["drained_s"] = figures.values["max_ms"] / 1000
    figures.values["settled_s"] = settled_in
    return figures


async def _scheduled(system: System, running: Running, spread: list[float]) -> tuple[Figures, float]:
    await running.warm_up(system.processes)
    meter = Meter()
    ahead = 5.0 + len(spread) / _SLOWEST
    base = time.time() + ahead
    numbers = await _queue(running, len(spread), [base + offset for offset in spread])
    late_by = time.time() - base
    if late_by > 0:
        raise BenchmarkError(
            f"submitting took {late_by:.1f} s longer than the {ahead:g} s before the due time"
        )
    await running.started(numbers, _GIVE_UP)
    settled = await running.settled(_GIVE_UP)
    starts = running.marks.starts
    waits = sorted(
        starts[number][0] * 1e-6 - (base + offset) * 1e3
        for number, offset in zip(numbers, spread, strict=True)
    )
    values = _percentiles(waits) | {"max_ms": waits[-1], "started_twice": _again(running, numbers)}
    return meter.stop(len(spread), values), settled * _NANO - base


def _percentiles(waits: Sequence[float]) -> dict[str, float]:
    return {f"p{round(part * 100)}_ms": percentile(waits, part) for part in (0.5, 0.95, 0.99)}


def _again(running: Running, numbers: range) -> float:
    return sum(1 for number in numbers if len(running.marks.starts[number]) > 1)
