"""`python -m benchmarks.scale`: pages of the console, searches, open pages and the board beside a large store.

CPU is of the console, the Frontend and Postgres, in ms a request, less what they use idle.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.arguments import in_range, new_file
from benchmarks.machine import machine
from benchmarks.scale.board import round_cost
from benchmarks.scale.fill import HOSTS, Sizes
from benchmarks.scale.installation import Installation, installed
from benchmarks.scale.meter import NO_ANSWER, PROCESSES, Cost, Meter, memory
from benchmarks.scale.open_pages import watch
from benchmarks.scale.requests import Asked, calls, pages, samples
from benchmarks.scale.trickle import trickle
from benchmarks.tables import rows

_SETTLE = 25.0
"""Seconds: the first counts of queues and rounds of the board are over."""
_OPEN = (0, 1, 10)
_A_SECOND = 5
"""Tasks that a client schedules meanwhile, so that something changes."""


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what was asked for."""
    sizes = Sizes(options.lambdas, options.tasks, options.live, options.sessions, options.graphs)
    found: dict[str, Any] = {"machine": machine(), "sizes": asdict(sizes), "rounds": []}
    async with installed(options.data, sizes, options.hosts) as here:
        found["database"] = here.size
        print(f"a store of {sizes.tasks:,} tasks and {sizes.lambdas:,} lambdas, {here.size}", flush=True)
        known = samples(here.dsn)
        await asyncio.sleep(_SETTLE)
        for number in range(1, options.rounds + 1):
            print(f"round {number}", flush=True)
            found["rounds"].append(await _round(here, known, options))
            if options.json:
                options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


async def _round(here: Installation, known: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    meter = Meter(options.times)
    if "idle" in options.parts or "pages" in options.parts or "calls" in options.parts:
        found["idle"] = await asyncio.to_thread(meter.idle, options.seconds)
        found["memory"] = await asyncio.to_thread(memory)
        _told("idle, percent of a core", found["idle"])
        _told("memory, MiB", found["memory"])
    if "pages" in options.parts:
        found["pages"] = await asyncio.to_thread(_costs, meter, pages(here.console, known), options.only)
    if "calls" in options.parts:
        found["calls"] = await asyncio.to_thread(_costs, meter, calls(here.frontend, known), options.only)
    if "board" in options.parts:
        found["board"] = await round_cost(here.dsn)
        _told("a round of the board, ms of CPU", found["board"])
    if "open" in options.parts:
        found["open"] = await _open(here, options)
    return found


def _costs(meter: Meter, asked: Iterable[Asked], only: str) -> list[dict[str, Any]]:
    return [asdict(meter.cost(each.name, each.ask)) for each in asked if only in each.name]


async def _open(here: Installation, options: argparse.Namespace) -> list[dict[str, Any]]:
    """CPU a second with open overviews, while nothing happens and while tasks are scheduled."""
    found = []
    for a_second in (0, _A_SECOND):
        for number in _OPEN:
            meter = Meter(1)
            async with trickle(here.frontend, a_second):
                reading = asyncio.create_task(asyncio.to_thread(meter.idle, options.seconds))
                requests, signals = await watch(here.console, number, options.seconds + 1)
                used = await reading
            each = {"pages": number, "tasks a second": a_second, "requests": requests, "signals": signals}
            _told(f"{each}, percent of a core", used)
            held = (await asyncio.to_thread(memory))["console"]
            found.append(each | {"percent": used, "console MiB": held})
    return found


def _told(what: str, figures: dict[str, float]) -> None:
    said = ", ".join(f"{name} {value:.2f}" for name, value in sorted(figures.items()))
    print(f"{what}: {said}", flush=True)


def show(found: dict[str, Any]) -> str:
    """Return a table of the medians over the rounds."""
    by_name: dict[str, list[Cost]] = {}
    for each in found["rounds"]:
        for cost in (*each.get("pages", ()), *each.get("calls", ())):
            by_name.setdefault(cost["name"], []).append(Cost(**cost))
    head = ["", "median ms", "p95 ms", *(f"{name} ms" for name in PROCESSES), ""]
    body = [
        Cost(
            name,
            median(each.median_ms for each in costs),
            median(each.p95_ms for each in costs),
            {process: median(each.cpu_ms[process] for each in costs) for process in PROCESSES},
            next((each.note for each in costs if NO_ANSWER in each.note), costs[-1].note),
        ).cells()
        for name, costs in by_name.items()
    ]
    return rows(head, body)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    add = parser.add_argument
    usual = Sizes()
    add("--lambdas", type=in_range(1_000, 100_000), default=usual.lambdas, help="default: 10000")
    add("--tasks", type=in_range(1_000, 50_000_000), default=usual.tasks, help="default: 10000000")
    add("--live", type=in_range(100, 5_000_000), default=usual.live, help="of these (default: 100000)")
    add("--sessions", type=in_range(10, 1_000_000), default=usual.sessions, help="default: 5000")
    add("--graphs", type=in_range(1, 100_000), default=usual.graphs, help="default: 1000")
    add("--hosts", type=in_range(0, 1_000), default=HOSTS, help="that report themselves (default: 100)")
    add(
        "--times", type=in_range(1, 1_000), default=20, help="that each is asked for in a round (default: 20)"
    )
    add("--rounds", type=in_range(1, 100), default=3, help="default: 3")
    add("--seconds", type=in_range(1, 600), default=30, help="of idleness, and of open pages (default: 30)")
    add("--parts", nargs="+", default=list(_PARTS), choices=_PARTS, help="default: all")
    add("--only", default="", metavar="TEXT", help="pages and calls with this part of their name")
    add(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="keep the store here; a store that is here is taken as it is",
    )
    add("--json", type=new_file, help="keep all of it in this file; it is replaced")
    options = parser.parse_args()
    if options.tasks <= options.live + 2 * options.sessions + 10 * options.graphs:
        parser.error("--tasks has less than those of --live, --sessions (2 each) and --graphs (10 each)")
    return options


_PARTS = ("idle", "pages", "calls", "board", "open")


def main() -> None:
    """Measure and print."""
    options = parse()
    if options.data:
        options.data.mkdir(parents=True, exist_ok=True)
    print(show(asyncio.run(measure(options))))


if __name__ == "__main__":
    main()
