"""The ticks of a rhythm with a calendar: left out, or moved, where they fall on closed time. Pure.

A moved tick that meets another one is that one: the ticks are a set of instants, in order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from duly_core.time_tables import rhythm as rhythms
from duly_core.time_tables.calendar import DAY, LONGEST_SEARCH, Calendar
from duly_core.time_tables.time_table import ClosedRule, Rhythm
from duly_wire.enums import OnClosed

_MIDNIGHT = time()
_LAST_MINUTE = timedelta(minutes=1)
_INSTANT = timedelta.resolution
_MOST_STEPS = 10_000
"""Ticks that one search may leave out. A rhythm with none in working time ends it."""

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class PlannedTick:
    """A tick of the rhythm itself, and what the calendar makes of it."""

    nominal_at: datetime
    tick_at: datetime | None
    """When it is; None: it is left out."""
    why: str = ""
    """Why it is another; empty: it is not."""
    is_merged: bool = False
    """Another tick is at that instant already: there is one task."""


def next_working(rhythm: Rhythm, instant: datetime) -> datetime | None:
    """Return the first tick after an instant; None: there is none for years."""
    return _Times(rhythm).next_after(instant)


def nominal_of(rhythm: Rhythm, tick_at: datetime) -> datetime:
    """Return the tick of the rhythm itself that is at an instant: that very one, or the first that moved there."""
    return tick_at if rhythm.rule is None else _Times(rhythm).nominal_of(tick_at)


def planned(rhythm: Rhythm, start: datetime) -> Iterator[PlannedTick]:
    """Yield the ticks of the rhythm itself from an instant on, with what the calendar makes of each."""
    times = _Times(rhythm)
    nominal = times.next_nominal(start - _INSTANT)
    while nominal is not None:
        tick_at = times.moved(nominal)
        is_own = tick_at == nominal
        yield PlannedTick(
            nominal,
            tick_at,
            "" if is_own else times.why(nominal),
            tick_at is not None and not is_own and times.nominal_of(tick_at) != nominal,
        )
        nominal = times.next_nominal(nominal)


class _Times:
    """A rhythm with its calendar, in its zone."""

    def __init__(self, rhythm: Rhythm) -> None:
        if rhythm.rule is None or rhythm.calendar is None:
            name = rhythm.rule.calendar if rhythm.rule else ""
            raise ValueError(f"there is no calendar {name!r}: `duly calendars set` makes one")
        self._nominal = replace(rhythm, rule=None, calendar=None)
        self._rule: ClosedRule = rhythm.rule
        self._calendar: Calendar = rhythm.calendar
        self._zone = ZoneInfo(rhythm.zone)

    def next_after(self, instant: datetime) -> datetime | None:
        try:
            if self._rule.on_closed is OnClosed.SKIP:
                return self._next_open(instant)
            if not self._rule.business_hours:
                return self._next_of_days(instant)
            if self._rule.on_closed is OnClosed.NEXT:
                return self._next_opening(instant)
            return self._next_before_closing(instant)
        except OverflowError:  # years end
            return None

    # the rhythm itself

    def next_nominal(self, instant: datetime) -> datetime | None:
        """Return the first tick of the rhythm itself after an instant, on the right working day of its month."""
        place = self._rule.working_day
        nominal = rhythms.next_after(self._nominal, instant)
        if not place:
            return nominal
        end = instant + LONGEST_SEARCH
        while nominal is not None and nominal < end:
            day = self._day(nominal)
            wanted = self._calendar.working_day(day.year, day.month, place)
            if wanted == day:
                return nominal
            if wanted is None or wanted < day:
                wanted = (day.replace(day=28) + 4 * DAY).replace(day=1)
            nominal = rhythms.next_after(self._nominal, self._start(wanted) - _INSTANT)
        return None

    def moved(self, nominal: datetime) -> datetime | None:
        """Return when a tick of the rhythm itself is; None: it is left out."""
        rule = self._rule
        if rule.business_hours:
            span = self._span_from(nominal)
            if span is not None and span[0] <= nominal:
                return nominal
            if rule.on_closed is OnClosed.NEXT:
                return span and span[0]
            return None if rule.on_closed is OnClosed.SKIP else self._before_closing(nominal)
        day = self._day(nominal)
        if self._calendar.is_open(day):
            return nominal
        if rule.on_closed is OnClosed.SKIP:
            return None
        target = self._target(day)
        return None if target is None else self._at(target, self._wall(nominal).time())

    def why(self, nominal: datetime) -> str:
        day = self._day(nominal)
        if closed := self._calendar.closed_why(day):
            return closed
        spans = ", ".join(
            f"{begin // 60:02}:{begin % 60:02}-{end // 60:02}:{end % 60:02}"
            for begin, end in self._calendar.hours_of(day)
        )
        return f"outside of the business hours {spans}"

    def nominal_of(self, tick_at: datetime) -> datetime:
        if self.next_nominal(tick_at - _INSTANT) == tick_at:
            return tick_at
        if self._rule.business_hours:
            if self._rule.on_closed is OnClosed.NEXT:
                before = self._span_before(tick_at)
                found = self.next_nominal(before[1] - _INSTANT) if before else None
            else:
                found = self.next_nominal(tick_at)
            return tick_at if found is None else found
        wall = self._wall(tick_at)
        for day in self._closed_beside(wall.date()):
            nominal = self._at(day, wall.time())
            if self.next_nominal(nominal - _INSTANT) == nominal and self.moved(nominal) == tick_at:
                return nominal
            # where clocks changed between the two, their times differ
            found = self.next_nominal(self._start(day) - _INSTANT)
            while found is not None and self._day(found) == day:
                if self.moved(found) == tick_at:
                    return found
                found = self.next_nominal(found)
        return tick_at

    def _closed_beside(self, day: date) -> list[date]:
        """Return the closed days whose ticks move to this one, in their order."""
        step = -DAY if self._rule.on_closed is OnClosed.NEXT else DAY
        days: list[date] = []
        day += step
        while not self._calendar.is_open(day) and len(days) < _MOST_STEPS:
            days.append(day)
            day += step
        return sorted(days)

    # left out: the first tick in working time

    def _next_open(self, instant: datetime) -> datetime | None:
        end = instant + LONGEST_SEARCH
        nominal = self.next_nominal(instant)
        for _ in range(_MOST_STEPS):
            if nominal is None or nominal > end:
                return None
            span = self._span_from(nominal)
            if span is None or span[0] <= nominal:
                return span and nominal
            nominal = self.next_nominal(span[0] - _INSTANT)
        return None

    # moved by business hours: to an instant that never is earlier for a later tick

    def _next_opening(self, instant: datetime) -> datetime | None:
        span = self._span_from(instant + _INSTANT)
        if span is None:
            return None
        start = instant
        if span[0] > instant:
            before = self._span_before(span[0])
            start = (before[1] if before else instant) - _INSTANT
        nominal = self.next_nominal(start)
        return nominal and self.moved(nominal)

    def _next_before_closing(self, instant: datetime) -> datetime | None:
        nominal = self.next_nominal(instant)
        for _ in range(_MOST_STEPS):
            if nominal is None:
                return None
            tick_at = self.moved(nominal)
            if tick_at is not None and tick_at > instant:
                return tick_at
            span = self._span_from(nominal)
            if span is None:
                return None
            nominal = self.next_nominal(max(nominal, span[0] - _INSTANT))
        return None

    def _before_closing(self, nominal: datetime) -> datetime | None:
        span = self._span_before(nominal)
        return span and max(span[0], span[1] - _LAST_MINUTE)

    # moved by days

    def _next_of_days(self, instant: datetime) -> datetime | None:
        day = self._day(instant)
        if self._nominal.cron is None:
            return self._next_of_interval(instant, day)
        times = replace(self._nominal, cron=rhythms.times_of(self._nominal.cron))
        following = self._tick_day(day)
        for _ in range(_MOST_STEPS):
            if following is None:
                return None
            tick_at = rhythms.next_after(times, max(instant, self._start(following) - _INSTANT))
            if tick_at is None or self._day(tick_at) == following:
                return tick_at
            following = self._tick_day(following + DAY)
        return None

    def _tick_day(self, day: date) -> date | None:
        """Return the first working day from a day on that has ticks, its own or moved ones."""
        found = self._calendar.first_open(day)
        if found is None:
            return None
        if self._rule.on_closed is OnClosed.NEXT:
            before = self._calendar.last_open(found - DAY)
            found = found if before is None else before + DAY
        nominal = self.next_nominal(self._start(found) - _INSTANT)
        return nominal and self._target(self._day(nominal))

    def _next_of_interval(self, instant: datetime, day: date) -> datetime | None:
        """Look at each tick that may move behind the instant: there is one a day at most."""
        start = instant
        if self._rule.on_closed is OnClosed.NEXT and (found := self._calendar.first_open(day)):
            before = self._calendar.last_open(found - DAY)
            start = self._start(found if before is None else before + DAY) - _INSTANT
        best: datetime | None = None
        nominal = self.next_nominal(start)
        while nominal is not None and nominal - instant < LONGEST_SEARCH:
            tick_at = self.moved(nominal)
            if best is not None and (tick_at is None or self._day(tick_at) > self._day(best)):
                break
            if tick_at is not None and tick_at > instant and (best is None or tick_at < best):
                best = tick_at
            nominal = self.next_nominal(nominal)
        return best

    def _target(self, day: date) -> date | None:
        calendar = self._calendar
        return calendar.first_open(day) if self._rule.on_closed is OnClosed.NEXT else calendar.last_open(day)

    # working time as instants

    def _spans(self, day: date) -> Iterator[Span]:
        if not self._rule.business_hours:
            yield self._start(day), self._start(day + DAY)
            return
        for begin, end in self._calendar.hours_of(day):
            span = self._at_minute(day, begin), self._at_minute(day, end)
            if span[0] < span[1]:  # clocks may leave all of it out
                yield span

    def _span_from(self, instant: datetime) -> Span | None:
        """Return the first span that ends after an instant."""
        day: date | None = self._day(instant) - DAY
        while day is not None and (day := self._calendar.first_open(day)) is not None:
            for span in self._spans(day):
                if span[1] > instant:
                    return span
            day += DAY
        return None

    def _span_before(self, instant: datetime) -> Span | None:
        """Return the last span that begins before an instant."""
        day: date | None = self._day(instant)
        while day is not None and (day := self._calendar.last_open(day)) is not None:
            for span in reversed([*self._spans(day)]):
                if span[0] < instant:
                    return span
            day -= DAY
        return None

    def _wall(self, instant: datetime) -> datetime:
        return instant.astimezone(self._zone).replace(tzinfo=None, fold=0)

    def _day(self, instant: datetime) -> date:
        return instant.astimezone(self._zone).date()

    def _start(self, day: date) -> datetime:
        return self._at(day, _MIDNIGHT)

    def _at_minute(self, day: date, minute: int) -> datetime:
        return rhythms.instant_of(self._zone, datetime.combine(day, _MIDNIGHT) + timedelta(minutes=minute))

    def _at(self, day: date, wall: time) -> datetime:
        return rhythms.instant_of(self._zone, datetime.combine(day, wall)).astimezone(UTC)
