"""Eight callbacks hold the GIL of their process for longer than three heartbeat periods: no heartbeat is lost."""

import asyncio
import re
import urllib.request
from itertools import cycle, islice

import duly
from benchmarks.recovery.bench import Bench, running
from benchmarks.recovery.kills import APP

_TASKS = 8
_WAYS = ("regex", "sum", "C call")
_COUNTERS = ("duly_strikes_total", "duly_lost_claims_total", "duly_crashed_processes_total")


async def measure(seconds: float) -> dict[str, float]:
    """On the embedded profile, whose heartbeat period is 3 s: `seconds` should be more than nine."""
    async with running(apps=(APP,), profile="embedded", processes=1, slots=_TASKS) as bench:
        scheduled = await bench.client.schedule_many(
            duly.NewTask("recovery.hot", {"seconds": seconds, "way": way})
            for way in islice(cycle(_WAYS), _TASKS)
        )
        ended = await bench.client.wait_many(scheduled)
        counted = await asyncio.to_thread(_counted, bench)
    succeeded = sum(task.status is duly.TaskStatus.SUCCESS for task in ended)
    return {
        "tasks": _TASKS,
        "succeeded": succeeded,
        "crashes charged": sum(t.crashes for t in ended),
        **counted,
    }


def _counted(bench: Bench) -> dict[str, float]:
    """What the Executor counted."""
    with urllib.request.urlopen(f"http://127.0.0.1:{bench.metrics_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        name: sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))
        for name in _COUNTERS
    }
