"""`python -m benchmarks.capacity`: measures the loads that the model of capacity is fitted to, in turns; then fits it.

It takes about eight minutes, and rewrites the points, the model that `duly capacity` has, and the tables of docs/capacity.md.
"""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any, Literal

from benchmarks.arguments import in_range, new_file
from benchmarks.capacity import fit, measure, report
from benchmarks.capacity.cases import BYTES, CASES, HELD, SQS, STORE
from benchmarks.machine import machine
from benchmarks.system import BenchmarkError
from duly_cli.capacity import model

POINTS = Path(__file__).with_name("points.json")
MODEL = Path(model.__file__).with_name("model.json")


class Points:
    """What was measured, kept in a file as it comes."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.found: dict[str, Any] = {
            "machine": machine(),
            "loads": [],
            "idle": [],
            "kept": [],
            "held": [],
            "walls": [],
        }

    def add(self, part: str, found: dict[str, Any], number: int) -> None:
        """Keep one, and tell the terminal."""
        self.found[part].append({"round": number, **found})
        cpu = found.get("cpu", {})
        unit = 1.0 if part == "loads" else 1e3
        told = ", ".join(f"{name} {value * unit:,.1f}" for name, value in cpu.items())
        more = {
            name: found[name]
            for name in (
                "rate",
                "groups",
                "wal_bytes",
                "transactions",
                "bytes_per_task",
                "wal_bytes_per_s",
                "commits_per_s",
            )
            if name in found
        }
        name = found.get("case") or found.get("payload") or found.get("running") or part
        print(f"round {number}  {name}: {told} {more}", flush=True)
        whole = self._file.with_name(self._file.name + ".new")
        whole.write_text(json.dumps(self.found, indent=1) + "\n", encoding="utf-8")
        whole.replace(self._file)


async def one_round(number: int, seconds: float, points: Points) -> None:
    """Measure everything once."""
    await _loads(STORE, number, seconds, points)
    await _loads(SQS, number, seconds, points)
    async with measure.stack(STORE, slots=HELD) as here:
        points.add("held", await measure.held(here, HELD), number)
        for payload in BYTES if number == 1 else ():  # sizes are the same in each round
            points.add("kept", await measure.kept(here, payload), number)


async def _loads(queue: Literal["store", "sqs"], number: int, seconds: float, points: Points) -> None:
    async with measure.stack(queue) as here:
        for case in CASES:
            if case.queue == queue:
                points.add("loads", await measure.load(here, case, seconds), number)
        if queue == STORE:
            points.add("idle", await measure.idle(here, 2 * seconds), number)
            points.add("walls", await measure.walls(here), number)


async def rounds(options: argparse.Namespace) -> None:
    """Measure everything as often as asked for."""
    points = Points(options.json)
    for number in range(1, options.rounds + 1):
        await one_round(number, options.seconds, points)


def fit_and_report(file: Path) -> None:
    """Fit the model to the points of a file; write the model of `duly capacity`, and the tables of the page."""
    found = json.loads(file.read_text(encoding="utf-8"))
    fitted = fit.model(found)
    MODEL.write_text(json.dumps(fitted, indent=1) + "\n", encoding="utf-8")
    report.write(found, fitted)
    print(f"wrote {MODEL.name} and {report.PAGE.name}: {fitted['measured']['largest_error_of_held_out']}")


def main() -> None:
    """Measure, keep every point, and fit."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capacity", description=__doc__)
    parser.add_argument("--rounds", type=in_range(1, 20), default=3, help="default: 3")
    parser.add_argument("--seconds", type=in_range(1, 60), default=3, help="of each load (default: 3)")
    parser.add_argument(
        "--json", type=new_file, default=POINTS, help=f"default: {POINTS.name}, beside this program"
    )
    parser.add_argument(
        "--fit-only", action="store_true", help="fit the points of the file again, and measure nothing"
    )
    options = parser.parse_args()
    if options.fit_only and not options.json.is_file():
        parser.error(f"argument --fit-only: there are no points in {str(options.json)!r}; measure them first")
    try:
        if not options.fit_only:
            asyncio.run(rounds(options))
    except (KeyboardInterrupt, BenchmarkError) as error:
        said = str(error) or "stopped"
        sys.exit(
            f"benchmarks.capacity: {said}: {options.json.name} has the points so far, and the model is as before"
        )
    fit_and_report(options.json)


if __name__ == "__main__":
    main()
