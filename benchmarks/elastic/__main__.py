"""Simulate the days under each policy, and print a table: `python -m benchmarks.elastic`."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

from datetime import timedelta

from benchmarks.elastic.days import DAY, mixed, spikes
from benchmarks.elastic.policies import fixed, planner, reactive
from benchmarks.elastic.simulation import Outcome, Policy, Task, simulate
from duly_core.pools.rules import Pool

SLOTS = 40
SPIN_UP = (25.0, 40.0)
"""Seconds: at random between these."""
PLAN_EVERY, REACT_EVERY = 2.0, 15.0
TARGET = timedelta(seconds=10)


def main() -> None:
    """Print how busy the paid time was, and how long tasks waited."""
    print("day     workers                  busy share  paid hours  peak  wait p50  wait p99   max")
    for name, tasks in (("spikes", spikes()), ("mixed", mixed())):
        pool = Pool(name=name, lambdas=("*",), maximum=60, slots=SLOTS, target_age=TARGET, driver="simulated")
        print(f"{name}: {len(tasks):,} tasks, {sum(task.run for task in tasks) / 3600:,.1f} hours of runs")
        elastic = _row(name, "planner", tasks, planner(pool), PLAN_EVERY)
        _row(name, "reactive", tasks, reactive(pool), REACT_EVERY)
        half = _median(tasks)
        _row(name, f"fixed, median need ({half})", tasks, fixed(half), 3600.0, half)
        _row(name, f"fixed, peak ({elastic.peak})", tasks, fixed(elastic.peak), 3600.0, elastic.peak)


def _row(
    day: str, title: str, tasks: list[Task], policy: Policy, every: float, start_with: int = 0
) -> Outcome:
    done = simulate(tasks, policy, slots=SLOTS, every=every, spin_up=SPIN_UP, start_with=start_with)
    waits = sorted(done.waits)
    p50, p99 = (waits[int(len(waits) * share)] for share in (0.5, 0.99))
    print(
        f"{day:7} {title:24} {done.share(SLOTS):10.1%} {done.paid_s / 3600:11.1f} {done.peak:5} {p50:8.2f}s {p99:8.2f}s {waits[-1]:5.0f}s",
        flush=True,
    )
    return done


def _median(tasks: list[Task]) -> int:
    """Return how many workers run half of all minutes' tasks: enough for the work that is due in the median minute."""
    minutes = [0.0] * (DAY // 60)
    for task in tasks:
        minutes[min(len(minutes) - 1, int(task.due // 60))] += task.run
    return max(1, -(-int(sorted(minutes)[len(minutes) // 2]) // (60 * SLOTS)))


if __name__ == "__main__":
    main()
