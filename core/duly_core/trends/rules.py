"""How late runs began, kept as numbers for a few bounds, and what follows from them. Pure: no I/O."""

from bisect import bisect_left
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import NamedTuple

ALL = ""
"""Stands for all lambdas together."""
_STORED_BOUNDS = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
    300.0,
    900.0,
    3_600.0,
    21_600.0,
    inf,
    120.0,
    600.0,
    1_800.0,
)
"""Seconds, by place in the lists that the store has. A bound that came later stands behind: older points have nothing for it, and count
its runs for the next larger bound."""
LATENESS_BOUNDS = tuple(sorted(_STORED_BOUNDS))[:-1]
"""Seconds. A run counts for the first bound that is no less than its lateness, or behind the last."""
PLACES = len(_STORED_BOUNDS)
_PLACES_IN_ORDER = tuple(sorted(range(PLACES), key=_STORED_BOUNDS.__getitem__))
"""The place of each bound, from the smallest on, and that of what is behind the last."""
KEPT = {1: timedelta(hours=25), 60: timedelta(days=8), 1_440: timedelta(days=92)}
"""How long points are kept, by how many minutes they are."""
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)


class Time(NamedTuple):
    """Points of one length, in a time."""

    minutes: int
    since: datetime
    until: datetime


class Sum(NamedTuple):
    """What a time had, of one lambda or of all."""

    lambda_name: str
    time: Time
    first_run_at: datetime | None
    """The first point with runs that began; None: there is none."""
    first_call_at: datetime | None
    """The same of calls."""
    lateness: Sequence[int]
    """How many runs began, by how late they did: PLACES numbers, or less."""
    calls: int
    failed_calls: int


def place_of(late: float) -> int:
    """Return the place in a list of PLACES numbers of a run that began so many seconds late; negative: early."""
    return _PLACES_IN_ORDER[bisect_left(LATENESS_BOUNDS, late)]


def percentile(numbers: Sequence[int], share: float) -> timedelta | None:
    """Return how late the run was that `share` of all runs were not later than; None: there was none.

    Between two bounds it is interpolated. Beyond the last bound it is the last bound.
    """
    total = sum(numbers)
    if not total:
        return None
    wanted, before = share * total, 0
    for place, number in enumerate(_in_order(numbers)[:-1]):
        if number and before + number >= wanted:
            low = LATENESS_BOUNDS[place - 1] if place else 0.0
            part = (wanted - before) / number
            return timedelta(seconds=low + part * (LATENESS_BOUNDS[place] - low))
        before += number
    return timedelta(seconds=LATENESS_BOUNDS[-1])


def on_time(numbers: Sequence[int], within: timedelta) -> int:
    """Return how many runs began at most so late. Exact: it must be one of the bounds."""
    return sum(_in_order(numbers)[: LATENESS_BOUNDS.index(within.total_seconds()) + 1])


def _in_order(numbers: Sequence[int]) -> list[int]:
    """Return the numbers of all places from the smallest bound on."""
    known = len(numbers)
    return [numbers[place] if place < known else 0 for place in _PLACES_IN_ORDER]


def minute_of(moment: datetime) -> datetime:
    """Return the minute of an instant, as its beginning."""
    return moment.astimezone(UTC).replace(second=0, microsecond=0)


def hour_of(moment: datetime) -> datetime:
    """Return the hour of an instant, as its beginning."""
    return minute_of(moment).replace(minute=0)


def day_of(moment: datetime) -> datetime:
    """Return the day (UTC) of an instant, as its beginning."""
    return hour_of(moment).replace(hour=0)


def step_of(wanted: timedelta) -> timedelta:
    """Return how long each point is for a chart of so long: a minute up to a day, else an hour."""
    return _MINUTE if wanted <= timedelta(days=1) else _HOUR


def base_name(queue_name: str) -> str:
    """Return the lambda of the queue of a version, a domain or labels: `NAME` of `NAME@VERSION`."""
    return queue_name.partition("@")[0]
