"""Fires time tables: the ticks that are due become tasks in the transaction that moves the tables on."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog

from duly_core.errors import RowLockedError, StatementTimeoutError, StoreUnavailableError
from duly_core.postgres.arrays import texts, timestamps, uuids
from duly_core.postgres.pool import Connection, Store, fetch, fetch_as
from duly_core.postgres.rows import named
from duly_core.postgres.statements import READS, TRANSITIONS
from duly_core.process.clock import seconds_since_boot
from duly_core.tasks import attributes
from duly_core.tasks.attribute_rules import read as read_attributes
from duly_core.time_tables.calendar import Calendar
from duly_core.time_tables.calendars import read_calendars
from duly_core.time_tables.rhythm import nominal_at
from duly_core.time_tables.rows import TableRow, with_calendar
from duly_core.time_tables.statements import TIME_TABLES
from duly_core.time_tables.store import locked_rows
from duly_core.time_tables.tick_plan import TickPlan, fire_at, plan_ticks
from duly_core.time_tables.time_table import Rhythm, Tick
from duly_wire.ids import TaskId

log = structlog.get_logger()

MOST_TABLES = 500
"""Time tables of one transaction."""
MOST_TASKS = 1_000
"""Tasks that one statement writes."""
MOST_BYTES = 32 << 20
"""Payloads that it writes."""
MOST_COMPUTED = 5_000
"""Ticks that one transaction computes; the last time table may exceed it by MOST_TASKS."""
LONGEST_PLANNING = timedelta(milliseconds=250)
"""How long one transaction computes ticks: rows are locked meanwhile, and the event loop stands still."""
_LOCK_TIMEOUT = "set local lock_timeout = '2s'"
"""For a round: what it waits for, all time tables wait for."""
_PUT_OFF = timedelta(minutes=1)
_PUT_OFF_LOCKED = timedelta(seconds=10)
_NO_TASK = bytes(16)


@dataclass(slots=True)
class Fired:
    """What one round did."""

    tables: int = 0
    tasks: int = 0
    lambdas: set[str] = field(default_factory=set)
    """Of the tasks that were written."""
    left_out: list[str] = field(default_factory=list)
    """Tables of which ticks were missed, or overlapped."""
    cancelled: int = 0
    """Running tasks that were asked to stop."""
    put_off: dict[str, str] = field(default_factory=dict)
    """Tables that are tried again later, and why."""
    left: int = 0
    """Tables that are still due: the next transaction fires them."""

    def add(self, other: "Fired") -> None:
        """Add what another round did."""
        self.tables += other.tables
        self.tasks += other.tasks
        self.lambdas |= other.lambdas
        self.left_out += other.left_out
        self.cancelled += other.cancelled
        self.put_off |= other.put_off
        self.left += other.left


async def next_fire_in(store: Store) -> tuple[timedelta | None, bool]:
    """Return how long until the next tick fires (None: there is none), and whether ticks wait for the end of a task."""
    ((ahead, buffered),) = await store.run(TIME_TABLES["next_time_table"], {})
    return ahead, buffered


async def fire_due(store: Store, new_task_id: Callable[[], TaskId]) -> Fired:
    """Decide about the ticks that are due now, of up to MOST_TABLES tables, in one transaction.

    What another Store Consumer works on is left to it. A tick fires in the transaction that moves its table on, so that
    each has exactly one task, whoever dies. If the transaction times out, each table has one of its own.

    Raises:
        StoreUnavailableError: the outcome is unknown; another round finds what is left.
    """
    try:
        return await _fire_some(store, new_task_id, MOST_TABLES, [])
    except (RowLockedError, StatementTimeoutError):
        return await _fire_singly(store, new_task_id)


async def _fire_some(store: Store, new_task_id: Callable[[], TaskId], most: int, names: list[str]) -> Fired:
    """Fire up to `most` tables in one transaction; note their names before anything may fail."""
    async with store.connection() as connection, connection.transaction():
        await connection.execute(_LOCK_TIMEOUT)
        due = await _locked(connection, "due_time_tables", most)
        if len(due) < most:
            due += await _locked(connection, "released_time_tables", most)
        if not due:
            return Fired()
        names += [row.name for row in due]
        return await _fire(connection, due, new_task_id)


async def _fire_singly(store: Store, new_task_id: Callable[[], TaskId]) -> Fired:
    """Fire table by table, until one times out; put that one off, so that it does not stop the others."""
    done = Fired()
    for _ in range(MOST_TABLES):
        names: list[str] = []
        try:
            fired = await _fire_some(store, new_task_id, 1, names)
        except (RowLockedError, StatementTimeoutError) as error:
            if not names:
                raise
            await _put_off_locked(store, names[0], f"a row that it needs is locked: {error}"[:256], done)
            return done
        except StoreUnavailableError:
            if not done.tables:
                raise
            return done
        if not fired.tables and not fired.put_off and not fired.left:
            break
        done.add(fired)
    return done


async def _put_off_locked(store: Store, name: str, problem: str, done: Fired) -> None:
    parameters = _putting_off({name: problem}, _PUT_OFF_LOCKED)
    await store.run(TIME_TABLES["put_off_time_tables"], parameters)
    done.put_off[name] = problem


def _putting_off(problems: Mapping[str, str], delay: timedelta) -> dict[str, Any]:
    names = sorted(problems)
    return {"names": texts(names), "problems": texts([problems[name] for name in names]), "delay": delay}


async def backfill(
    store: Store,
    table: str,
    instants: Sequence[datetime],
    new_task_id: Callable[[], TaskId],
    nominal: Mapping[datetime, datetime],
) -> tuple[int, set[str]]:
    """Write the tasks of past ticks, all or none; return how many were not there yet, and their lambdas.

    `nominal` has the ticks of the rhythm itself, of those that a calendar moved.

    Raises:
        StoreUnavailableError: the outcome is unknown; asked again, it writes what is missing.
    """
    written: list[tuple[TaskId, str]] = []
    async with store.connection() as connection, connection.transaction():
        # two backfills at a time could wait for each other's keys, while they hold the session of the tasks
        row = (await locked_rows(connection, [table])).get(table)
        rows = {} if row is None else {table: row}
        ((now, _),) = await fetch(connection, TIME_TABLES["time_table_clock"], {"lambda": ""})
        for start in range(0, len(instants), MOST_TASKS):
            ticks = [
                Tick(new_task_id(), table, instant, now, nominal.get(instant))
                for instant in instants[start : start + MOST_TASKS]
            ]
            written += await _write(connection, ticks, rows)
    return len(written), {name for _, name in written}


async def _fire(connection: Connection, due: list[TableRow], new_task_id: Callable[[], TaskId]) -> Fired:
    fired = Fired()
    running = await _live(connection, [row.last_task_id for row in due if row.last_task_id])
    # after the rows were locked: a change of a calendar waits for them, or was seen by this statement
    calendars = await read_calendars(connection, [row.calendar for row in due])
    plans = await _planned(due, running, fired, calendars)
    if ended := await _cancel(connection, [row for row in due if _cancels(plans, row)], fired):
        again = [row for row in due if row.last_task_id in ended]
        plans |= await _planned(again, running - ended, fired, calendars)
        # an end has locked sessions, graphs and resources: to lock further sessions now could be a deadlock
        fired.left = len([plans.pop(row.name) for row in due if row.session_key and row.name in plans])
    ticks = {
        row.name: _ticks(row, plans[row.name], new_task_id, with_calendar(row.rhythm, calendars))
        for row in due
        if row.name in plans
    }
    rows = {row.name: row for row in due}
    written = dict(await _write(connection, [tick for each in ticks.values() for tick in each], rows))
    await _move_on(connection, [row for row in due if row.name in plans], plans, ticks, written)
    if fired.put_off:
        parameters = _putting_off(fired.put_off, _PUT_OFF)
        await fetch(connection, TIME_TABLES["put_off_time_tables"], parameters)
    fired.tables, fired.tasks, fired.lambdas = len(plans), len(written), set(written.values())
    fired.left_out = sorted(name for name, plan in plans.items() if plan.left_out)
    return fired


async def _planned(
    due: Sequence[TableRow], running: Collection[TaskId], fired: Fired, calendars: Mapping[str, Calendar]
) -> dict[str, TickPlan]:
    """Plan them; in a thread if there are calendars: a tick that is years ahead computes the holidays of each year."""
    if calendars:
        return await asyncio.to_thread(_plan_all, due, running, fired, calendars)
    return _plan_all(due, running, fired, calendars)


def _plan_all(
    due: Sequence[TableRow], running: Collection[TaskId], fired: Fired, calendars: Mapping[str, Calendar]
) -> dict[str, TickPlan]:
    """Plan as many tables as one transaction can compute and write, one at least."""
    plans: dict[str, TickPlan] = {}
    tasks, size, computed = 0, 0, 0
    end = seconds_since_boot() + LONGEST_PLANNING.total_seconds()
    for row in due:
        if plans and (computed >= MOST_COMPUTED or seconds_since_boot() >= end):
            break
        room = MOST_TASKS - tasks
        if row.payload_bytes:
            room = min(room, (MOST_BYTES - size) // row.payload_bytes)
        if room < 1 and plans:
            break
        try:
            plan = plan_ticks(
                row.state(calendars),
                row.read_at,
                running=row.last_task_id in running,
                most=max(1, room),
            )
        except Exception as error:
            # one bad table must not stop the others
            log.exception("ticks of a time table cannot be computed", time_table=row.name)
            fired.put_off[row.name] = f"{type(error).__name__}: {error}"[:256]
            continue
        plans[row.name] = plan
        computed += plan.computed
        tasks += len(plan.fire)
        size += len(plan.fire) * row.payload_bytes
    return plans


def _cancels(plans: dict[str, TickPlan], row: TableRow) -> bool:
    return row.name in plans and plans[row.name].cancel


async def _live(connection: Connection, task_ids: Sequence[TaskId]) -> set[TaskId]:
    if not task_ids:
        return set()
    return {row[0] for row in await fetch(connection, READS["live"], {"task_ids": uuids(sorted(task_ids))})}


async def _cancel(connection: Connection, rows: Sequence[TableRow], fired: Fired) -> set[TaskId]:
    """Cancel the last tasks of these; return those that ended by it, because nobody ran them."""
    task_ids = sorted(row.last_task_id for row in rows if row.last_task_id)
    if not task_ids:
        return set()
    parameters: dict[str, Any] = {"task_ids": uuids(task_ids), "by": None}
    ended = await fetch(connection, TRANSITIONS["cancel"], parameters | {"only_if_requested": False})
    asked = await fetch(connection, TRANSITIONS["request_cancel"], parameters | {"kill": False})
    fired.cancelled = len(ended) + len(asked)
    return set(task_ids) - await _live(connection, task_ids)


def _ticks(row: TableRow, plan: TickPlan, new_task_id: Callable[[], TaskId], rhythm: Rhythm) -> list[Tick]:
    jitter = row.jitter
    return [
        Tick(
            new_task_id(),
            row.name,
            tick_at,
            row.read_at if tick_at == row.buffered_tick_at else fire_at(row.name, tick_at, jitter),
            nominal_at(rhythm, tick_at),
        )
        for tick_at in plan.fire
    ]


async def _write(
    connection: Connection, ticks: Sequence[Tick], rows: Mapping[str, TableRow]
) -> list[tuple[TaskId, str]]:
    """Write the tasks of ticks that have none yet; return their ids and lambdas.

    `rows` has the time tables, locked. Keys are taken before sessions are locked, as `schedule` does.
    """
    in_sessions = {name for name, row in rows.items() if row.session_key is not None}
    written: list[tuple[TaskId, str]] = []
    for statement, has_session in (("tick", False), ("tick_in_sessions", True)):
        ordered = sorted(
            (tick for tick in ticks if (tick.table in in_sessions) is has_session),
            key=lambda tick: tick.task_id,
        )
        if not ordered:
            continue
        found = await fetch(
            connection,
            TRANSITIONS[statement],
            {
                "task_ids": uuids([tick.task_id for tick in ordered]),
                "tables": texts([tick.table for tick in ordered]),
                "instants": timestamps([tick.tick_at for tick in ordered]),
                "due_at": timestamps([tick.due_at for tick in ordered]),
                "keys": texts([tick.key for tick in ordered]),
            },
        )
        written += [(task_id, name) for task_id, name in found]
    if attributed := {name: read_attributes(row.attributes) for name, row in rows.items() if row.attributes}:
        tables = {tick.task_id: tick.table for tick in ticks}
        await attributes.keep_of(
            connection, {task_id: attributed.get(tables[task_id], ()) for task_id, _ in written}
        )
    return written


async def _move_on(
    connection: Connection,
    rows: Sequence[TableRow],
    plans: dict[str, TickPlan],
    ticks: dict[str, list[Tick]],
    written: Collection[TaskId],
) -> None:
    ordered = sorted(rows, key=lambda row: row.name)
    chosen = [plans[row.name] for row in ordered]
    last = [
        next((tick for tick in reversed(ticks[row.name]) if tick.task_id in written), None) for row in ordered
    ]
    next_fires = [
        plan.next_tick_at and fire_at(row.name, plan.next_tick_at, row.jitter)
        for row, plan in zip(ordered, chosen, strict=True)
    ]
    await fetch(
        connection,
        TIME_TABLES["move_time_tables_on"],
        {
            "names": texts([row.name for row in ordered]),
            "next_ticks": timestamps([plan.next_tick_at for plan in chosen]),
            "next_fires": timestamps(next_fires),
            "buffered": timestamps([plan.buffered for plan in chosen]),
            "last_ticks": timestamps([tick and tick.tick_at for tick in last]),
            "last_tasks": uuids([tick.task_id if tick else _NO_TASK for tick in last]),
        },
    )


async def _locked(connection: Connection, statement: str, most: int) -> list[TableRow]:
    return await fetch_as(named(TableRow), connection, TIME_TABLES[statement], {"limit": most})
