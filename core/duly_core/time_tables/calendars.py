"""Calendars in the store: create, change, read, list, delete. A change moves the next ticks of the time tables that name it."""

import asyncio
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import NamedTuple

from duly_core.postgres.arrays import texts, timestamps
from duly_core.postgres.pool import Connection, Store, fetch, fetch_as
from duly_core.postgres.rows import named
from duly_core.time_tables.calendar import Calendar, holidays_of
from duly_core.time_tables.rows import TableRow, trigger_columns, with_calendar
from duly_core.time_tables.statements import CALENDARS
from duly_core.time_tables.wake import wake

MOST_USERS = 100
"""Time tables of a calendar that are named."""


class CalendarRow(NamedTuple):
    """A calendar as the store has it."""

    name: str
    holidays: list[str]
    weekend: list[str]
    closed: list[date]
    opened: list[date]
    hours: list[str]
    note: str
    revision: int
    created_at: datetime
    updated_at: datetime

    @property
    def calendar(self) -> Calendar:
        return Calendar(
            self.name,
            tuple(self.holidays),
            tuple(self.weekend),
            frozenset(self.closed),
            frozenset(self.opened),
            tuple(self.hours),
            self.note,
        )


class CalendarUser(NamedTuple):
    """A time table that names a calendar."""

    calendar: str
    table: str
    lambda_name: str


class CalendarVerdict(enum.Enum):
    """What became of a calendar."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    CONFLICT = "conflict"
    """Its revision is another than was asked for."""
    UNKNOWN = "unknown"
    """It was to be changed, and is not there."""


@dataclass(frozen=True, slots=True)
class PutCalendar:
    """What a call made of a calendar."""

    verdict: CalendarVerdict
    row: CalendarRow | None = None
    before: CalendarRow | None = None
    moved: int = 0
    """Time tables with another next tick."""


async def put(
    store: Store, name: str, make: Callable[[CalendarRow | None], Calendar], *, if_revision: int | None = None
) -> PutCalendar:
    """Create a calendar, or change it, and move the next ticks of the time tables that name it, in one transaction.

    A tick that is due already keeps its time: it is decided by the new calendar, in the next round.

    Args:
        store: where.
        name: of the calendar.
        make: returns the calendar to be, from the one that is there (None: there is none). It runs in a thread. What it
            raises is raised, and nothing is changed.
        if_revision: 0: it must be new. Otherwise the revision that it must have. None: whatever it is.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        await lock_calendars(connection)
        before = (await _by_name(connection, [name])).get(name)
        if before is None and if_revision:
            return PutCalendar(CalendarVerdict.UNKNOWN)
        calendar = await asyncio.to_thread(make, before)
        if before is not None:
            if before.calendar == calendar:
                return PutCalendar(CalendarVerdict.UNCHANGED, before, before)
            if if_revision is not None and if_revision != before.revision:
                return PutCalendar(CalendarVerdict.CONFLICT, before, before)
        (row,) = await fetch_as(named(CalendarRow), connection, CALENDARS["put_calendar"], _columns(calendar))
        moved = await _move_tables(connection, calendar)
    verdict = CalendarVerdict.CREATED if before is None else CalendarVerdict.CHANGED
    return PutCalendar(verdict, row, before, moved)


async def get(store: Store, names: Sequence[str]) -> dict[str, CalendarRow]:
    """Return calendars by name; those that do not exist are left out."""
    rows = await store.run_as(named(CalendarRow), CALENDARS["calendars_by_name"], {"names": texts([*names])})
    return {row.name: row for row in rows}


async def page(store: Store, after: str, skipped: int, limit: int) -> list[CalendarRow]:
    """Return up to `limit` calendars by name, from `skipped` behind a name on."""
    parameters = {"after": after, "skipped": skipped, "limit": limit}
    return await store.run_as(named(CalendarRow), CALENDARS["calendars_page"], parameters)


async def users(store: Store, names: Sequence[str]) -> list[CalendarUser]:
    """Return the time tables that name these calendars, up to MOST_USERS of each."""
    rows = await store.run(CALENDARS["calendar_users"], {"names": texts([*names]), "limit": MOST_USERS})
    return [CalendarUser(*row) for row in rows]


async def delete(store: Store, names: Sequence[str]) -> tuple[dict[str, CalendarRow], list[CalendarUser]]:
    """Delete those of these calendars that no time table names; return them, and the time tables that name the others."""
    async with store.connection() as connection, connection.transaction():
        await lock_calendars(connection)
        rows = await fetch(
            connection, CALENDARS["calendar_users"], {"names": texts([*names]), "limit": MOST_USERS}
        )
        found = [CalendarUser(*row) for row in rows]
        free = sorted({*names} - {each.calendar for each in found})
        deleted = await fetch_as(
            named(CalendarRow), connection, CALENDARS["delete_calendars"], {"names": texts(free)}
        )
    return {row.name: row for row in deleted}, found


async def lock_calendars(connection: Connection) -> None:
    """Keep calendars as they are until this transaction ends, and the time tables that name each."""
    await fetch(connection, CALENDARS["lock_calendars"], {})


async def read_calendars(connection: Connection, names: Iterable[str | None]) -> Mapping[str, Calendar]:
    """Return calendars by name, with the holidays of the years around loaded."""
    wanted = sorted({name for name in names if name})
    if not wanted:
        return {}
    rows = await _by_name(connection, wanted)
    calendars = {name: row.calendar for name, row in rows.items()}
    await asyncio.to_thread(_load_holidays, calendars.values())
    return calendars


async def calendars_of(store: Store, rows: Iterable[TableRow]) -> Mapping[str, Calendar]:
    """Return the calendars that time tables name."""
    names = sorted({row.calendar for row in rows if row.calendar})
    if not names:
        return {}
    calendars = {name: row.calendar for name, row in (await get(store, names)).items()}
    await asyncio.to_thread(_load_holidays, calendars.values())
    return calendars


def _load_holidays(calendars: Iterable[Calendar]) -> None:
    """Compute the holidays that ticks need next: the first time it takes a tenth of a second, and the event loop is not to wait."""
    year = datetime.now().astimezone().year
    for calendar in calendars:
        for place in calendar.holidays:
            for each in range(year - 1, year + 2):
                holidays_of(place, each)


async def _by_name(connection: Connection, names: Sequence[str]) -> dict[str, CalendarRow]:
    rows = await fetch_as(
        named(CalendarRow), connection, CALENDARS["calendars_by_name"], {"names": texts([*names])}
    )
    return {row.name: row for row in rows}


async def _move_tables(connection: Connection, calendar: Calendar) -> int:
    rows = await fetch_as(
        named(TableRow), connection, CALENDARS["locked_calendar_tables"], {"calendar": calendar.name}
    )
    moved = await asyncio.to_thread(_moved, rows, calendar)
    if not moved:
        return 0
    await fetch(
        connection,
        CALENDARS["move_calendar_tables"],
        {
            "names": texts([name for name, _, _ in moved]),
            "next_ticks": timestamps([next_tick for _, next_tick, _ in moved]),
            "next_fires": timestamps([next_fire for _, _, next_fire in moved]),
        },
    )
    await wake(connection)
    return len(moved)


def _moved(
    rows: Iterable[TableRow], calendar: Calendar
) -> list[tuple[str, datetime | None, datetime | None]]:
    """Return the next ticks that are others now, of ticks that are not due yet."""
    moved = []
    for row in rows:
        if row.next_tick_at is not None and row.next_tick_at <= row.read_at:
            continue
        rhythm = with_calendar(row.rhythm, {calendar.name: calendar})
        trigger = trigger_columns(row.name, rhythm, row.jitter, row.read_at)
        if trigger["next_tick_at"] != row.next_tick_at:
            moved.append((row.name, trigger["next_tick_at"], trigger["next_fire_at"]))
    return moved


def _columns(calendar: Calendar) -> dict[str, object]:
    return {
        "name": calendar.name,
        "holidays": texts([*calendar.holidays]),
        "weekend": texts([*calendar.weekend]),
        "closed": texts([day.isoformat() for day in sorted(calendar.closed)]),
        "opened": texts([day.isoformat() for day in sorted(calendar.opened)]),
        "hours": texts([*calendar.hours]),
        "note": calendar.note,
    }
