"""`python -m benchmarks.soak`: steady work for hours; exit code 1 if a series grew or a task did not end."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.arguments import folder, in_range, new_file
from benchmarks.soak.report import passed, render
from benchmarks.soak.run import Plan, soak


def _hours(text: str) -> float:
    """Read a positive number of hours. Raises ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 24 * 30:
        message = f"{text!r} is not a number of hours, above 0 and up to 720"
        raise argparse.ArgumentTypeError(message)
    return number


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    add = parser.add_argument
    add("--hours", type=_hours, default=2.0, help="how long the load lasts (default: 2)")
    add(
        "--rate",
        type=in_range(1, 100_000),
        help="tasks a second (default: half of what a short calibration drains)",
    )
    add("--sample", type=in_range(1, 3_600), default=60, help="seconds between samples (default: 60)")
    add(
        "--retention",
        type=in_range(60, 86_400),
        default=300,
        help="seconds for which ended tasks are kept; a partition spans as long (default: 300)",
    )
    add(
        "--calibrate",
        type=in_range(100, 1_000_000),
        default=5_000,
        help="tasks of the calibration (default: 5000)",
    )
    add("--json", type=new_file, help="write all samples and verdicts to this file, after each sample")
    add(
        "--folder",
        type=folder,
        help="an empty folder in which the stack's data and logs stay (default: a temporary one)",
    )
    return parser.parse_args(arguments)


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """Run it, and keep what was found after each sample."""
    plan = Plan(
        seconds=options.hours * 3600,
        every=options.sample,
        rate=options.rate,
        retention=options.retention,
        calibrated=options.calibrate,
        folder=options.folder,
    )
    found: dict[str, Any] = {}
    async for sofar in soak(plan):
        found = sofar.as_json()
        if options.json:
            _write(options.json, found)
        print(_line(found), flush=True)
    return found


def _line(found: dict[str, Any]) -> str:
    latest = {name: values[-1] for name, values in found["series"].items()}
    told = {
        "min": found["times"][-1] / 60,
        "MiB in all": latest.get("memory: all (PSS)"),
        "WAL MiB": latest.get("wal"),
        "connections": latest.get("connections"),
        "not ended": latest.get("queue: not ended"),
        "late p50 ms": latest.get("lateness p50"),
        "late p99 ms": latest.get("lateness p99"),
    }
    figures = ", ".join(f"{name} {value:,.1f}" for name, value in told.items() if value is not None)
    return "; ".join([figures, *found["problems"]])


def _write(file: Path, found: dict[str, Any]) -> None:
    written = file.with_name(f"{file.name}.new")
    written.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    written.replace(file)


def main() -> int:
    """Return the exit code: 1 if a series grew, or there was a problem."""
    options = parse()
    found = asyncio.run(run(options))
    print()
    print(render(found))
    return 0 if passed(found) else 1


if __name__ == "__main__":
    sys.exit(main())
