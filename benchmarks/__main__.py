"""`python -m benchmarks`: Duly and its rivals on the same work, in one run; see docs/performance.md."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from benchmarks import growth, report
from benchmarks.duly_system import Duly, Shape
from benchmarks.machine import machine
from benchmarks.results import Results
from benchmarks.rivals.system import RECIPES, Rival
from benchmarks.rivals.venv import python
from benchmarks.rounds import FLOOR, run_rounds
from benchmarks.sqs import sqs
from benchmarks.suite import WORKLOADS
from benchmarks.system import BenchmarkError, System

_SQS_TASKS = 500


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    systems = ["duly", *(recipe.name for recipe in RECIPES)]
    works = [*WORKLOADS, FLOOR]
    add = parser.add_argument
    only = f"systems ({', '.join(systems)}) and workloads ({', '.join(works)})"
    add("--only", nargs="+", default=[], choices=systems + works, metavar="NAME", help=only)
    add("--runs", type=int, default=3)
    add(
        "--tasks",
        type=int,
        default=20_000,
        help="of the throughput workloads; the others have their own, or fewer",
    )
    add("--executors", type=int, default=1, help="of Duly; as are the next two")
    add("--processes", type=int, default=1)
    add("--slots", type=int, default=8)
    parts = ", ".join(growth.PARTS)
    add(
        "--growth",
        nargs="*",
        choices=growth.PARTS,
        metavar="PART",
        help=f"how Duly's cost grows, instead: {parts}",
    )
    add("--sqs", action="store_true", help="what the SQS path costs Duly, instead, against moto's server")
    add("--json", type=Path, help="keep every measurement in this file, as it comes")
    return parser.parse_args()


async def measure(options: argparse.Namespace) -> Results:
    """All that was asked for."""
    stop_on_sigterm()
    results = Results(machine(), vars(options), options.json)
    if options.growth is not None:
        for name in options.growth or growth.PARTS:
            await growth.PARTS[name](options.tasks, options.runs, results.append)
    if options.sqs:
        results.put("sqs", await sqs(min(options.tasks, _SQS_TASKS), options.runs))
    if options.growth is None and not options.sqs:
        await side_by_side(options, results)
    return results


async def side_by_side(options: argparse.Namespace, results: Results) -> None:
    """Duly and its rivals, or those of them that were named."""
    known: list[System] = [Duly(Shape(options.executors, options.processes, options.slots))]
    known += [Rival(recipe) for recipe in RECIPES]
    systems = [system for system in known if system.name in options.only] or known
    workloads = [name for name in [*WORKLOADS, FLOOR] if name in options.only]
    if any(isinstance(system, Rival) for system in systems):
        python()
    for system in systems:
        results.describe(system)
    present = [system for system in systems if not system.missing()]
    await run_rounds(present, workloads or [*WORKLOADS, FLOOR], options.runs, options.tasks, results.add)


def stop_on_sigterm() -> None:
    """As Ctrl-C does: what was started is stopped."""
    whole = asyncio.current_task()
    if whole is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, whole.cancel)


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
