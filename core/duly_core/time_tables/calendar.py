"""Calendars: which days are working days, and at which hours. Pure, but for the library of holidays, which is loaded when one is named."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import lru_cache
from itertools import pairwise

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
USUAL_WEEKEND = ("SAT", "SUN")
NO_WEEKEND = "NONE"
"""In place of weekend days: every weekday is a working day."""
DAY = timedelta(days=1)
LONGEST_SEARCH = timedelta(days=366 * 20)
"""How far ahead a working day, or a tick on one, is looked for."""
MINUTES_OF_DAY = 24 * 60
_HOURS = re.compile(r"([A-Z]{3})(?:-([A-Z]{3}))? (\d\d):(\d\d)-(\d\d):(\d\d)")
_MOST_YEARS = 2_048
"""Years of holidays that are remembered, of all places."""
_LANGUAGE = "en_US"
"""Of names of holidays, where the library has it: the locale of a process must not decide."""

Hours = tuple[tuple[tuple[int, int], ...], ...]
"""For each weekday, from Monday on, the spans of minutes that are open."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """Working days, by the rules in their order: own open dates, own closed dates, weekend days, holidays."""

    name: str
    holidays: tuple[str, ...] = ()
    """Places of the library: DE, DE-BY, XNYS."""
    weekend: tuple[str, ...] = USUAL_WEEKEND
    closed: frozenset[date] = frozenset()
    opened: frozenset[date] = frozenset()
    hours: tuple[str, ...] = ()
    """Business hours, such as MON-FRI 09:00-17:00. Without any, a working day is open all day."""
    note: str = ""

    def closed_why(self, day: date) -> str:
        """Return why a day is closed; empty: it is a working day."""
        if day in self.opened:
            return ""
        if day in self.closed:
            return "a closed date of the calendar"
        if WEEKDAYS[day.weekday()] in self.weekend:
            return f"{day:%A} is a weekend day"
        for place in self.holidays:
            if name := holidays_of(place, day.year).get(day):
                return f"holiday: {name} ({place})"
        return ""

    def is_open(self, day: date) -> bool:
        """Tell whether a day is a working day."""
        return not self.closed_why(day)

    def first_open(self, day: date) -> date | None:
        """Return the first working day from a day on; None: there is none for years."""
        return self._search(day, DAY)

    def last_open(self, day: date) -> date | None:
        """Return the last working day up to a day; None: there is none for years."""
        return self._search(day, -DAY)

    def working_day(self, year: int, month: int, place: int) -> date | None:
        """Return the n-th working day of a month, from its end if n is negative; None: it has fewer."""
        first = date(year, month, 1)
        days = [day for day in (first + DAY * each for each in range(31)) if day.month == month]
        if place < 0:
            days.reverse()
        found = [day for day in days if self.is_open(day)]
        return found[abs(place) - 1] if len(found) >= abs(place) else None

    def hours_of(self, day: date) -> tuple[tuple[int, int], ...]:
        """Return the open spans of a working day, in minutes. A day without hours, such as a Saturday that is opened, is open all day."""
        return parse_hours(self.hours)[day.weekday()] or ((0, MINUTES_OF_DAY),)

    def _search(self, day: date, step: timedelta) -> date | None:
        try:
            for _ in range(LONGEST_SEARCH // DAY):
                if self.is_open(day):
                    return day
                day += step
        except OverflowError:  # years end
            return None
        return None


@lru_cache(256)
def parse_hours(lines: tuple[str, ...]) -> Hours:
    """Return business hours by weekday.

    Raises:
        ValueError: a line is none, or two overlap.
    """
    spans: list[list[tuple[int, int]]] = [[] for _ in WEEKDAYS]
    for line in lines:
        for weekday, span in _parsed(line):
            spans[weekday].append(span)
    for weekday, each in enumerate(spans):
        each.sort()
        if any(following[0] < span[1] for span, following in pairwise(each)):
            raise ValueError(f"two spans of {WEEKDAYS[weekday]} overlap: give each minute once")
    return tuple(map(tuple, spans))


def _parsed(line: str) -> Iterator[tuple[int, tuple[int, int]]]:
    match = _HOURS.fullmatch(line)
    if match is None or match[1] not in WEEKDAYS or (match[2] or match[1]) not in WEEKDAYS:
        raise ValueError(
            f"{line[:64]!r} says no business hours: write weekdays and times, such as 'MON-FRI 09:00-17:00'"
        )
    begin, end = (
        int(hour) * 60 + int(minute) for hour, minute in ((match[3], match[4]), (match[5], match[6]))
    )
    if int(match[4]) > 59 or int(match[6]) > 59 or not 0 <= begin < end <= MINUTES_OF_DAY:
        raise ValueError(f"{line!r}: the times must be 00:00 to 24:00, the first one earlier")
    first, last = WEEKDAYS.index(match[1]), WEEKDAYS.index(match[2] or match[1])
    if first > last:
        raise ValueError(f"{line!r}: {match[1]} is after {match[2]}: write two lines")
    for weekday in range(first, last + 1):
        yield weekday, (begin, end)


@lru_cache(_MOST_YEARS)
def holidays_of(place: str, year: int) -> Mapping[date, str]:
    """Return the holidays of a year in a place that `is_place` knows; beyond the data of the library there are none."""
    import holidays  # 90 ms and 11 MiB: only who has a calendar with holidays loads it

    country, _, subdivision = place.partition("-")
    years = (year, year + 1)  # New Year's Day may be observed the year before
    if country in holidays.list_supported_financial(include_aliases=False):
        found = holidays.financial_holidays(country, years=years, language=_LANGUAGE)
    else:
        found = holidays.country_holidays(
            country, subdiv=subdivision or None, years=years, language=_LANGUAGE
        )
    return {day: str(name) for day, name in found.items() if day.year == year}


def is_place(place: str) -> bool:
    """Tell whether the library has holidays of a country, of one of its subdivisions, or of a market."""
    countries, markets = places()
    country, dash, subdivision = place.partition("-")
    if not dash:
        return country in countries or country in markets
    return subdivision in countries.get(country, ())


def places() -> tuple[Mapping[str, list[str]], Mapping[str, list[str]]]:
    """Return the countries with their subdivisions, and the markets."""
    import holidays

    countries = holidays.list_supported_countries(include_aliases=False)
    markets = holidays.list_supported_financial(include_aliases=False)
    return countries, markets
