"""Writes the time tables that applications declare, all of a call in one transaction."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from duly_core.access.grants import Scope
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Connection, Store, fetch
from duly_core.time_tables.calendars import lock_calendars, read_calendars
from duly_core.time_tables.rows import TableRow, definition_columns, trigger_columns, with_calendar
from duly_core.time_tables.statements import TIME_TABLES
from duly_core.time_tables.store import (
    PutAnswer,
    PutVerdict,
    changed_columns,
    locked_rows,
    never_fires,
    refused,
    unchanged,
)
from duly_core.time_tables.time_table import TimeTable
from duly_core.time_tables.wake import wake


async def put_declared(
    store: Store, tables: Sequence[TimeTable], scope: Scope | None = None
) -> dict[str, PutAnswer]:
    """Create or change declared time tables, each name once; return what became of each, by name.

    What somebody else creates at the same time is CONFLICT: declared again, it is compared. `scope` has the lambdas whose
    time tables may be changed; None: all.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    declared = {table.name: table for table in sorted(tables, key=lambda table: table.name)}
    async with store.connection() as connection, connection.transaction():
        names = {table.rhythm.rule.calendar for table in tables if table.rhythm.rule}
        if names:
            await lock_calendars(connection)
        calendars = await read_calendars(connection, names)
        declared = {
            name: replace(table, rhythm=with_calendar(table.rhythm, calendars))
            for name, table in declared.items()
        }
        now, limits = await _lambdas(connection, sorted({table.lambda_name for table in tables}))
        answers = {
            name: answer
            for name, table in declared.items()
            if (answer := refused(table, limits.get(table.lambda_name)))
        }
        left = [table for name, table in declared.items() if name not in answers]
        found = await locked_rows(connection, [table.name for table in left])
        # computing thousands of ticks takes a while: other calls have their turn meanwhile
        created, changed = await asyncio.to_thread(_decide, left, found, now, answers, scope)
        for name in await _write(connection, "create_time_table", created):
            answers[name] = PutAnswer(PutVerdict.CREATED)
        await _write(connection, "change_time_table", changed)
        if created or changed:
            await wake(connection)
    return answers


def _decide(
    tables: Sequence[TimeTable],
    found: Mapping[str, TableRow],
    now: datetime,
    answers: dict[str, PutAnswer],
    scope: Scope | None,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows to create and those to change; add the answers.

    Those to create are CONFLICT until they are written.
    """
    created, changed = [], []
    for table in tables:
        if answer := never_fires(table, now):
            answers[table.name] = answer
            continue
        columns = definition_columns(table) | {"declared": True, "now": now}
        row = found.get(table.name)
        if row is None:
            answers[table.name] = PutAnswer(PutVerdict.CONFLICT)
            first = trigger_columns(table.name, table.rhythm, table.policy.jitter, now)
            created.append(columns | first)
        elif scope is not None and not scope.covers_all_of(row.lambda_name):
            answers[table.name] = PutAnswer(PutVerdict.OUT_OF_REACH)
        elif answer := unchanged(row, table, declared=True):
            answers[table.name] = answer
        else:
            answers[table.name] = PutAnswer(PutVerdict.CHANGED)
            changed.append(columns | changed_columns(row, table, now))
    return created, changed


async def _lambdas(connection: Connection, names: Sequence[str]) -> tuple[datetime, dict[str, int]]:
    """Return the store's time, and the payload limits of those of these lambdas that are registered."""
    rows = await fetch(connection, TIME_TABLES["time_table_lambdas"], {"names": texts(names)})
    return rows[0][0], {row[1]: row[2] for row in rows if row[1] is not None}


async def _write(connection: Connection, statement: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Run a statement for each of these, without a round trip for each; return the names of the rows that it wrote."""
    if not rows:
        return []
    written: list[str] = []
    async with connection.cursor(binary=True) as cursor:
        await cursor.executemany(TIME_TABLES[statement].sql, rows, returning=True)
        while True:
            written += [row[0] for row in await cursor.fetchall()]
            if not cursor.nextset():
                return written
