"""Who decides how many workers there are: Duly's planner, nobody (fixed pools), and target tracking on the backlog alone."""

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from benchmarks.elastic.simulation import Policy, Seen
from duly_core.pools.load import ARRIVAL_WINDOW, STEP
from duly_core.pools.planner import Due, LambdaLoad, Memory, RunTime, Workers, look_ahead, plan
from duly_core.pools.rules import Pool

MIDNIGHT = datetime(2026, 11, 26, tzinfo=UTC)
_LATEST, _EACH = 9000, 30
"""Of the latest runs, each 30th: the last to end of a spike are its longest."""
_MEASURED_EVERY = 20.0


def fixed(workers: int) -> Policy:
    """So many, always."""
    return lambda _: workers


def planner(pool: Pool) -> Policy:
    """As the autoscaler plans: with what its reads would give it."""
    memory = Memory()
    run_times: dict[str, RunTime | None] = {}
    measured_at = float("-inf")

    def decide(seen: Seen) -> int:
        nonlocal memory, measured_at
        if seen.now - measured_at >= _MEASURED_EVERY:
            run_times.update((name, _run_time(ended)) for name, ended in seen.ended.items())
            measured_at = seen.now
        now = MIDNIGHT + timedelta(seconds=seen.now)
        loads = _loads(seen, run_times, look_ahead(pool, memory.spin_up).total_seconds())
        alive, starting = seen.alive, seen.starting
        spin_up = memory.spin_up.arrived([MIDNIGHT + timedelta(seconds=each.up_at) for each in alive], now)
        workers = Workers(len(alive), len(starting), 0, None)
        made = plan(
            pool,
            loads,
            workers,
            Memory(memory.planned_at, memory.desired, memory.recent, spin_up, memory.used),
            now,
        )
        asked = spin_up.wanted(max(0, made.desired - len(alive)), now)
        memory = Memory(now, made.desired, made.memory.recent, asked, made.memory.used)
        return made.desired

    return decide


def reactive(pool: Pool, idle_s: float = 300.0) -> Policy:
    """Target tracking on the backlog: as many workers as have slots for all that is due or runs.

    The largest need of the last five minutes counts, as of a HorizontalPodAutoscaler with its defaults.
    """
    recent: list[tuple[float, int]] = []

    def decide(seen: Seen) -> int:
        nonlocal recent
        needed = math.ceil((len(seen.waiting) + sum(seen.running.values())) / pool.slots)
        recent = [each for each in recent if each[0] > seen.now - idle_s and each[1] > needed]
        recent.append((seen.now, needed))
        return min(pool.maximum, max(pool.minimum, *(number for _, number in recent)))

    return decide


def _loads(seen: Seen, run_times: Mapping[str, RunTime | None], ahead: float) -> list[LambdaLoad]:
    while seen.started and seen.started[0][0] < seen.now - ARRIVAL_WINDOW.total_seconds():
        seen.started.popleft()
    ready: dict[str, int] = defaultdict(int)
    oldest: dict[str, float] = {}
    for task in seen.waiting:
        ready[task.name] += 1
        oldest.setdefault(task.name, task.due)
    arrivals: dict[str, int] = defaultdict(int)
    for _, name in seen.started:
        arrivals[name] += 1
    due: dict[str, dict[int, tuple[float, int]]] = defaultdict(dict)
    step = STEP.total_seconds()
    for place in range(seen.next_put_off, len(seen.put_off)):
        task = seen.put_off[place]
        if task.due > seen.now + ahead:
            break
        if task.known <= seen.now:
            bucket = math.ceil((task.due - seen.now) / step)
            first, number = due[task.name].get(bucket, (task.due, 0))
            due[task.name][bucket] = first, number + 1
    names = {*ready, *arrivals, *due, *seen.running}
    return [
        LambdaLoad(
            name,
            ready[name],
            timedelta(seconds=seen.now - oldest.get(name, seen.now)),
            seen.running.get(name, 0),
            arrivals[name] / ARRIVAL_WINDOW.total_seconds(),
            run_times.get(name),
            tuple(
                Due(MIDNIGHT + timedelta(seconds=first), number)
                for _, (first, number) in sorted(due[name].items())
            ),
        )
        for name in sorted(names)
    ]


def _run_time(ended: list[float]) -> RunTime | None:
    if not ended:
        return None
    sample = sorted(ended[-_LATEST::_EACH] or ended)
    return RunTime(
        timedelta(seconds=sum(sample) / len(sample)),
        timedelta(seconds=sample[len(sample) // 2]),
        timedelta(seconds=sample[int(len(sample) * 0.95)]),
        len(sample),
    )
