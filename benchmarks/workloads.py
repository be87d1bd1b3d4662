"""What is measured: each workload takes a client and answers its figures."""

import asyncio
import time
from pathlib import Path

import duly
from benchmarks.percentiles import percentile

PAYLOAD = b"x" * 100
CALLERS = 16
_SUBMITS = 200
_SUBMIT_EVERY = 0.05
_MILLISECONDS = 1e-6


async def single_schedules(client: duly.AsyncClient, tasks: int) -> dict[str, float]:
    """Durable schedules a second, one task a call, 16 callers with one call each in flight."""

    async def caller() -> None:
        for _ in range(tasks // CALLERS):
            await client.schedule("bench.noop", PAYLOAD)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    rate = tasks / (time.perf_counter() - started)
    await drained(client)
    return {"schedule, single calls, 16 at a time (tasks/s)": rate}


async def end_to_end(client: duly.AsyncClient, tasks: int) -> dict[str, float]:
    """From the first schedule to the last success, all of it at once; and the submit alone."""
    started = time.perf_counter()
    await client.schedule_many(duly.NewTask("bench.noop", PAYLOAD) for _ in range(tasks))
    submitted = time.perf_counter()
    await drained(client)
    ended = time.perf_counter()
    return {
        "schedule_many (tasks/s)": tasks / (submitted - started),
        "end to end (tasks/s)": tasks / (ended - started),
    }


async def drained(client: duly.AsyncClient) -> None:
    """Return when no task is live; fails if one ended otherwise than by success."""
    live = [status for status in duly.TaskStatus if not status.is_final]
    bad = [duly.TaskStatus.FATAL_FAILURE, duly.TaskStatus.CANCELLED, duly.TaskStatus.DROPPED]
    while await _any(client, live):
        await asyncio.sleep(0.01)
    if await _any(client, bad):
        message = "a task of the benchmark did not succeed"
        raise RuntimeError(message)


async def _any(client: duly.AsyncClient, statuses: list[duly.TaskStatus]) -> bool:
    async for _ in client.list(statuses=statuses, page_size=1):
        return True
    return False


async def latency(client: duly.AsyncClient, starts: Path) -> dict[str, float]:
    """From the call of `schedule` to the first line of the callback, 20 a second, nothing else going on."""
    called: dict[str, int] = {}
    for _ in range(_SUBMITS):
        before = time.time_ns()
        task = await client.schedule("bench.start", b"")
        called[task.task_id] = before
        await asyncio.sleep(_SUBMIT_EVERY)
    await drained(client)
    lines = (line.split() for line in starts.read_text(encoding="ascii").splitlines())
    waits = sorted((int(at) - called[task_id]) * _MILLISECONDS for task_id, at in lines if task_id in called)
    if len(waits) != _SUBMITS:
        message = f"{len(waits)} of {_SUBMITS} tasks noted a start"
        raise RuntimeError(message)
    return {
        "submit to start, 20/s: p50 (ms)": percentile(waits, 0.5),
        "submit to start, 20/s: p99 (ms)": percentile(waits, 0.99),
    }
