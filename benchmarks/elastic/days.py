"""The two days that are simulated."""

import math
import random

from benchmarks.elastic.simulation import Task

DAY = 86_400


def spikes(seed: int = 7) -> list[Task]:
    """PagerDuty's: 8,000 tasks of about 1.2 s are due at each full hour, known an hour before; two a second come for now."""
    chance = random.Random(seed)
    tasks = [
        Task(hour * 3600.0, _run(chance, 1.2), "page", (hour - 1) * 3600.0)
        for hour in range(1, 24)
        for _ in range(8000)
    ]
    return sorted(tasks + _stream(chance, lambda _: 2.0, "event", 0.3))


def mixed(seed: int = 8) -> list[Task]:
    """ATF's kinds of work: tasks for now whose number goes with the day, some that run long, and a part that is put off for minutes."""
    chance = random.Random(seed)

    def rate(second: float) -> float:
        return 10 + 8 * math.sin(2 * math.pi * (second / DAY - 0.3))

    found = []
    for task in _stream(chance, rate, "short", 0.5):
        kind = chance.random()
        if kind < 0.01:
            found.append(task._replace(name="long", run=_run(chance, 60.0)))
        elif kind < 0.1:
            found.append(task._replace(name="medium", run=_run(chance, 5.0)))
        elif kind < 0.3:
            found.append(task._replace(name="later", due=task.due + chance.uniform(60, 900)))
        else:
            found.append(task)
    return sorted(each for each in found if each.due < DAY)


def _stream(chance: random.Random, rate, name: str, mean: float) -> list[Task]:  # noqa: ANN001
    found, now = [], 0.0
    while (now := now + chance.expovariate(rate(now))) < DAY:
        found.append(Task(now, _run(chance, mean), name, now))
    return found


def _run(chance: random.Random, mean: float) -> float:
    """Return a run time of this mean: lognormal, nine of ten within twice the mean."""
    sigma = 0.6
    return chance.lognormvariate(math.log(mean) - sigma * sigma / 2, sigma)
