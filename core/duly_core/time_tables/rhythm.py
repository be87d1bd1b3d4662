"""The ticks of a rhythm, as instants. Pure: no clock, no store.

Cron expressions name wall times. One that does not exist, because clocks go forward, stands for the first instant after
the gap. One that exists twice, because clocks go back, stands for the first of the two. An expression with `*` for the
hour names no hour: it goes on through both, by the minutes that clocks show.
"""

import copy
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from duly_core.time_tables.time_table import Rhythm
from duly_wire.time_conversion import EPOCH

if TYPE_CHECKING:
    from cronsim import CronSim

ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SECOND = timedelta(seconds=1)
_DAY = timedelta(days=1)
_CHANGE = 2 * _DAY
"""Longer than what clocks show twice, or leave out, when they change: a day, where a zone crosses the date line."""
_PARSED = 4_096
_KEPT = 4_096
"""Next ticks: thousands of time tables with few expressions fire at the same instant."""


def next_after(rhythm: Rhythm, instant: datetime) -> datetime | None:
    """Return the first tick after an instant, in UTC; None: there is none within 50 years, or 20 with a calendar."""
    if rhythm.rule is not None:
        from duly_core.time_tables.working_time import next_working  # only who has calendars loads it

        return next_working(rhythm, instant)
    try:
        if rhythm.every is not None:
            passed = (instant - EPOCH - rhythm.offset) // rhythm.every
            return EPOCH + rhythm.offset + (passed + 1) * rhythm.every
        return _next_of_cron(rhythm.cron or "", ZoneInfo(rhythm.zone), instant.astimezone(UTC))
    except OverflowError:  # the calendar ends
        return None


def nominal_at(rhythm: Rhythm, tick_at: datetime) -> datetime | None:
    """Return the tick of the rhythm itself that a calendar moved to an instant; None: that very one."""
    if rhythm.rule is None:
        return None
    from duly_core.time_tables.working_time import nominal_of

    nominal = nominal_of(rhythm, tick_at)
    return None if nominal == tick_at else nominal


def ticks_from(rhythm: Rhythm, instant: datetime) -> Iterator[datetime]:
    """Yield the ticks at an instant and after it, in order."""
    tick = next_after(rhythm, instant - timedelta.resolution)
    while tick is not None:
        yield tick
        tick = next_after(rhythm, tick)


def last_before(rhythm: Rhythm, instant: datetime, not_before: datetime) -> datetime | None:
    """Return the last tick before an instant, of those from `not_before` on; None: there is none."""
    reach = timedelta(minutes=2)
    while True:
        start = max(not_before, instant - reach)
        last = None
        for tick in ticks_from(rhythm, start):
            if tick >= instant:
                break
            last = tick
        if last is not None or start == not_before:
            return last
        reach *= 2


def most_within(rhythm: Rhythm, window: timedelta) -> int:
    """Return how many ticks may lie in a span of this length, at most; leaving out the hour that a zone has twice."""
    if rhythm.every is not None:
        return -(-window // rhythm.every)
    parsed = parse(rhythm.cron or "")
    hours, minutes = len(parsed.hours), len(parsed.minutes)
    if window <= timedelta(hours=hours):
        return minutes * -(-window // timedelta(hours=1))
    return hours * minutes * -(-window // _DAY)


def times_of(cron: str) -> str:
    """Return the expression with the same times, on each day."""
    minutes, hours, *_ = ALIASES.get(cron.lower(), cron).split()
    return f"{minutes} {hours} * * *"


def instant_of(zone: ZoneInfo, wall: datetime) -> datetime:
    """Return the instant of a wall time: the first of two, and the first one after a gap that it is in."""
    first = wall.replace(tzinfo=zone).astimezone(UTC)
    if _wall(zone, first) == wall:
        return first
    return _next_change(zone, wall.replace(tzinfo=zone, fold=1).astimezone(UTC), first) or first


@lru_cache(_PARSED)
def parse(cron: str) -> "CronSim":
    """Return a parsed expression, which nobody may advance.

    Raises:
        CronSimError: it is none.
    """
    from cronsim import CronSim, CronSimError  # only who has time tables loads it

    expression = ALIASES.get(cron.lower(), cron)
    if len(expression.split()) != 5:
        raise CronSimError("Wrong number of fields")
    return CronSim(expression, datetime(2000, 1, 1))  # noqa: DTZ001 (a wall time)


def _next_wall(cron: str, wall: datetime) -> datetime | None:
    """Return the first wall time after this one that the expression names."""
    search = cast("Any", copy.copy(parse(cron)))
    search.dt = wall
    return next(search, None)


@lru_cache(_KEPT)
def _next_of_cron(cron: str, zone: ZoneInfo, instant: datetime) -> datetime | None:
    names_no_hour = parse(cron).parts[2] == "*"
    at = instant.replace(microsecond=0)
    wall = _wall(zone, at)
    while True:
        offset = _offset(zone, at)
        found = _next_wall(cron, wall)
        if found is None:
            return None
        tick = (found - offset).replace(tzinfo=UTC)
        if tick - at > 2 * _CHANGE and _next_change(zone, at, at + _CHANGE) is None:
            # no wall time before `found` is a tick, whatever clocks do until then: decades would take long to walk
            at = tick - _CHANGE
            wall = _wall(zone, at)
            continue
        change = _next_change(zone, at, tick)
        if change is None:
            if names_no_hour or not tick.astimezone(zone).fold:
                return tick
            wall = found  # the second of two: it had its tick
            continue
        begins = _wall(zone, change)
        if found < begins and not names_no_hour:
            return change  # no clock ever shows it
        at, wall = change, begins - _SECOND


def _wall(zone: ZoneInfo, instant: datetime) -> datetime:
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)


def _offset(zone: ZoneInfo, instant: datetime) -> timedelta:
    return cast("timedelta", instant.astimezone(zone).utcoffset())


def _next_change(zone: ZoneInfo, after: datetime, until: datetime) -> datetime | None:
    """Return the first instant of another offset in (after, until]; no zone changes twice within a day."""
    offset = _offset(zone, after)
    while after < until:
        ahead = min(after + _DAY, until)
        if _offset(zone, ahead) != offset:
            while ahead - after > _SECOND:
                middle = after + (ahead - after) // 2
                middle = middle.replace(microsecond=0)
                after, ahead = (middle, ahead) if _offset(zone, middle) == offset else (after, middle)
            return ahead
        after = ahead
    return None
