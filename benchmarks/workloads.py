"""What is measured: each workload takes a client and answers its figures."""

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import duly
from benchmarks.percentiles import percentile

PAYLOAD = b"x" * 100
CALLERS = 16
_SUBMITS = 200
_SUBMIT_EVERY = 0.05
_LOOK_EVERY = 0.02
_MILLISECONDS = 1e-6
_NOT_TODAY = timedelta(days=1)


async def single_schedules(client: duly.AsyncClient, tasks: int) -> dict[str, float]:
    """Durable schedules a second, one task a call, 16 callers with one call each in flight; none is due."""

    async def caller() -> None:
        for _ in range(tasks // CALLERS):
            await client.schedule("bench.noop", PAYLOAD, delay=_NOT_TODAY)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return {"schedule, single calls, 16 at a time (tasks/s)": tasks / (time.perf_counter() - started)}


async def bulk_schedules(client: duly.AsyncClient, tasks: int) -> dict[str, float]:
    """Durable schedules a second through schedule_many; none is due."""
    started = time.perf_counter()
    await client.schedule_many(duly.NewTask("bench.noop", PAYLOAD, delay=_NOT_TODAY) for _ in range(tasks))
    return {"schedule_many (tasks/s)": tasks / (time.perf_counter() - started)}


async def end_to_end(client: duly.AsyncClient, tasks: int) -> dict[str, float]:
    """From the first schedule to the last success, submitted and processed at the same time."""
    started = time.perf_counter()
    scheduled = await client.schedule_many(duly.NewTask("bench.noop", PAYLOAD) for _ in range(tasks))
    await _succeeded(client, scheduled)
    return {"end to end (tasks/s)": tasks / (time.perf_counter() - started)}


async def _succeeded(client: duly.AsyncClient, scheduled: list[duly.ScheduledTask]) -> None:
    """Return when all have succeeded: waits for those that were scheduled last, then looks for stragglers."""
    await client.wait_many(scheduled[-10:])
    # only tasks that are waiting for another day may be left: those of the schedule workloads
    under_way = [
        status for status in duly.TaskStatus if not status.is_final and status is not duly.TaskStatus.NEW
    ]
    while [task async for task in client.list(statuses=under_way, page_size=1)]:  # noqa: ASYNC110 (there is no event for it)
        await asyncio.sleep(_LOOK_EVERY)
    sample = await client.wait_many(scheduled[:: max(1, len(scheduled) // 500)])
    if not all(task.status is duly.TaskStatus.SUCCESS for task in sample):
        message = "a task of the benchmark did not succeed"
        raise RuntimeError(message)


async def latency(client: duly.AsyncClient, starts: Path) -> dict[str, float]:
    """From the call of `schedule` to the first line of the callback, 20 a second, nothing else going on."""
    called: dict[str, int] = {}
    scheduled = []
    for _ in range(_SUBMITS):
        before = time.time_ns()
        task = await client.schedule("bench.start", b"")
        called[task.task_id] = before
        scheduled.append(task)
        await asyncio.sleep(_SUBMIT_EVERY)
    await client.wait_many(scheduled)
    lines = (line.split() for line in starts.read_text(encoding="ascii").splitlines())
    waits = sorted((int(at) - called[task_id]) * _MILLISECONDS for task_id, at in lines if task_id in called)
    if len(waits) != _SUBMITS:
        message = f"{len(waits)} of {_SUBMITS} tasks noted a start"
        raise RuntimeError(message)
    return {
        "submit to start, 20/s: p50 (ms)": percentile(waits, 0.5),
        "submit to start, 20/s: p99 (ms)": percentile(waits, 0.99),
    }
