"""`python -m benchmarks`: Duly and its rivals on the same work, in one run; see docs/benchmarks.md."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import os
import signal
import sys
from dataclasses import replace
from functools import partial

from benchmarks import growth, report
from benchmarks.command_line import WORKS, parse
from benchmarks.duly_system import Duly, Shape
from benchmarks.machine import machine
from benchmarks.results import Results
from benchmarks.rivals.system import RECIPES, Rival
from benchmarks.rivals.venv import python
from benchmarks.rounds import FLOORS, run_rounds
from benchmarks.sqs import sqs
from benchmarks.system import BenchmarkError, System
from duly_local.postgres.binaries import ENVIRONMENT_VARIABLE

_SQS_TASKS = 500


async def measure(options: argparse.Namespace) -> Results:
    """All that was asked for."""
    stop_on_sigterm()
    results = Results(machine(), vars(options), options.json)
    if options.growth is not None:
        for name in options.growth or growth.PARTS:
            with results.problems_of(name):
                measured = growth.PARTS[name]
                if name == "waiting":
                    measured = partial(growth.waiting, sizes=options.waiting)
                await measured(options.tasks, options.runs, results.append)
    if options.sqs:
        with results.problems_of("sqs"):
            results.put("sqs", await sqs(min(options.tasks, _SQS_TASKS), options.runs))
    if options.growth is None and not options.sqs:
        await side_by_side(options, results)
    return results


async def side_by_side(options: argparse.Namespace, results: Results) -> None:
    """Duly and its rivals, or those of them that were named."""
    shape = Shape(options.executors, options.processes, options.slots)
    known: list[System] = [Duly(shape), Duly(replace(shape, json=True))]
    known += [Rival(recipe) for recipe in RECIPES]
    transactional = Duly(replace(shape, json=True, transactional=True))
    named = [system for system in [*known, transactional] if system.name in options.only]
    workloads = [name for name in WORKS if name in options.only]
    workloads = workloads or [name for name in WORKS if not named or name not in FLOORS]
    systems = [] if FLOORS.keys() >= set(workloads) else named or known
    if any(isinstance(system, Rival) for system in systems):
        python()
    for system in systems:
        results.describe(system)
    present = [system for system in systems if not system.missing()]
    await run_rounds(present, workloads, options.runs, options.tasks, results.add)


def stop_on_sigterm() -> None:
    """As Ctrl-C does: what was started is stopped."""
    whole = asyncio.current_task()
    if whole is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, whole.cancel)


def main() -> None:
    """Measure and print."""
    options = parse()
    if options.postgres:
        os.environ[ENVIRONMENT_VARIABLE] = str(options.postgres)
    try:
        results = asyncio.run(measure(options))
    except BenchmarkError as error:
        sys.exit(f"benchmarks: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("benchmarks: stopped")
    print(report.render(results.as_json()))


if __name__ == "__main__":
    main()
