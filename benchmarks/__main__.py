"""`python -m benchmarks`: measures a local stack on the Postgres queue, and prints a table."""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

import duly
from benchmarks import workloads
from benchmarks.cpu import seconds_by_process
from benchmarks.noop import STARTS
from duly_local.options import StackOptions
from duly_local.prefixing import MergedOutput
from duly_local.stack import LocalStack

_WARM_UP = 2_000


async def measure(options: argparse.Namespace) -> tuple[dict[str, list[float]], Counter[str]]:
    """Every workload `--runs` times on one stack, after a warm-up; CPU seconds of the end-to-end runs."""
    figures: dict[str, list[float]] = {}
    cpu: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="duly-bench-") as folder:
        Path(folder).chmod(0o711)
        starts = Path(folder) / "starts"
        os.environ[STARTS] = str(starts)
        stack_options = StackOptions(
            data_directory=Path(folder) / "data",
            apps=("benchmarks.noop:app",),
            executors=options.executors,
            processes=options.processes,
            slots=options.slots,
            ports="free",
        )
        log = (Path(folder) / "log").open("wb")
        with log:
            async with (
                LocalStack(stack_options, MergedOutput(log)) as stack,
                duly.AsyncClient(stack.frontend_address) as client,
            ):
                await workloads.end_to_end(client, _WARM_UP)
                for _ in range(options.runs):
                    before = seconds_by_process(os.getpid())
                    results = await workloads.end_to_end(client, options.tasks)
                    cpu.update(seconds_by_process(os.getpid()) - before)
                    results |= await workloads.latency(client, starts)
                    results |= await workloads.single_schedules(client, options.tasks)
                    results |= await workloads.bulk_schedules(client, options.tasks)
                    for name, value in results.items():
                        figures.setdefault(name, []).append(value)
    return figures, cpu


def main() -> None:
    """Measure and print; `--json FILE` keeps every run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--executors", type=int, default=1)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures, cpu = asyncio.run(measure(options))
    print(f"{options.tasks:,} no-op tasks of 100 B, {options.runs} runs, Postgres queue, fsync on")
    for name, values in figures.items():
        spread = f"{min(values):,.1f} to {max(values):,.1f}"
        print(f"{name:50} median {statistics.median(values):>10,.1f}   ({spread})")
    total = options.tasks * options.runs
    print("CPU, us a task, end to end:", end=" ")
    print(", ".join(f"{name} {seconds / total * 1e6:.0f}" for name, seconds in cpu.most_common()))
    if options.json:
        options.json.write_text(
            json.dumps({"figures": figures, "cpu_seconds": cpu}, indent=2), encoding="utf-8"
        )
    sys.exit(0)


if __name__ == "__main__":
    main()
