"""Time tables in the store: create, change, read, list, delete, pause, resume."""

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from duly_core.postgres.pool import Connection, Store, fetch, fetch_as
from duly_core.postgres.rows import named
from duly_core.time_tables.calendars import lock_calendars, read_calendars
from duly_core.time_tables.rhythm import next_after
from duly_core.time_tables.rows import TableRow, definition_columns, trigger_columns, with_calendar
from duly_core.time_tables.statements import TIME_TABLES
from duly_core.time_tables.time_table import TimeTable
from duly_core.time_tables.wake import wake

_TRIES = 3
"""A table may be created between the look at it and the insert."""


class PutVerdict(enum.Enum):
    """What became of a definition."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    """It was there already, and said the same."""
    CONFLICT = "conflict"
    """Its revision is another than was asked for."""
    UNKNOWN = "unknown"
    """It was to be changed, and is not there."""
    UNKNOWN_LAMBDA = "unknown lambda"
    PAYLOAD_TOO_LARGE = "payload too large"
    KEPT = "kept"
    """Somebody changed it since it was declared: the declaration was not taken."""
    OUT_OF_REACH = "out of reach"
    """It is of a lambda that the caller may not declare."""
    UNKNOWN_CALENDAR = "unknown calendar"
    NEVER_FIRES = "never fires"
    """No tick of it falls on working time of its calendar, or can be moved there."""


@dataclass(frozen=True, slots=True)
class PutAnswer:
    """What became of a definition, and how the table is now."""

    verdict: PutVerdict
    row: TableRow | None = None
    payload_limit: int = 0
    before: TableRow | None = None
    """As it was. None: it is new, or was not looked at."""
    lambda_name: str = ""
    """The lambda that it was to have."""
    calendar: str = ""
    """The calendar that it was to have."""


async def put(
    store: Store,
    name: str,
    make: Callable[[TableRow | None], TimeTable],
    *,
    if_revision: int | None = None,
    names_calendar: bool = False,
) -> PutAnswer:
    """Create a time table, or change it, in one transaction; the next tick moves only if the rhythm or the jitter changes.

    Args:
        store: where.
        name: of the time table.
        make: returns the definition to be, from the time table that is there (None: there is none). It runs in a thread, while
            nobody changes this time table. What it raises is raised, and nothing is changed.
        if_revision: 0: it must be new. Otherwise the revision that it must have. None: whatever it is.
        names_calendar: it may name a calendar that it did not name before.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    async with store.connection() as connection, connection.transaction():
        if names_calendar:
            await lock_calendars(connection)
        for _ in range(_TRIES):
            row = (await locked_rows(connection, [name])).get(name)
            if row is None and if_revision:
                return PutAnswer(PutVerdict.UNKNOWN)
            table = await asyncio.to_thread(make, row)
            ((now, limit),) = await fetch(
                connection, TIME_TABLES["time_table_clock"], {"lambda": table.lambda_name}
            )
            if answer := refused(table, limit):
                return answer
            if table.rhythm.rule is not None:
                table = await _with_its_calendar(connection, table)
                if answer := await asyncio.to_thread(never_fires, table, now):
                    return answer
            columns = definition_columns(table) | {"declared": False, "now": now}
            if row is not None:
                return await _change(connection, row, table, columns, if_revision)
            first = trigger_columns(table.name, table.rhythm, table.policy.jitter, now)
            created = await _rows(connection, "create_time_table", columns | first)
            if created:
                await wake(connection)
                return PutAnswer(PutVerdict.CREATED, created[0])
        return PutAnswer(PutVerdict.CONFLICT)


def refused(table: TimeTable, payload_limit: int | None) -> PutAnswer | None:
    """Return why its lambda (None: unknown) does not take a time table; None: it does."""
    if payload_limit is None:
        return PutAnswer(PutVerdict.UNKNOWN_LAMBDA, lambda_name=table.lambda_name)
    if len(table.payload) > payload_limit:
        return PutAnswer(
            PutVerdict.PAYLOAD_TOO_LARGE, payload_limit=payload_limit, lambda_name=table.lambda_name
        )
    return None


def never_fires(table: TimeTable, now: datetime) -> PutAnswer | None:
    """Return why a time table with a calendar would have no tick; None: it has one."""
    rule = table.rhythm.rule
    if rule is None:
        return None
    verdict = None
    if table.rhythm.calendar is None:
        verdict = PutVerdict.UNKNOWN_CALENDAR
    elif next_after(table.rhythm, now) is None:
        verdict = PutVerdict.NEVER_FIRES
    return verdict and PutAnswer(verdict, lambda_name=table.lambda_name, calendar=rule.calendar)


async def _with_its_calendar(connection: Connection, table: TimeTable) -> TimeTable:
    rule = table.rhythm.rule
    calendars = await read_calendars(connection, [rule.calendar] if rule else [])
    return replace(table, rhythm=with_calendar(table.rhythm, calendars))


def unchanged(row: TableRow, table: TimeTable, *, declared: bool) -> PutAnswer | None:
    """Return why a time table stays as it is; None: it is to be changed."""
    if row.definition == table and (declared or not row.declared):
        return PutAnswer(PutVerdict.UNCHANGED, row)
    if declared and not row.declared:
        return PutAnswer(PutVerdict.KEPT, row)
    return None


def changed_columns(row: TableRow, table: TimeTable, now: datetime) -> dict[str, Any]:
    """Return the next tick of a time table that is changed: another one only if the rhythm or the jitter is."""
    if (row.rhythm, row.policy.jitter) != (table.rhythm, table.policy.jitter):
        return trigger_columns(table.name, table.rhythm, table.policy.jitter, now)
    return {"next_tick_at": row.next_tick_at, "next_fire_at": row.next_fire_at}


async def _change(
    connection: Connection, row: TableRow, table: TimeTable, columns: dict[str, Any], if_revision: int | None
) -> PutAnswer:
    if answer := unchanged(row, table, declared=False):
        return replace(answer, before=row)
    if if_revision is not None and if_revision != row.revision:
        return PutAnswer(PutVerdict.CONFLICT, row)
    trigger = changed_columns(row, table, columns["now"])
    (changed,) = await _rows(connection, "change_time_table", columns | trigger)
    await wake(connection)
    return PutAnswer(PutVerdict.CHANGED, changed, before=row)


async def get(store: Store, names: Sequence[str]) -> dict[str, TableRow]:
    """Return time tables by name; those that do not exist are left out."""
    rows = await store.run_as(named(TableRow), TIME_TABLES["time_tables_by_name"], {"names": list(names)})
    return {row.name: row for row in rows}


async def page(store: Store, after: str, skipped: int, lambda_name: str, limit: int) -> list[TableRow]:
    """Return up to `limit` time tables by name, from `skipped` behind a name on, of a lambda or of any; without payloads."""
    parameters = {"after": after, "skipped": skipped, "lambda": lambda_name, "limit": limit}
    return await store.run_as(named(TableRow), TIME_TABLES["time_tables_page"], parameters)


async def delete(store: Store, names: Sequence[str]) -> dict[str, TableRow]:
    """Delete time tables; return those that were there. Their tasks stay."""
    async with _changing(store) as connection:
        await locked_rows(connection, names)
        rows = await _rows(connection, "delete_time_tables", {"names": list(names)})
    return {row.name: row for row in rows}


async def pause(store: Store, names: Sequence[str], note: str | None) -> dict[str, TableRow]:
    """Pause time tables; return those that are there. A note of None is not named: one that is there stays."""
    async with _changing(store) as connection:
        await locked_rows(connection, names)
        rows = await _rows(
            connection,
            "pause_time_tables",
            {"names": list(names), "names_note": note is not None, "note": note or None},
        )
    return {row.name: row for row in rows}


async def resume(store: Store, names: Sequence[str]) -> dict[str, TableRow]:
    """Resume time tables with their first tick from now on; return those that are there, paused or not."""
    async with _changing(store) as connection:
        found = await locked_rows(connection, names)
        calendars = await read_calendars(connection, [row.calendar for row in found.values()])
        for name, row in found.items():
            if row.paused_at is not None:
                rhythm = with_calendar(row.rhythm, calendars)
                trigger = await asyncio.to_thread(
                    trigger_columns, name, rhythm, row.policy.jitter, row.read_at
                )
                (found[name],) = await _rows(connection, "resume_time_table", trigger | {"name": name})
    return found


async def _rows(connection: Connection, statement: str, parameters: dict[str, Any]) -> list[TableRow]:
    return await fetch_as(named(TableRow), connection, TIME_TABLES[statement], parameters)


@asynccontextmanager
async def _changing(store: Store) -> AsyncIterator[Connection]:
    """One transaction, whose commit wakes the Store Consumers."""
    async with store.connection() as connection, connection.transaction():
        yield connection
        await wake(connection)


async def locked_rows(connection: Connection, names: Sequence[str]) -> dict[str, TableRow]:
    """Lock time tables; return those that are there, by name."""
    rows = await _rows(connection, "locked_time_tables", {"names": list(names)})
    return {row.name: row for row in rows}
