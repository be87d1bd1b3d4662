"""The ticks of rhythms, held against a count of every minute; and days on which clocks change, one by one."""

from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duly_core.time_tables import rhythm
from duly_core.time_tables.rhythm import ALIASES, last_before, most_within, next_after, ticks_from
from duly_core.time_tables.time_table import Rhythm

MINUTE = timedelta(minutes=1)
DAYS = timedelta(days=3)

CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("Europe/Berlin", "2026-10-25T01:00"),
    ("America/New_York", "2026-03-08T07:00"),
    ("America/New_York", "2026-11-01T06:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),  # half an hour
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("America/Havana", "2026-03-08T05:00"),  # at midnight
    ("America/Havana", "2026-11-01T05:00"),
    ("Africa/Cairo", "2026-04-23T22:00"),  # at midnight
    ("Africa/Cairo", "2026-10-29T21:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),  # a whole day
    ("Asia/Kolkata", "2026-06-01T00:00"),  # none
    ("UTC", "2026-06-01T00:00"),
]


def field(low, high):
    """A field of a cron expression: `*`, a step, a list."""
    values = st.lists(st.integers(low, high), min_size=1, max_size=3).map(
        lambda some: ",".join(map(str, some))
    )
    return st.one_of(st.just("*"), st.integers(1, 20).map(lambda step: f"*/{step}"), values)


crons = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(0, 6)).map(
    lambda fields: f"{fields[0]} {fields[1]} {fields[2]} * {fields[3]}"
)


def matches(text, value, low, high):
    if text == "*":
        return True
    if text.startswith("*/"):
        return value in range(low, high + 1, int(text[2:]))
    return str(value) in text.split(",")


def names(cron, wall):
    """Whether an expression names a wall time, by the book."""
    minute, hour, day, _, weekday = cron.split()
    on_day = matches(day, wall.day, 1, 31)
    on_weekday = matches(weekday, wall.isoweekday() % 7, 0, 6)
    both = day.startswith("*") or weekday.startswith("*")
    return (
        matches(minute, wall.minute, 0, 59)
        and matches(hour, wall.hour, 0, 23)
        and ((on_day and on_weekday) if both else (on_day or on_weekday))
    )


def counted(cron, zone, start, end):
    """The ticks in [start, end), by looking at each minute and at what clocks show then."""
    found = set()
    seen = set()
    before = (start - DAYS).astimezone(zone).replace(tzinfo=None)
    instant = start - DAYS
    while instant < end:
        wall = instant.astimezone(zone).replace(tzinfo=None)
        if cron.split()[1] == "*":
            ticks = names(cron, wall)
        else:
            ticks = names(cron, wall) and wall not in seen
            skipped = before + MINUTE
            while skipped < wall:  # walls that no clock shows
                ticks = ticks or (names(cron, skipped) and skipped not in seen)
                skipped += MINUTE
        if ticks and instant >= start:
            found.add(instant)
        seen.add(wall)
        before = wall
        instant += MINUTE
    return sorted(found)


@pytest.mark.long  # thousands of tables
@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CHANGES), crons, st.integers(-2_000, 1_000))
def test_a_cron_table_ticks_at_every_minute_that_it_names_and_at_no_other(change, cron, minutes):
    name, at = change
    start = datetime.fromisoformat(at).replace(tzinfo=UTC) + minutes * MINUTE
    end = start + DAYS

    found = list(takewhile(lambda tick: tick < end, ticks_from(Rhythm(cron=cron, zone=name), start)))

    assert found == counted(cron, ZoneInfo(name), start, end)


@settings(deadline=None, max_examples=200)
@given(
    st.timedeltas(timedelta(seconds=1), timedelta(days=366)),
    st.floats(0, 0.999),
    st.integers(366 * 86_400, 4_102_444_800).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
)
def test_an_interval_ticks_at_its_multiples_since_1970(every, part, instant):
    offset = every * part
    tick = next_after(Rhythm(every=every, offset=offset), instant)

    assert instant < tick <= instant + every
    assert (tick - datetime(1970, 1, 1, tzinfo=UTC) - offset) % every == timedelta()


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CHANGES), crons, st.integers(0, 3_000))
def test_the_last_tick_before_an_instant_is_the_last_of_those_that_come_before_it(change, cron, minutes):
    name, at = change
    rhythm = Rhythm(cron=cron, zone=name)
    start = datetime.fromisoformat(at).replace(tzinfo=UTC) - timedelta(days=1)
    instant = start + minutes * MINUTE

    before = list(takewhile(lambda tick: tick < instant, ticks_from(rhythm, start)))

    assert last_before(rhythm, instant, start) == (before[-1] if before else None)


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(CHANGES[-2:]), crons, st.timedeltas(MINUTE, timedelta(days=4)))
def test_no_window_has_more_ticks_than_were_reckoned_with(change, cron, window):
    rhythm = Rhythm(cron=cron, zone=change[0])
    start = datetime(2026, 6, 1, tzinfo=UTC)

    within = list(takewhile(lambda tick: tick < start + window, ticks_from(rhythm, start)))

    assert len(within) <= most_within(rhythm, window)


@pytest.mark.parametrize(
    ("zone", "cron", "start", "expected"),
    [
        # 02:30 does not exist on the 29th: the first instant after the gap
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00Z", ["29T03:00+02:00", "30T02:30+02:00"]),
        # 02:00 and 02:30 do not: one tick
        ("Europe/Berlin", "*/30 2 * * *", "2026-03-28T12:00Z", ["29T03:00+02:00", "30T02:00+02:00"]),
        # what falls on the end of the gap by itself comes once
        ("Europe/Berlin", "30 2,3 * * *", "2026-03-28T12:00Z", ["29T03:00+02:00", "29T03:30+02:00"]),
        # 02:30 comes twice on the 25th: the first
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00Z", ["25T02:30+02:00", "26T02:30+01:00"]),
        # every hour is every hour
        ("Europe/Berlin", "30 * * * *", "2026-03-29T00:00Z", ["29T01:30+01:00", "29T03:30+02:00"]),
        ("Europe/Berlin", "30 * * * *", "2026-10-25T00:00Z", ["25T02:30+02:00", "25T02:30+01:00"]),
        # the same, found years ahead
        ("Europe/Berlin", "30 2 29 3 */7", "2026-03-30T00:00Z", ["29T03:00+02:00", "29T03:00+02:00"]),
        ("Europe/Berlin", "30 2 25 10 */7", "2026-10-26T00:00Z", ["25T02:30+02:00", "25T02:30+02:00"]),
        ("Europe/Berlin", "30 * 25 10 */7", "2026-10-26T00:00Z", ["25T00:30+02:00", "25T01:30+02:00"]),
        # a day that was left out
        ("Pacific/Apia", "0 12 * * *", "2011-12-29T23:00Z", ["31T00:00+14:00", "31T12:00+14:00"]),
    ],
)
def test_days_on_which_clocks_change(zone, cron, start, expected):
    ticks = islice(ticks_from(Rhythm(cron=cron, zone=zone), datetime.fromisoformat(start)), 2)

    assert [_short(tick, zone) for tick in ticks] == expected


def _short(tick, zone):
    return tick.astimezone(ZoneInfo(zone)).isoformat(timespec="minutes")[8:]


def test_a_tick_that_never_comes_is_none():
    assert next_after(Rhythm(cron="0 0 29 2 *"), datetime(9999, 1, 1, tzinfo=UTC)) is None
    assert next_after(Rhythm(every=timedelta(days=300)), datetime(9999, 12, 1, tzinfo=UTC)) is None


def test_a_leap_day_is_found_years_ahead():
    assert next_after(Rhythm(cron="0 0 29 2 *"), datetime(2096, 3, 1, tzinfo=UTC)).year == 2104


def test_a_tick_years_ahead_takes_no_look_at_each_day_until_then(monkeypatch):
    looks = []
    look = rhythm._offset
    monkeypatch.setattr(rhythm, "_offset", lambda zone, at: looks.append(at) or look(zone, at))

    tick = next_after(Rhythm(cron="0 0 29 2 *", zone="America/New_York"), datetime(2096, 3, 1, tzinfo=UTC))

    assert tick.year == 2104
    assert len(looks) < 100


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_ticks_as_what_it_stands_for(alias):
    start = datetime(2026, 11, 22, 12, 34, tzinfo=UTC)

    assert next_after(Rhythm(cron=alias.upper()), start) == next_after(Rhythm(cron=ALIASES[alias]), start)
