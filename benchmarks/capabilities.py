"""`python -m benchmarks.capabilities`: what sessions, graphs and limits cost a task, and how fast one session goes.

Many sessions, one hot session, one graph, tasks that take units of a resource, and as many plain tasks as each has, in
turns. Each measurement has a stack of its own: all tasks are submitted while workers run, and it ends when the last
end is stored.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import enum
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import duly
from benchmarks.arguments import in_range, new_file
from benchmarks.calibration import calibrate
from benchmarks.duly_system import Duly, Shape
from benchmarks.machine import machine
from benchmarks.marks import payload_of
from benchmarks.meter import Meter
from benchmarks.tables import rows

_LEAST_WITHIN = 120.0
_WITHIN_A_TASK = 0.05
_MOST = 1_000_000
_LAMBDA = "bench.noop"

_LAYER = 1_000
"""Nodes of a graph that may run side by side; each waits for two of the layer before."""
_UNITS = 4
"""Of each key of the resource."""


class Kind(enum.Enum):
    """What the tasks of a load have."""

    PLAIN = "plain"
    SESSIONS = "sessions"
    GRAPH = "graph"
    RESOURCES = "resources"


class Load(NamedTuple):
    """What is submitted."""

    kind: Kind
    tasks: int
    groups: int = 1
    """Sessions, or keys of the resource."""


def loads(options: argparse.Namespace) -> dict[str, Load]:
    """Return what is measured, by name: each load after the plain tasks that it is held against."""
    many = options.sessions * options.tasks
    every = {
        "sessions": {
            f"{many:,} plain": Load(Kind.PLAIN, many),
            f"{options.sessions:,} sessions x {options.tasks:,}": Load(Kind.SESSIONS, many, options.sessions),
        },
        "hot": {
            f"{options.hot:,} plain": Load(Kind.PLAIN, options.hot),
            f"1 session x {options.hot:,}": Load(Kind.SESSIONS, options.hot),
        },
        "graph": {
            f"{options.nodes:,} plain": Load(Kind.PLAIN, options.nodes),
            f"graph of {options.nodes:,} nodes": Load(Kind.GRAPH, options.nodes),
        },
        "resources": {
            f"{options.limited:,} plain": Load(Kind.PLAIN, options.limited),
            f"{options.keys:,} resources, {options.limited:,} tasks": Load(
                Kind.RESOURCES, options.limited, options.keys
            ),
        },
    }
    return {name: load for part in options.only or every for name, load in every[part].items()}


async def _submit(client: duly.AsyncClient, first: int, load: Load) -> None:
    """Schedule the tasks of a load: of sessions the first of each, then the second of each."""
    if load.kind is Kind.GRAPH:
        await client.schedule_graph(_graph(first, load.tasks))
        return
    if load.kind is Kind.RESOURCES:
        await client.put_resource("bench", _UNITS, per_key=True)
    await client.schedule_many(_task(number, first, load) for number in range(load.tasks))


def _task(number: int, first: int, load: Load) -> duly.NewTask:
    group = f"bench-{number % load.groups}"
    return duly.NewTask(
        _LAMBDA,
        payload_of(first + number),
        session=group if load.kind is Kind.SESSIONS else None,
        resources=[duly.ResourceNeed("bench", group)] if load.kind is Kind.RESOURCES else (),
    )


def _graph(first: int, nodes: int) -> duly.NewGraph:
    graph = duly.NewGraph("bench")
    before: list[Any] = []
    for layer in range(0, nodes, _LAYER):
        size = min(_LAYER, nodes - layer)
        before = [
            graph.task(
                _LAMBDA,
                payload_of(first + layer + place),
                label=f"n{layer + place}",
                after=[before[place], before[(place + 1) % len(before)]] if before else (),
            )
            for place in range(size)
        ]
    return graph


async def _measure(load: Load, shape: Shape) -> dict[str, Any]:
    """Run one load in a stack of its own."""
    count = load.tasks
    within = _LEAST_WITHIN + count * _WITHIN_A_TASK
    with tempfile.TemporaryDirectory(prefix="duly-bench-", ignore_cleanup_errors=True) as path:
        folder = Path(path)
        folder.chmod(0o711)
        system = Duly(shape)
        async with system.running(folder) as running:
            await running.start_workers()
            await running.warm_up(system.processes)
            first = running.numbers(count)
            calibration = calibrate(folder)
            async with duly.AsyncClient(running.stack.frontend_address) as client:
                meter, began = Meter(), time.monotonic()
                await _submit(client, first, load)
                submitted = time.monotonic() - began
                await running.started(range(first, first + count), within)
                await running.settled(within)
                seconds = time.monotonic() - began
                figures = meter.stop(count, {}, own="client and bench")
    return {
        "tasks_per_s": count / seconds,
        "submit_s": submitted,
        "seconds": seconds,
        "cpu_us_per_task": figures.cpu_us_per_task,
        "memory_mib": figures.memory_mib,
        "calibration": calibration,
    }


async def measure(options: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Run all loads in turns, as often as asked for; the rounds of each by its name."""
    shape = Shape(processes=options.processes, slots=options.slots)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in loads(options)}
    for number in range(1, options.rounds + 1):
        for name, load in loads(options).items():
            found[name].append(await _measure(load, shape))
            print(f"  round {number}: {name}: done", flush=True)
    return found


def show(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the medians as a table for people."""
    processes = sorted({name for runs in found.values() for run in runs for name in run["cpu_us_per_task"]})
    body = []
    for name, runs in found.items():
        each = [
            statistics.median(run["cpu_us_per_task"].get(process, 0) for run in runs) for process in processes
        ]
        rate = statistics.median(run["tasks_per_s"] for run in runs)
        body.append([name, f"{rate:,.0f}", f"{sum(each):,.0f}", *(f"{value:,.0f}" for value in each)])
    head = ["load", "tasks/s", "CPU us a task", *processes]
    return f"Medians; CPU in us a task, by process.\n{rows(head, body)}"


def main() -> None:
    """Measure, print, and keep every round with `--json FILE`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capabilities", description=__doc__)
    parser.add_argument("--sessions", type=in_range(1, _MOST), default=10_000)
    parser.add_argument("--tasks", type=in_range(1, 1_000), default=10, help="in each session (default: 10)")
    parser.add_argument(
        "--hot", type=in_range(1, _MOST), default=10_000, help="tasks of the one hot session (default: 10000)"
    )
    parser.add_argument("--nodes", type=in_range(1, 10_000), default=10_000, help="of the graph")
    parser.add_argument("--keys", type=in_range(1, _MOST), default=1_000, help="of the resource")
    parser.add_argument(
        "--limited", type=in_range(1, _MOST), default=10_000, help="tasks that take units of the resource"
    )
    parser.add_argument("--only", nargs="+", choices=["sessions", "hot", "graph", "resources"])
    parser.add_argument("--rounds", type=in_range(1, 100), default=3)
    parser.add_argument("--processes", type=in_range(1, 64), default=1)
    parser.add_argument("--slots", type=in_range(1, 1_000), default=8)
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    found = asyncio.run(measure(options))
    print(show(found))
    if options.json:
        options.json.write_text(json.dumps({"machine": machine(), "found": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
