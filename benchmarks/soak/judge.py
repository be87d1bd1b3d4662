"""Decides whether a series of a soak is flat: a robust trend over all samples but those of the warm-up.

The trend is the median of the slopes between all pairs of samples (Theil and Sen), so single peaks do not count. A series
grows if all four hold:

- from the first to the last judged sample, the trend rises by 5 % of the series' median or more;
- it rises by more than the floor of its kind, below which nobody would look;
- it rises by more than the series usually rises between two samples: rows that come steadily and leave together make a saw, and
  what a sample sees of it depends on when in its period it is taken;
- the rise is no accident of noise: the rank correlation with time (Mann and Kendall) is beyond three standard deviations.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

WARM_UP = 0.2
"""Part of a soak that is not judged."""
PART = 0.05
"""Growth that is allowed, as a part of the median."""
SIGNIFICANT = 3.0
FEWEST = 10
"""Samples, without which there is no verdict."""

FLOORS = {
    "memory": 4.0,
    "processes": 2.0,
    "files": 5.0,
    "threads": 3.0,
    "connections": 3.0,
    "wal": 32.0,
    "size": 2.0,
    "dead rows": 5_000.0,
    "live rows": 500.0,
    "queue": 50.0,
    "lateness p50": 10.0,
    "lateness p99": 100.0,
    "cpu": 5.0,
}
"""By the first part of a series' name: MiB, percent of a core, milliseconds, or a count."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Of one series."""

    name: str
    samples: int
    median: float
    rise: float
    """Of the trend, from the first judged sample to the last."""
    grows: bool
    judged: bool = True
    """False: it has too few samples."""


def floor_of(name: str) -> float:
    """Return the floor of a series: that of the longest kind with which its name begins. Raises KeyError for no kind."""
    kinds = [kind for kind in FLOORS if name == kind or name.startswith(f"{kind}: ")]
    if not kinds:
        raise KeyError(name)
    return FLOORS[max(kinds, key=len)]


def judge(
    name: str, times: Sequence[float], values: Sequence[float | None], warm_up: float = WARM_UP
) -> Verdict:
    """Judge one series; None is a sample that is missing."""
    floor = floor_of(name)
    begin = times[0] + (times[-1] - times[0]) * warm_up
    points = [
        (at, value) for at, value in zip(times, values, strict=True) if at >= begin and value is not None
    ]
    median = statistics.median(value for _, value in points) if points else 0.0
    if len(points) < FEWEST:
        return Verdict(name, len(points), median, 0.0, grows=False, judged=False)
    slope = statistics.median(
        (late - early) / (end - start) for (start, early), (end, late) in combinations(points, 2)
    )
    rise = slope * (points[-1][0] - points[0][0])
    numbers = [value for _, value in points]
    grows = (
        rise >= PART * abs(median)
        and rise > max(floor, _usual_step(numbers))
        and _kendall(numbers) > SIGNIFICANT
    )
    return Verdict(name, len(points), median, rise, grows)


def judge_all(
    times: Sequence[float], series: Mapping[str, Sequence[float | None]], warm_up: float = WARM_UP
) -> list[Verdict]:
    """Judge all series, those that grow first."""
    verdicts = [judge(name, times, values, warm_up) for name, values in series.items()]
    return sorted(verdicts, key=lambda verdict: (not verdict.grows, verdict.name))


def _usual_step(values: Sequence[float]) -> float:
    """Return the median of the rises between neighbours; 0: there is none."""
    steps = [late - early for early, late in pairwise(values) if late > early]
    return statistics.median(steps) if steps else 0.0


def _kendall(values: Sequence[float]) -> float:
    """Standard deviations by which later values are larger than earlier ones more often than by chance."""
    count = len(values)
    score = sum((late > early) - (late < early) for early, late in combinations(values, 2))
    ties = [values.count(value) for value in set(values)]
    variance = (
        sum(n * (n - 1) * (2 * n + 5) * sign for n, sign in [(count, 1), *((tied, -1) for tied in ties)]) / 18
    )
    return (score - math.copysign(1, score)) / math.sqrt(variance) if score and variance > 0 else 0.0
