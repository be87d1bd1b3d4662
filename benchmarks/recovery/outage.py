"""Postgres is away for half a minute while long callbacks run: none is killed, and none is charged a crash."""

import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path

import duly
from benchmarks.recovery.bench import running
from benchmarks.recovery.kills import APP, schedule_when_possible
from duly_local.postgres.embedded import EmbeddedPostgres

_TASKS = 8
"""Half of the slots: other tasks must flow beside them."""
_SETTLED = 30.0
_BEAT_FIRST = 20.0
"""Seconds: longer than a heartbeat period of the production profile, so that the tasks are `processing`."""
_AFTERWARDS = 45.0
"""As long as claims that were not renewed in time would take to be given to others, and more."""


async def measure(seconds: float, settle: float = _BEAT_FIRST) -> dict[str, float]:
    """Stop Postgres at once (SIGQUIT), start it again after so long."""
    with tempfile.TemporaryDirectory(prefix="duly-outage-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with EmbeddedPostgres(folder / "data") as postgres:
            async with running(apps=(APP,), profile="production", slots=8, postgres=postgres) as bench:
                go = bench.until_file("outage")
                scheduled = await bench.client.schedule_many(
                    duly.NewTask("recovery.hold", {"until": str(go)}) for _ in range(_TASKS)
                )
                tasks = [task.task_id for task in scheduled]
                await bench.started(tasks, 0, _SETTLED)
                await asyncio.sleep(settle)
                if postgres.pid is not None:
                    os.kill(postgres.pid, signal.SIGQUIT)
                await asyncio.sleep(seconds)
                postgres.launch()
                await asyncio.to_thread(postgres.wait_until_ready)
                back_at = time.time()
                task = await schedule_when_possible(bench, _SETTLED)
                flows = await bench.started([task.task_id], back_at, _SETTLED)
                await asyncio.sleep(_AFTERWARDS if settle else 0)
                go.touch()
                ended = await bench.client.wait_many(scheduled)
                executions = sum(len(bench.starts_of(each)) for each in tasks)
    return {
        "tasks": len(tasks),
        "succeeded": sum(each.status is duly.TaskStatus.SUCCESS for each in ended),
        "executions": executions,
        "crashes charged": sum(each.crashes for each in ended),
        "from Postgres's return to the next start (s)": flows[task.task_id].at - back_at,
    }
