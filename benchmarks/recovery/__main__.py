"""`python -m benchmarks.recovery`: kills parts of a local stack, measures how long until work goes on, and prints it."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import statistics
from typing import Any

from benchmarks.arguments import in_range, new_file, one_of, seconds, several, share
from benchmarks.recovery import crowd, hot, kills, outage, poison

INSTRUMENTS = ("kills", "crowd", "host-production", "outage", "hot", "poison")


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run the instruments that were asked for, one after the other."""
    measured: dict[str, Any] = {}
    for instrument in options.only:
        print(f"{instrument} ...", flush=True)
        match instrument:
            case "kills":
                measured[instrument] = await kills.measure("embedded", options.parts, options.rounds)
            case "crowd":
                measured[instrument] = await crowd.measure(options.crowd_rounds)
            case "host-production":
                measured[instrument] = await kills.measure("production", ["host"], options.host_rounds)
            case "outage":
                measured[instrument] = await outage.measure(options.outage)
            case "hot":
                measured[instrument] = await hot.measure(options.hot)
            case "poison":
                measured[instrument] = await poison.measure(
                    options.tasks, options.poison, options.poison_rounds
                )
        print(f"  {json.dumps(measured[instrument])}", flush=True)
    return measured


def show(measured: dict[str, Any]) -> None:
    """A table for people."""
    print("\nBackoff after a crash: 1 ms at most, so that it does not hide in the figures.")
    for instrument, figures in measured.items():
        print(f"\n{instrument}")
        for name, values in figures.items():
            if isinstance(values, list):
                middle, most = statistics.median(values), max(values)
                print(f"  {name:50} p50 {middle:8.3f} s   max {most:8.3f} s   ({len(values)} rounds)")
            else:
                print(f"  {name:50} {values:12,.3f}")


def main() -> None:
    """Measure, print, and keep every round with `--json FILE`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__)
    count = in_range(1, 1_000)
    parser.add_argument("--only", type=several(one_of(INSTRUMENTS)), default=list(INSTRUMENTS))
    parser.add_argument("--parts", type=several(one_of(kills.PARTS)), default=list(kills.PARTS))
    parser.add_argument("--rounds", type=count, default=10)
    parser.add_argument("--crowd-rounds", type=count, default=3, help="of the worker with 20 tasks")
    parser.add_argument(
        "--host-rounds", type=count, default=3, help="of the host, production profile: a minute each"
    )
    parser.add_argument("--outage", type=seconds, default=30.0, help="seconds without Postgres")
    parser.add_argument("--hot", type=seconds, default=15.0, help="seconds that callbacks hold the GIL")
    parser.add_argument(
        "--tasks", type=in_range(1, 1_000_000), default=2_000, help="good tasks in each pool beside poison"
    )
    parser.add_argument("--poison", type=several(share), default=[0.01, 0.05])
    parser.add_argument("--poison-rounds", type=count, default=3)
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    measured = asyncio.run(measure(options))
    show(measured)
    if options.json:
        options.json.write_text(json.dumps(measured, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
