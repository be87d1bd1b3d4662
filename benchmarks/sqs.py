"""What the SQS path costs Duly: calls of SQS a task by operation, and CPU beside that without a queue.

Against moto's server, whose speed says nothing of SQS: few tasks, and no rate is reported. Calls are counted where
they are made (the metric `duly_sqs_calls_total` of Store Consumer and Controller).
"""

import asyncio
import re
import tempfile
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.duly_system import Duly, RunningDuly, Shape
from benchmarks.workloads import end_to_end_bulk, end_to_end_single

_CALLS = re.compile(r'^duly_sqs_calls_total\{operation="(\w+)"\} ([\d.e+]+)$', re.MULTILINE)
_PROCESSES = ("server", "worker")
_OURS = ("server", "controller")
_SHIPPED = {"bulk": end_to_end_bulk, "single": end_to_end_single}


async def sqs(tasks: int, runs: int) -> list[dict[str, Any]]:
    """One entry a measurement."""
    found = []
    for _ in range(runs):
        for queue in ("sqs", "store"):
            for how, work in _SHIPPED.items():
                with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as name:
                    folder = Path(name)
                    folder.chmod(0o711)
                    duly = Duly(Shape(queue=queue))
                    async with duly.running(folder) as running:
                        await running.start_workers()
                        await running.warm_up(duly.processes)
                        before = await _calls(running)
                        figures = await work(duly, running, tasks)
                        calls = await _calls(running)
                        calls.subtract(before)
                cpu = {name: figures.cpu_us_per_task.get(name, 0.0) for name in _OURS}
                per_task = {name: count / tasks for name, count in calls.items() if count}
                found.append(
                    {
                        "queue": queue,
                        "submitted": how,
                        "tasks": tasks,
                        "cpu_us_per_task": cpu,
                        "calls_per_task": per_task,
                    }
                )
                print(f"sqs: {found[-1]}", flush=True)
    return found


async def _calls(running: RunningDuly) -> Counter[str]:
    """So far, by process and operation (a warm-up runs first, so that queues are there; it is part of both ends)."""
    total: Counter[str] = Counter()
    for process in _PROCESSES:
        address = running.stack.ports.metrics_address(process)
        calls = await asyncio.to_thread(calls_of, address)
        total.update({f"{process} {operation}": count for operation, count in calls.items()})
    return total


def calls_of(address: str) -> Counter[str]:
    """Return the calls of SQS so far of the process whose metrics are here, by operation."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return Counter({operation: int(float(count)) for operation, count in _CALLS.findall(text)})
