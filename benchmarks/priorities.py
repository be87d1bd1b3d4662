"""`python -m benchmarks.priorities`: how soon an urgent task starts while low ones wait in thousands, or run long.

For each backlog the same measurement as without one, in the same stack: urgent tasks that do nothing, one at a time;
how long from the call to the start, and how many low ones started in between.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import bisect
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import duly
from benchmarks.arguments import in_range, new_file
from benchmarks.calibration import calibrate
from benchmarks.duly_system import Duly, RunningDuly, Shape
from benchmarks.machine import machine
from benchmarks.marks import payload_of
from benchmarks.percentiles import percentile

_GIVE_UP = 300.0
_EVERY = 0.05
BACKLOGS: dict[str, str | None] = {
    "nothing else": None,
    "low ones of no length": "bench.noop",
    "low ones of 1 ms": "bench.takes.1ms",
    "low ones of 100 ms": "bench.takes.100ms",
}


async def _behind(running: RunningDuly, client: duly.AsyncClient, urgent: int) -> dict[str, Any]:
    """Urgent tasks, one at a time; what came before each."""
    first = running.numbers(urgent)
    numbers = range(first, first + urgent)
    called = {}
    for number in numbers:
        called[number] = time.time_ns()
        await client.schedule("bench.noop", payload_of(number), priority=duly.Priority.URGENT)
        await asyncio.sleep(_EVERY)
    await running.started(numbers, _GIVE_UP)
    starts = {number: times[0] for number, times in running.marks.starts.items()}
    others = sorted(at for number, at in starts.items() if number not in called)
    waits = sorted((starts[number] - called[number]) / 1e6 for number in numbers)
    before = sorted(
        bisect.bisect(others, starts[number]) - bisect.bisect(others, called[number]) for number in numbers
    )
    return {
        "p50_ms": percentile(waits, 0.5),
        "p99_ms": percentile(waits, 0.99),
        "low_started_before_p50": percentile(before, 0.5),
        "low_started_before_most": before[-1],
    }


async def measure(backlog: int, urgent: int, shape: Shape) -> dict[str, Any]:
    """Each backlog in a stack of its own: what is left of one must not run beside the next."""
    found: dict[str, Any] = {}
    for name, lambda_name in BACKLOGS.items():
        with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as path:
            folder = Path(path)
            folder.chmod(0o711)
            system = Duly(shape)
            async with system.running(folder) as running:
                await running.start_workers()
                await running.warm_up(system.processes)
                async with duly.AsyncClient(running.stack.frontend_address) as client:
                    low = range(0)
                    if lambda_name:
                        first = running.numbers(backlog)
                        low = range(first, first + backlog)
                        await client.schedule_many(
                            [
                                duly.NewTask(lambda_name, payload_of(number), duly.Priority.LOW)
                                for number in low
                            ]
                        )
                        await running.any_started(low, _GIVE_UP)
                    found[name] = await _behind(running, client, urgent)
                running.marks.look()
                found[name]["low_still_waiting"] = sum(number not in running.marks.starts for number in low)
                found[name]["calibration"] = calibrate(folder)
    return found


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.priorities", description=__doc__)
    parser.add_argument("--backlog", type=in_range(1, 1_000_000), default=50_000)
    parser.add_argument("--urgent", type=in_range(1, 100_000), default=100)
    parser.add_argument("--processes", type=in_range(1, 64), default=1)
    parser.add_argument("--slots", type=in_range(1, 1_000), default=8)
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    found = asyncio.run(
        measure(options.backlog, options.urgent, Shape(processes=options.processes, slots=options.slots))
    )
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "found": found}, indent=1) + "\n")
    head = f"{'behind':24}{'p50 ms':>10}{'p99 ms':>10}{'low first, p50':>16}{'most':>8}{'still waiting':>15}"
    print(head)
    for name, row in found.items():
        print(
            f"{name:24}{row['p50_ms']:10.1f}{row['p99_ms']:10.1f}{row['low_started_before_p50']:16.0f}"
            f"{row['low_started_before_most']:8}{row['low_still_waiting']:15,}"
        )


if __name__ == "__main__":
    main()
