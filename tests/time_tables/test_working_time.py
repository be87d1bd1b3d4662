"""Ticks with a calendar, held against each tick of the rhythm, moved one by one; and days that people know, one by one."""

import subprocess
import sys
from bisect import bisect_left
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly_core.time_tables.calendar import (
    MINUTES_OF_DAY,
    WEEKDAYS,
    Calendar,
    holidays_of,
    is_place,
    parse_hours,
)
from duly_core.time_tables.rhythm import instant_of, last_before, next_after, ticks_from
from duly_core.time_tables.time_table import ClosedRule, Rhythm
from duly_core.time_tables.working_time import nominal_of, planned
from duly_wire.enums import OnClosed

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
HAPPENING = {0, 10, 29, 30, 40, 59}
ZONES = ["UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe"]
STARTS = [
    datetime.fromisoformat(f"{each}+00:00")
    for each in ("2026-03-05T12:00", "2026-03-27T03:00", "2026-10-22T07:00", "2026-06-01T00:00")
]

spans = st.sampled_from(["09:00-17:00", "08:30-12:00", "13:00-24:00", "00:00-03:00"])
calendars = st.builds(
    Calendar,
    st.just("office"),
    weekend=st.sets(st.sampled_from(WEEKDAYS), max_size=4).map(lambda days: tuple(sorted(days))),
    closed=st.frozensets(st.integers(0, 25).map(lambda day: date(2026, 3, 20) + day * DAY), max_size=5),
    opened=st.frozensets(st.integers(0, 25).map(lambda day: date(2026, 10, 15) + day * DAY), max_size=4),
    hours=st.one_of(st.just(()), spans.map(lambda span: (f"MON-SUN {span}",))),
)
rules = st.builds(
    ClosedRule,
    st.just("office"),
    st.sampled_from(OnClosed),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 3, -1, -2]),
)
hours = st.sampled_from(["*", "2", "3", "9", "0,12", "*/6", "23"])
days = st.sampled_from(["* *", "15 *", "*/3 *", "* 0", "* 6,0", "1 1", "L *", "29 *"])
crons = st.tuples(st.sampled_from(["0", "30", "10,40"]), hours, days).map(
    lambda parts: f"{parts[0]} {parts[1]} {parts[2].split()[0]} * {parts[2].split()[1]}"
)
rhythms = st.one_of(
    st.builds(Rhythm, cron=crons, zone=st.sampled_from(ZONES), rule=rules, calendar=calendars),
    st.builds(
        Rhythm,
        every=st.sampled_from([timedelta(hours=24), timedelta(hours=38), timedelta(days=7)]),
        zone=st.sampled_from(ZONES),
        rule=rules,
        calendar=calendars,
    ),
)


def open_minutes(rhythm, start, end):
    """The minutes of working time at which something may happen: ticks, openings, last minutes before a closing."""
    rule, calendar, zone = rhythm.rule, rhythm.calendar, ZoneInfo(rhythm.zone)
    spans = {}
    for each in range((end - start) // MINUTE):
        at = start + each * MINUTE
        if at.minute not in HAPPENING:
            continue
        wall = at.astimezone(zone)
        if wall.date() not in spans:
            open_spans = calendar.hours_of(wall.date()) if rule.business_hours else ((0, MINUTES_OF_DAY),)
            spans[wall.date()] = open_spans if calendar.is_open(wall.date()) else ()
        if any(begin <= wall.hour * 60 + wall.minute < end for begin, end in spans[wall.date()]):
            yield at


def by_the_book(rhythm, tick, opens):
    """When a tick of the rhythm itself is: by looking at each day and each minute."""
    rule, calendar, zone = rhythm.rule, rhythm.calendar, ZoneInfo(rhythm.zone)
    wall = tick.astimezone(zone).replace(tzinfo=None)
    if rule.working_day:
        month = [wall.date().replace(day=1) + each * DAY for each in range(31)]
        working = [day for day in month if day.month == wall.month and calendar.is_open(day)]
        if wall.date() not in working:
            return None
        place = working.index(wall.date())
        if rule.working_day not in (place + 1, place - len(working)):
            return None
    following = bisect_left(opens, tick)
    if opens[following] == tick:
        return tick
    if rule.on_closed is OnClosed.SKIP:
        return None
    if rule.business_hours:
        return opens[following if rule.on_closed is OnClosed.NEXT else following - 1]
    day = wall.date()
    while not calendar.is_open(day):
        day += DAY if rule.on_closed is OnClosed.NEXT else -DAY
    return instant_of(zone, datetime.combine(day, wall.time()))


@settings(max_examples=12, deadline=None)
@given(rhythm=rhythms, start=st.sampled_from(STARTS))
def test_the_ticks_are_those_of_the_rhythm_moved_one_by_one(rhythm, start):
    end, around = start + 12 * DAY, 9 * DAY
    plain = Rhythm(rhythm.cron, rhythm.every, rhythm.offset, rhythm.zone)
    theirs = list(takewhile(lambda tick: tick < end + around, ticks_from(plain, start - around)))
    opens = list(open_minutes(rhythm, start - 2 * around, end + 2 * around))
    moved = {tick: by_the_book(rhythm, tick, opens) for tick in theirs}
    expected = sorted({at for at in moved.values() if at is not None and start <= at < end})

    found = list(takewhile(lambda tick: tick < end, ticks_from(rhythm, start)))

    assert found == expected
    for tick in found:
        assert moved.get(nominal_of(rhythm, tick)) == tick
    if expected:
        assert last_before(rhythm, end, start) == expected[-1]
    assert {
        each.nominal_at: each.tick_at for each in islice(planned(rhythm, start), 20) if each.nominal_at < end
    }.items() <= moved.items()


OFFICE = Calendar(
    "office", closed=frozenset({date(2026, 12, 24), date(2026, 12, 25)}), hours=("MON-FRI 09:00-17:00",)
)


def at(text, zone="Europe/Berlin"):
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


def ticks(cron, start, count, calendar=OFFICE, every=None, **rule):
    zone = "Europe/Berlin"
    rhythm = Rhythm(cron, every, zone=zone, rule=ClosedRule("office", **rule), calendar=calendar)
    found = islice(ticks_from(rhythm, at(start)), count)
    return [each.astimezone(ZoneInfo(zone)).strftime("%a %m-%d %H:%M") for each in found]


@pytest.mark.parametrize(
    ("cron", "rule", "expected"),
    [
        ("0 8 * * *", {}, ["Wed 12-23 08:00", "Mon 12-28 08:00"]),
        ("0 8 25 * *", {"on_closed": OnClosed.NEXT}, ["Mon 12-28 08:00", "Mon 01-25 08:00"]),
        ("0 8 25 * *", {"on_closed": OnClosed.PREVIOUS}, ["Wed 12-23 08:00", "Mon 01-25 08:00"]),
        # Thursday to Sunday move to Monday, which has its own tick: one task
        ("0 8 * * *", {"on_closed": OnClosed.NEXT}, ["Wed 12-23 08:00", "Mon 12-28 08:00"]),
        ("0 */6 * * *", {"business_hours": True}, ["Wed 12-23 12:00", "Mon 12-28 12:00"]),
        (
            "0 */6 * * *",
            {"business_hours": True, "on_closed": OnClosed.NEXT},
            ["Wed 12-23 09:00", "Wed 12-23 12:00", "Mon 12-28 09:00"],
        ),
        (
            "0 20 * * *",
            {"business_hours": True, "on_closed": OnClosed.PREVIOUS},
            ["Wed 12-23 16:59", "Mon 12-28 16:59"],
        ),
        ("0 7 * * *", {"working_day": -1}, ["Thu 12-31 07:00", "Fri 01-29 07:00", "Fri 02-26 07:00"]),
        ("0 7 * * *", {"working_day": 4}, ["Wed 01-06 07:00", "Thu 02-04 07:00"]),
    ],
)
def test_a_tick_on_closed_time_is_left_out_or_moves(cron, rule, expected):
    assert ticks(cron, "2026-12-23T05:00", len(expected), **rule) == expected


def test_a_moved_tick_keeps_to_the_rules_of_days_on_which_clocks_change():
    calendar = Calendar("office", weekend=("SAT",))

    moved = ticks("30 2 28 3 *", "2026-03-01T00:00", 1, calendar, on_closed=OnClosed.NEXT)

    assert moved == ["Sun 03-29 03:00"]  # Sunday 02:30 does not exist


@pytest.mark.parametrize(
    ("cron", "rule"),
    [("0 8 * * 6,0", {}), ("0 3 * * *", {"business_hours": True}), ("0 8 20 * 0", {"working_day": 23})],
)
def test_a_rhythm_that_never_meets_working_time_has_no_tick(cron, rule):
    calendar = Calendar("office", weekend=("SAT", "SUN"), hours=("MON-FRI 09:00-17:00",))
    if "20" in cron:
        cron = "0 8 1 * *"

    assert ticks(cron, "2026-12-23T05:00", 1, calendar, **rule) == []


def test_a_year_of_minutes_is_left_out_in_few_steps(monkeypatch):
    calendar = Calendar("office", closed=frozenset(date(2027, 1, 1) + each * DAY for each in range(365)))

    found = ticks(None, "2027-01-01T00:00", 1, calendar, every=timedelta(seconds=1))

    assert found == ["Mon 01-03 00:00"]


def test_holidays_come_from_the_library():
    calendar = Calendar("office", holidays=("DE-BY", "XNYS"))

    assert calendar.closed_why(date(2027, 1, 6)).startswith("holiday: ")  # Epiphany, in Bavaria
    assert calendar.closed_why(date(2026, 11, 26)) == "holiday: Thanksgiving Day (XNYS)"
    assert not Calendar("office", holidays=("DE",)).closed_why(date(2027, 1, 6))
    assert holidays_of("US", 2021)[date(2021, 12, 31)]  # observed the year before
    assert holidays_of("DE", 9999) == {}


@pytest.mark.parametrize("language", ["", "de", "en_US"])
def test_names_of_holidays_do_not_depend_on_the_locale_of_the_process(monkeypatch, language):
    monkeypatch.delenv("LANG", raising=False)
    monkeypatch.setenv("LANGUAGE", language)
    holidays_of.cache_clear()

    assert holidays_of("DE", 2026)[date(2026, 12, 25)] == "Christmas Day"


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("DE", True),
        ("DE-BY", True),
        ("XNYS", True),
        ("DE-XX", False),
        ("XX", False),
        ("", False),
        ("de", False),
    ],
)
def test_a_place_is_one_of_the_library(place, expected):
    assert is_place(place) is expected


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("MON 9-17", "says no business hours"),
        ("FRI-MON 09:00-17:00", "write two lines"),
        ("MON 17:00-09:00", "the first one earlier"),
        ("MON 09:61-17:00", "must be 00:00 to 24:00"),
        ("MON 09:00-25:00", "must be 00:00 to 24:00"),
    ],
)
def test_hours_that_are_none_are_refused(line, message):
    with pytest.raises(ValueError, match=message):
        parse_hours((line,))
    with pytest.raises(ValueError, match="two spans of MON overlap"):
        parse_hours(("MON 09:00-12:00", "MON 11:00-13:00"))


def test_a_rhythm_whose_calendar_is_gone_is_refused():
    with pytest.raises(ValueError, match="no calendar 'office'"):
        next_after(Rhythm(cron="0 8 * * *", rule=ClosedRule("office")), datetime(2026, 1, 1, tzinfo=UTC))


def test_who_has_no_calendar_with_holidays_does_not_load_the_library():
    program = """
from datetime import UTC, datetime
import sys
import duly_core.time_tables.calendars
import duly_core.time_tables.ticks
from duly_core.time_tables.calendar import Calendar
from duly_core.time_tables.rhythm import next_after
from duly_core.time_tables.time_table import ClosedRule, Rhythm
now = datetime(2026, 12, 23, tzinfo=UTC)
next_after(Rhythm(cron="0 8 * * *"), now)
assert "duly_core.time_tables.working_time" not in sys.modules
next_after(Rhythm(cron="0 8 * * *", rule=ClosedRule("office"), calendar=Calendar("office")), now)
assert "holidays" not in sys.modules
"""

    subprocess.run([sys.executable, "-c", program], check=True)
