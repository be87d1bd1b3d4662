"""`python -m benchmarks`: Duly and its rivals on the same work, in one run; see docs/performance.md."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from benchmarks import report
from benchmarks.duly_system import Duly, Shape
from benchmarks.machine import machine
from benchmarks.results import Results
from benchmarks.rivals.system import RECIPES, Rival
from benchmarks.rivals.venv import python
from benchmarks.rounds import run_rounds
from benchmarks.system import BenchmarkError, System
from benchmarks.workloads import WORKLOADS


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = ["duly", *(recipe.name for recipe in RECIPES), *WORKLOADS]
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=names,
        metavar="NAME",
        help=f"systems or workloads: {', '.join(names)}",
    )
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--tasks", type=int, default=20_000, help="of the throughput workloads; others take fewer at most"
    )
    parser.add_argument("--executors", type=int, default=1, help="of Duly; as are the next two")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--json", type=Path, help="keep every measurement in this file")
    return parser.parse_args()


async def measure(options: argparse.Namespace) -> Results:
    """All that was asked for."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)  # type: ignore[union-attr]
    systems: list[System] = [Duly(Shape(options.executors, options.processes, options.slots))]
    systems += [Rival(recipe) for recipe in RECIPES]
    wanted = [system for system in systems if system.name in options.only]
    workloads = [name for name in WORKLOADS if name in options.only]
    systems = wanted or systems
    results = Results(machine(), vars(options), options.json)
    if any(isinstance(system, Rival) for system in systems):
        python()
    for system in systems:
        results.describe(system)
    present = [system for system in systems if not system.missing()]
    await run_rounds(present, workloads or list(WORKLOADS), options.runs, options.tasks, results.add)
    return results


def main() -> None:
    """Measure and print."""
    options = parse()
    try:
        results = asyncio.run(measure(options))
    except BenchmarkError as error:
        sys.exit(f"benchmarks: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("benchmarks: stopped")
    print(report.render(results.as_json()))


if __name__ == "__main__":
    main()
