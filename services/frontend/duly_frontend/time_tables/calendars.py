"""Calendars of working days: created, changed, shown and deleted while Duly runs."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TypeAlias

from duly_core.access.current import restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.lambdas.names import namespace_of
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_count, check_text, page_size
from duly_core.rpc.requests.field_masks import changed_fields, merged, named_fields
from duly_core.rpc.requests.names import check_name_in_namespace
from duly_core.rpc.requests.problem import Problem
from duly_core.time_tables import calendars as store_calendars
from duly_core.time_tables.calendar import (
    DAY,
    NO_WEEKEND,
    USUAL_WEEKEND,
    WEEKDAYS,
    Calendar,
    holidays_of,
    is_place,
    parse_hours,
    places,
)
from duly_core.time_tables.calendars import CalendarRow, CalendarUser, CalendarVerdict
from duly_core.traffic.slices import Steps
from duly_frontend.access.reach import refused
from duly_frontend.events import log
from duly_frontend.lists.restricted import read_page
from duly_frontend.time_tables.definitions import unknown_calendar
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import task_pb2, time_tables_pb2

Checked: TypeAlias = list[time_tables_pb2.CheckedDate]

CALENDAR_FIELDS = ("holidays", "weekend", "closed", "open", "hours", "note")
"""What a mask may name of a calendar."""
_MOST = 100
_LOOKED_AT = 1_000
"""Calendars that one call looks at for a caller who may see some of them."""
_MOST_PLACES = 8
_MOST_DATES = 1_000
_MOST_CHECKED = 100
"""Dates: the holidays of a year of a place take about 20 ms the first time."""
_MOST_HOURS = 50
_LONGEST_NOTE = 256
_MINUTES = 60
_A_YEAR = timedelta(days=366)
_LAST_YEAR = 9000


class Calendars:
    """Answers each calendar for itself; one with an error has changed nothing."""

    def __init__(self, store: Store, sliced: Callable[[Steps[Checked]], Awaitable[Checked]]) -> None:
        """Make one; `sliced` runs long work in steps, callers in turn."""
        self._store = store
        self._sliced = sliced

    async def put(self, request: time_tables_pb2.PutCalendarsRequest) -> time_tables_pb2.PutCalendarsResponse:
        """Create calendars, or change what the call names of them."""
        check_count("calendars", len(request.calendars), _MOST)
        return time_tables_pb2.PutCalendarsResponse(
            results=[await self._put(each) for each in request.calendars]
        )

    async def _put(self, asked: time_tables_pb2.NewCalendar) -> time_tables_pb2.CalendarResult:
        name = asked.calendar.name
        if_revision = asked.if_revision if asked.HasField("if_revision") else None
        try:
            check_name_in_namespace("name", name)
            _check_may_change(name)
            mask = asked.update_mask if asked.HasField("update_mask") else None
            named = named_fields("update_mask", mask, asked.calendar, CALENDAR_FIELDS)

            def make(row: CalendarRow | None) -> Calendar:
                empty = time_tables_pb2.Calendar(name=name)
                # what must be new is compared as a whole: a repeat finds the same
                current = empty if row is None or if_revision == 0 else _calendar_to_wire(row)
                return _calendar(merged(current, asked.calendar, named))

            done = await store_calendars.put(self._store, name, make, if_revision=if_revision)
        except Problem as problem:
            return time_tables_pb2.CalendarResult(error=problem.to_wire())
        if done.verdict is CalendarVerdict.UNKNOWN or done.row is None:
            return time_tables_pb2.CalendarResult(error=_unknown(name).to_wire())
        if done.verdict is CalendarVerdict.CONFLICT:
            conflict = Problem(
                "name",
                f"{name!r} exists, and is at revision {done.row.revision}: read it again, then change it",
                task_pb2.ERROR_CODE_CALENDAR_CONFLICT,
            )
            return time_tables_pb2.CalendarResult(error=conflict.to_wire())
        before = time_tables_pb2.Calendar() if done.before is None else _calendar_to_wire(done.before)
        changed = changed_fields(before, _calendar_to_wire(done.row), CALENDAR_FIELDS)
        log.info(
            "calendar defined",
            calendar=name,
            verdict=done.verdict.value,
            changed=[*changed.paths],
            moved_time_tables=done.moved,
        )
        return time_tables_pb2.CalendarResult(
            state=_state(done.row),
            created=done.before is None,
            changed_fields=changed,
            moved_time_tables=done.moved,
        )

    async def get(self, request: time_tables_pb2.GetCalendarsRequest) -> time_tables_pb2.GetCalendarsResponse:
        """Read calendars by name, and what they say of some dates."""
        check_count("names", len(request.names), _MOST)
        if len(request.dates) * len(request.names) > _MOST_CHECKED:
            raise Problem("dates", f"there may be at most {_MOST_CHECKED:,} for all calendars together")
        dates = _dates("dates", request.dates)
        scope = restriction(Action.READ)
        names = [name for name in request.names if "\x00" not in name and _is_seen(scope, name)]
        found = await store_calendars.get(self._store, names)
        users = await store_calendars.users(self._store, names)
        results = []
        for name in request.names:
            if name not in found:
                results.append(time_tables_pb2.CalendarResult(error=_unknown(name).to_wire()))
                continue
            state = _state(found[name])
            state.time_tables.extend(
                each.table
                for each in users
                if each.calendar == name and (scope is None or scope.covers_all_of(each.lambda_name))
            )
            state.days.extend(await self._sliced(_checking(found[name].calendar, dates)))
            results.append(time_tables_pb2.CalendarResult(state=state))
        return time_tables_pb2.GetCalendarsResponse(results=results)

    async def list(
        self, request: time_tables_pb2.ListCalendarsRequest
    ) -> time_tables_pb2.ListCalendarsResponse:
        """List calendars by name."""
        size = page_size(request.page_size)
        scope = restriction(Action.READ)
        rows, token = await read_page(
            request.page_token,
            size,
            size if scope is None else _LOOKED_AT,
            lambda after, skipped, limit: store_calendars.page(self._store, after, skipped, limit),
            lambda row: row if _is_seen(scope, row.name) else None,
            lambda row: row.name,
        )
        return time_tables_pb2.ListCalendarsResponse(calendars=map(_state, rows), next_page_token=token)

    async def delete(
        self, request: time_tables_pb2.DeleteCalendarsRequest
    ) -> time_tables_pb2.DeleteCalendarsResponse:
        """Delete calendars that no time table names."""
        check_count("names", len(request.names), _MOST)
        problems: dict[str, Problem] = {}
        for name in request.names:
            try:
                check_name_in_namespace("name", name)
                _check_may_change(name)
            except Problem as problem:
                problems[name] = problem
        wanted = [name for name in dict.fromkeys(request.names) if name not in problems]
        deleted, users = await store_calendars.delete(self._store, wanted)
        log.info("calendars deleted", calendars=sorted(deleted))
        results = []
        for name in request.names:
            why_not = problems.get(name) or _in_use(name, users)
            if why_not is None and name in deleted:
                results.append(time_tables_pb2.CalendarResult(state=_state(deleted[name])))
            else:
                results.append(time_tables_pb2.CalendarResult(error=(why_not or _unknown(name)).to_wire()))
        return time_tables_pb2.DeleteCalendarsResponse(results=results)


def _check_may_change(name: str) -> None:
    """Check that the caller may change a calendar: those of a namespace belong to its owners and operators, others to those of all lambdas."""
    namespace = namespace_of(name)
    for action in (Action.REGISTER, Action.OPERATE):
        scope = restriction(action)
        if scope is None or (scope.covers_namespace(namespace) if namespace else scope.is_everything):
            return
    raise refused(Action.REGISTER, name, "name")


def _is_seen(scope: Scope | None, name: str) -> bool:
    namespace = namespace_of(name)
    return scope is None or not namespace or scope.covers_some_of(namespace)


def _in_use(name: str, users: Iterable[CalendarUser]) -> Problem | None:
    tables = [each.table for each in users if each.calendar == name]
    if not tables:
        return None
    more = " and more" if len(tables) == store_calendars.MOST_USERS else ""
    return Problem(
        "name",
        f"time tables name {name}: {', '.join(tables)}{more}: give them another calendar, or none",
        task_pb2.ERROR_CODE_CALENDAR_IN_USE,
    )


def _unknown(name: str) -> Problem:
    return unknown_calendar(name, "name")


def _calendar(asked: time_tables_pb2.Calendar) -> Calendar:
    """Check a calendar. To be called in a thread.

    Raises:
        Problem: names the field and the fix.
    """
    check_text("note", asked.note, 4 * _LONGEST_NOTE)
    if len(asked.note) > _LONGEST_NOTE:
        raise Problem("note", f"must be at most {_LONGEST_NOTE} characters")
    closed, opened = _dates("closed", asked.closed), _dates("open", asked.open)
    if both := sorted({*closed} & {*opened}):
        raise Problem("open", f"{both[0]} is closed, too: name it once")
    calendar = Calendar(
        asked.name,
        _places(asked.holidays),
        _weekend(asked.weekend),
        frozenset(closed),
        frozenset(opened),
        _hours(asked.hours),
        asked.note,
    )
    today = datetime.now(UTC).date()
    first = calendar.first_open(today)
    if first is None or first - today > _A_YEAR:
        raise Problem(
            "weekend",
            "the calendar has no working day within a year: take weekdays out of `weekend`, or dates out of `closed`",
        )
    return calendar


def _places(asked: Sequence[str]) -> tuple[str, ...]:
    if len(asked) > _MOST_PLACES:
        raise Problem("holidays", f"there may be at most {_MOST_PLACES} places, not {len(asked):,}")
    for place in asked:
        if not is_place(place[:64]):
            raise Problem("holidays", _no_place(place[:64]))
    return tuple(dict.fromkeys(asked))


def _no_place(place: str) -> str:
    from difflib import get_close_matches

    countries, markets = places()
    country, dash, subdivision = place.partition("-")
    if dash and country in countries:
        known = countries[country]
        near = get_close_matches(subdivision, known, 3) or known[:5]
        hint = (
            f"such as {', '.join(f'{country}-{each}' for each in near)}" if near else f"use {country} alone"
        )
        return f"{country} has no subdivision {subdivision!r}: {hint}"
    near = get_close_matches(place.upper(), [*countries, *markets], 3)
    hint = f"did you mean {' or '.join(near)}?" if near else "use a code such as DE, DE-BY, US-NY or XNYS"
    return f"{place!r} is no country or market with known holidays: {hint}"


def _weekend(asked: Sequence[str]) -> tuple[str, ...]:
    if not asked:
        return USUAL_WEEKEND
    if [*asked] == [NO_WEEKEND]:
        return ()
    for day in asked:
        if day not in WEEKDAYS:
            raise Problem(
                "weekend", f"{day[:64]!r} is no weekday: use {', '.join(WEEKDAYS)}, or {NO_WEEKEND} alone"
            )
    return tuple(day for day in WEEKDAYS if day in asked)


def _dates(field: str, asked: Sequence[str]) -> list[date]:
    if len(asked) > _MOST_DATES:
        raise Problem(field, f"there may be at most {_MOST_DATES:,} dates, not {len(asked):,}")
    return [_date(field, text) for text in asked]


def _date(field: str, text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if day.isoformat() != text or not 1970 <= day.year <= _LAST_YEAR:
        raise Problem(field, f"{text[:64]!r} is no date from 1970 to {_LAST_YEAR}: write it as 2026-12-24")
    return day


def _hours(asked: Sequence[str]) -> tuple[str, ...]:
    if len(asked) > _MOST_HOURS:
        raise Problem("hours", f"there may be at most {_MOST_HOURS} lines, not {len(asked):,}")
    try:
        parse_hours(tuple(asked))
    except ValueError as error:
        raise Problem("hours", str(error)) from None
    return tuple(asked)


def _checking(calendar: Calendar, dates: Sequence[date]) -> Steps[Checked]:
    checked = []
    for day in dates:
        for place in calendar.holidays:  # a year of one takes about 20 ms the first time
            holidays_of(place, day.year)
            yield
        checked.append(_checked(calendar, day))
        yield
    return checked


def _checked(calendar: Calendar, day: date) -> time_tables_pb2.CheckedDate:
    reason = calendar.closed_why(day)
    following, before = calendar.first_open(day + DAY), calendar.last_open(day - DAY)
    spans = calendar.hours_of(day) if calendar.hours and not reason else ()
    return time_tables_pb2.CheckedDate(
        date=day.isoformat(),
        open=not reason,
        reason=reason,
        hours=[f"{_clock(begin)}-{_clock(end)}" for begin, end in spans],
        next_open=following.isoformat() if following else "",
        previous_open=before.isoformat() if before else "",
    )


def _clock(minute: int) -> str:
    return f"{minute // _MINUTES:02}:{minute % _MINUTES:02}"


def _state(row: CalendarRow) -> time_tables_pb2.CalendarState:
    return time_tables_pb2.CalendarState(
        calendar=_calendar_to_wire(row),
        revision=row.revision,
        created_at=to_timestamp(row.created_at),
        updated_at=to_timestamp(row.updated_at),
    )


def _calendar_to_wire(row: CalendarRow) -> time_tables_pb2.Calendar:
    return time_tables_pb2.Calendar(
        name=row.name,
        holidays=row.holidays,
        weekend=row.weekend or [NO_WEEKEND],
        closed=[day.isoformat() for day in sorted(row.closed)],
        open=[day.isoformat() for day in sorted(row.opened)],
        hours=row.hours,
        note=row.note,
    )
