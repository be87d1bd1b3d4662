"""`python -m benchmarks.neighbours`: the rate of good tasks beside 1 % of bad ones, against the rate without them."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import argparse
import asyncio
import json
import statistics
import time
from datetime import timedelta

import duly
from benchmarks.arguments import in_range, new_file, one_of, several, share
from benchmarks.neighbours.app import WORK
from benchmarks.recovery.bench import Bench, running

APP = "benchmarks.neighbours.app:app"
KINDS = ("blocked", "looping", "exiting", "killed")
_LONGEST = 300.0


async def measure(options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """For each kind of bad tasks: without any, with them, and without again, in turn; the medians."""
    rates: dict[str, list[float]] = {}
    restarts: dict[str, list[int]] = {}
    async with running(
        apps=(APP,), profile="embedded", processes=options.processes, slots=options.slots
    ) as bench:
        expected = WORK * options.tasks / (options.processes * options.slots)
        await _run(bench, options.tasks, 0, "blocked", expected)  # warm up
        for _ in range(options.rounds):
            for kind in options.only:
                for bad in (0.0, options.bad):
                    rate, started_again = await _run(bench, options.tasks, bad, kind, expected)
                    rates.setdefault(kind if bad else "none", []).append(rate)
                    restarts.setdefault(kind if bad else "none", []).extend(started_again)
                    print(f"  {kind:10} {bad:6.1%} {rate:10.1f} tasks/s", flush=True)
    without = statistics.median(rates["none"])
    return {
        kind: {
            "tasks/s": statistics.median(values),
            "kept": statistics.median(values) / without,
            "good tasks started again": sum(times > 0 for times in restarts[kind]),
            "most often one": max(restarts[kind]),
        }
        for kind, values in rates.items()
    }


async def _run(
    bench: Bench, tasks: int, bad: float, kind: str, expected: timedelta
) -> tuple[float, list[int]]:
    """Good tasks a second, and how often each of them was started again. Bad ones become due all along."""
    wanted = [duly.NewTask("neighbours.good") for _ in range(tasks)]
    count = round(bad * tasks)
    wanted += [duly.NewTask(f"neighbours.{kind}", delay=expected * number / count) for number in range(count)]
    began = time.time()
    scheduled = await bench.client.schedule_many(wanted)
    good = [
        task.task_id
        for task, new in zip(scheduled, wanted, strict=True)
        if new.lambda_name == "neighbours.good"
    ]
    await bench.started(good, 0, _LONGEST)
    last = max(bench.starts_of(each)[-1].at for each in good)
    ended = await bench.client.wait_many(scheduled)
    lost = [
        each for each in ended if each.task_id in set(good) and each.status is not duly.TaskStatus.SUCCESS
    ]
    if lost:
        message = f"{len(lost)} good tasks did not succeed; the first: {lost[0]}"
        raise RuntimeError(message)
    return tasks / (last - began), [len(bench.starts_of(each)) - 1 for each in good]


def main() -> None:
    """Measure and print; `--json FILE` keeps the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours", description=__doc__)
    parser.add_argument("--tasks", type=in_range(1, 1_000_000), default=5_000, help="good tasks in each run")
    parser.add_argument("--bad", type=share, default=0.01, help="bad tasks, as a part of the good ones")
    parser.add_argument("--rounds", type=in_range(1, 100), default=3)
    parser.add_argument("--only", type=several(one_of(KINDS)), default=list(KINDS))
    parser.add_argument("--processes", type=in_range(1, 64), default=1)
    parser.add_argument("--slots", type=in_range(1, 64), default=8)
    parser.add_argument("--json", type=new_file)
    options = parser.parse_args()
    figures = asyncio.run(measure(options))
    print(f"\n{'beside':10}" + "".join(f"{name:>26}" for name in figures["none"]))
    for kind, values in figures.items():
        print(f"{kind:10}" + "".join(f"{value:26,.3f}" for value in values.values()))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
