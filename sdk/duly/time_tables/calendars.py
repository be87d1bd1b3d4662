"""Calendars of working days, which time tables name: put, show, list, check, delete."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from duly.errors import InvalidTaskError
from duly.keep import KEEP, Keep, said
from duly.tasks.arguments import named
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly.transport.message_fields import view
from duly_wire.v1 import task_pb2, time_tables_pb2

_PAGE = 1_000
_NO_WEEKEND = "NONE"
_DATES = ("closed", "open")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedDate:
    """What a calendar says of a date."""

    day: date
    open: bool
    # Why it is closed.
    reason: str
    # Its business hours, such as 09:00-17:00; none: all day.
    hours: tuple[str, ...]
    # The first working day after it, and the last one before it. None: there is none for 20 years.
    next_open: date | None
    previous_open: date | None

    @classmethod
    def from_proto(cls, message: time_tables_pb2.CheckedDate) -> CheckedDate:
        """Return the view of a checked date as it came over the wire."""
        return view(
            cls,
            message,
            day=date.fromisoformat(message.date),
            next_open=_date_or_none(message.next_open),
            previous_open=_date_or_none(message.previous_open),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A calendar as it stands."""

    name: str
    # Places whose holidays are closed: DE, DE-BY, XNYS.
    holidays: tuple[str, ...]
    # Weekdays, such as SAT; empty: there is no weekend.
    weekend: tuple[str, ...]
    closed: tuple[date, ...]
    open: tuple[date, ...]
    # Business hours, such as MON-FRI 09:00-17:00; empty: working days are open all day.
    hours: tuple[str, ...]
    note: str
    # How often it was changed, from 1.
    revision: int
    created_at: datetime
    updated_at: datetime
    # The time tables that name it: at most 100, and only after `calendar`.
    time_tables: tuple[str, ...]
    # What it says of the dates that were asked for.
    days: tuple[CheckedDate, ...]
    # After `put_calendar`: the fields that it changed, and how many time tables have another next tick. None otherwise.
    changed: tuple[str, ...] | None = None
    moved_tables: int = 0

    @classmethod
    def from_proto(cls, state: time_tables_pb2.CalendarState, **after_put: Any) -> Calendar:
        """Return the view of a calendar as it came over the wire."""
        calendar = state.calendar
        return view(
            cls,
            calendar,
            state,
            weekend=() if [*calendar.weekend] == [_NO_WEEKEND] else tuple(calendar.weekend),
            closed=tuple(map(date.fromisoformat, calendar.closed)),
            open=tuple(map(date.fromisoformat, calendar.open)),
            days=tuple(map(CheckedDate.from_proto, state.days)),
            **{"changed": None, "moved_tables": 0} | after_put,
        )


class CalendarCalls(ClientPart):
    """The part of AsyncClient that is about calendars."""

    @named
    async def put_calendar(
        self,
        name: str,
        *,
        holidays: Iterable[str] | Keep | None = KEEP,
        weekend: Iterable[str] | Keep | None = KEEP,
        closed: Iterable[date] | Keep | None = KEEP,
        open: Iterable[date] | Keep | None = KEEP,  # noqa: A002 (the field's name)
        hours: Iterable[str] | Keep | None = KEEP,
        note: str | Keep | None = KEEP,
        if_revision: int | None = None,
    ) -> Calendar:
        """Create a calendar of working days, or change what is given of it. None removes a value, or sets its default.

            await client.put_calendar("office", holidays=["DE-BY"], closed=[date(2026, 12, 24)], hours=["MON-FRI 09:00-17:00"])
            await client.create_table("report", "report.make", cron="0 8 * * *", zone="Europe/Berlin", calendar="office")

        - `holidays`: places of the library `holidays`: countries, subdivisions, markets.
        - `weekend`: weekdays such as "SAT". None: Saturday and Sunday. An empty list: there is no weekend.
        - `closed`, `open`: own dates. They come before weekend and holidays.
        - `hours`: business hours. None: working days are open all day.
        - `if_revision`: only if this is still its revision; 0: only if it is new.

        The next ticks of the time tables that name it follow in the same transaction. Raises InvalidTaskError, also for a
        calendar without a working day; CalendarConflictError, CalendarNotFoundError with `if_revision`.
        """
        caller = self._caller
        values = {
            "holidays": holidays,
            "weekend": weekend,
            "closed": closed,
            "open": open,
            "hours": hours,
            "note": note,
        }
        calendar, mask = time_tables_pb2.Calendar(name=name), FieldMask()
        for field, value in said(values):
            mask.paths.append(field)
            if value is None:
                continue
            if field == "note":
                calendar.note = value
            else:
                getattr(calendar, field).extend(_texts(field, value))
        if not mask.paths:
            if if_revision != 0:
                raise InvalidTaskError(
                    f"say what to change of the calendar {name!r}: holidays, closed ...", "holidays"
                )
            mask.paths.append("note")
        new = time_tables_pb2.NewCalendar(calendar=calendar, if_revision=if_revision, update_mask=mask)
        request = time_tables_pb2.PutCalendarsRequest(calendars=[new])
        (result,) = (await caller.call(caller.time_tables.PutCalendars, request)).results
        error_mapping.check(result)
        changed = tuple(result.changed_fields.paths)
        return Calendar.from_proto(result.state, changed=changed, moved_tables=result.moved_time_tables)

    async def calendar(self, name: str, *, dates: Sequence[date] = ()) -> Calendar:
        """Return a calendar with the time tables that name it, and what it says of up to 100 dates. Raises CalendarNotFoundError."""
        caller = self._caller
        request = time_tables_pb2.GetCalendarsRequest(names=[name], dates=_texts("dates", dates))
        (result,) = (await caller.call(caller.time_tables.GetCalendars, request)).results
        error_mapping.check(result)
        return Calendar.from_proto(result.state)

    async def calendars(self) -> list[Calendar]:
        """Return the calendars by name."""
        caller = self._caller
        request = time_tables_pb2.ListCalendarsRequest(page_size=_PAGE)
        pages = caller.pages(caller.time_tables.ListCalendars, request)
        return [Calendar.from_proto(each) async for page in pages for each in page.calendars]

    async def delete_calendar(self, name: str) -> None:
        """Delete a calendar that no time table names. Raises CalendarNotFoundError, CalendarInUseError."""
        caller = self._caller
        request = time_tables_pb2.DeleteCalendarsRequest(names=[name])
        tries: list[int] = []
        response = await caller.call(caller.time_tables.DeleteCalendars, request, tried=tries.append)
        result: time_tables_pb2.CalendarResult = response.results[0]
        if len(tries) > 1 and result.error.code == task_pb2.ERROR_CODE_UNKNOWN_CALENDAR:
            return  # an earlier try deleted it, and its reply was lost
        error_mapping.check(result)


def _texts(field: str, values: Iterable[Any]) -> list[str]:
    """Return what a list says; a weekend without days has a sign of its own, for an empty list is its default."""
    if isinstance(values, str):
        raise InvalidTaskError(f"{field} must be a list, not a str", field)
    texts = [value.isoformat() if isinstance(value, date) else value for value in values]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidTaskError(f"{field} must be a list of {'dates' if field in _DATES else 'texts'}", field)
    if field == "weekend":
        return [text.upper() for text in texts] or [_NO_WEEKEND]
    return texts


def _date_or_none(text: str) -> date | None:
    return date.fromisoformat(text) if text else None
