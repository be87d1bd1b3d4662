"""The database's own record of every write of a task's state (`audit.sql`), and how the tables stand at the end."""

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from duly_core.process.clock import since_boot_ns
from duly_core.tasks.lifecycle import FINAL
from tests.chaos.history import (
    EdgeRow,
    EventRow,
    FinalRow,
    GraphRow,
    NodeRow,
    PassedOver,
    Sample,
    SessionRow,
    StaleWrite,
    TickRow,
    TimeTableRow,
    Transition,
    UseRow,
)

_INSTALL = Path(__file__).with_name("audit.sql")

_READ = """
select sequence, task_id::text, entity, (extract(epoch from at) * 1000000)::int8 * 1000 as wall_ns, txid,
    application || '/' || backend as application, status_before as before, status as after,
    coalesce(token_before::text, '') as token_before, coalesce(token::text, '') as token,
    coalesce(last_token::text, '') as last_token, coalesce(fence_before, 0) as fence_before,
    coalesce(fence, fence_before, 0) as fence, coalesce(failures_before, 0) as failures_before,
    coalesce(failures, failures_before, 0) as failures, coalesce(crashes_before, 0) as crashes_before,
    coalesce(crashes, crashes_before, 0) as crashes,
    case when isfinite(trigger_before_at) then (extract(epoch from trigger_before_at - store_at) * 1000000)::int8 * 1000
        end as trigger_before_in_ns,
    case when isfinite(trigger_at) then (extract(epoch from trigger_at - store_at) * 1000000)::int8 * 1000
        end as trigger_in_ns,
    (extract(epoch from due_at - store_at) * 1000000)::int8 * 1000 as due_in_ns,
    (extract(epoch from due_at) * 1000000)::int8 * 1000 as due_at_ns,
    coalesce(cancel_before, false) as cancel_requested_before, coalesce(cancel, false) as cancel_requested,
    coalesce(session, '') as session, coalesce(session_seq, 0) as session_seq, coalesce(session_policy, 0) as session_policy,
    coalesce(priority, 0) as priority, coalesce(open_edges_before, 0) as open_edges_before,
    coalesce(open_edges, open_edges_before, 0) as open_edges, coalesce(doom, 0) as doom,
    coalesce((
        select string_agg(name || '/' || key || '=' || weight, ' ' order by name, key)
        from jsonb_to_recordset(resources) as need (name text, key text, weight integer)
    ), '') as resources, coalesce(parked_on, '') as parked_on, coalesce(line, '') as line
from chaos_audit order by sequence
"""

_FINAL = """
select coalesce(task.task_id, assoc.task_id)::text, coalesce(task.status::text, ''),
    coalesce(assoc.status::text, ''), coalesce(task.fence, assoc.fence, 0),
    coalesce(task.failures, assoc.failures, 0), coalesce(task.crashes, assoc.crashes, 0),
    coalesce(task.failure_kind, 0)
from task full join task_assoc as assoc using (task_id)
"""

_UNTRIGGERED = """
select task_id || ' ' || status || ' is looked at next ' || coalesce(next_trigger_at::text, 'never')
from task_assoc
where next_trigger_at is null or not isfinite(next_trigger_at) and status <> 'waiting'
    or isfinite(next_trigger_at) and next_trigger_at > greatest(due_at, duly_now()) + %(horizon)s
        and parked_on is distinct from 'event:'  -- its callback says how long it waits
"""

_SESSIONS = (
    "select key, length, coalesce(head::text, ''), coalesce(blocked_by::text, '') from session order by key"
)

_GRAPHS = """
select graph_id::text, total, open, succeeded, failed, skipped, cancelled, finished_at is not null, cancel_requested
from graph order by graph_id
"""
_NODES = "select task_id::text, graph_id::text, label, any_of from graph_node order by graph_id, place"
_EDGES = "select from_task::text, to_task::text, fires_on from graph_edge order by to_task, from_task"

_TIME_TABLES = """
select name, every_us * 1000, (floor(created_us / every_us) + 1)::int8 * every_us * 1000, next_us * 1000, overlap,
    calendar is not null, coalesce(on_closed = 2, false), case when business_hours then hours else '{}' end
from (
    select time_table.name, (extract(epoch from every) * 1000000)::int8 as every_us,
        extract(epoch from time_table.created_at) * 1000000 as created_us,
        (extract(epoch from next_tick_at) * 1000000)::int8 as next_us, overlap,
        time_table.calendar, on_closed, business_hours, calendar.hours
    from time_table left join calendar on calendar.name = time_table.calendar
) as in_us
order by name
"""

_TICKS = """
select task_id::text, time_table, (extract(epoch from scheduled_at) * 1000000)::int8 * 1000
from task where time_table is not null order by time_table, scheduled_at
"""

_USES = """
select name, coalesce(max(used), 0), coalesce(max(held), 0)
from (
    select resource || '/' || key as name, used, null::int8 as held from resource_use
    union all
    select took.name || '/' || took.key, null, sum(took.weight)
    from task_assoc as assoc cross join jsonb_to_recordset(assoc.taken) as took (name text, key text, weight int4)
    group by took.name, took.key
) as known
group by name order by name
"""

_PASSED_OVER = "select sequence, txid, name, waits from chaos_passed_over order by sequence"

_EVENTS = """
select substr(key, strpos(key, '/') + 1), convert_from(value, 'UTF8') from event where event_id <> '1' order by key, seq
"""
"""Those of addresses; the id of those that clients send is 1."""

_STALE_WRITES = """
select (extract(epoch from at) * 1000000)::int8 * 1000, written, before, after from chaos_stale order by number limit 100
"""
_LONGEST_CHANGE = 500

_COUNTS = """
select (select count(*) from task_assoc),
    (select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid())
"""


STALE_USER = "chaos_stale"
"""Whoever writes as this user writes for calls whose token's claim is over."""
_STALE_PASSWORD = "only-for-chaos"
_MAKE_STALE_USER = f"""
do $$
begin
    create role {STALE_USER} superuser login password '{_STALE_PASSWORD}';
exception when duplicate_object or unique_violation then null;
end
$$
"""


def install(dsn: str) -> None:
    """Begin to record, in a database that has the schema and no tasks yet."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_INSTALL.read_text(encoding="utf-8"))
        connection.execute(_MAKE_STALE_USER)  # it is the server's: another database may have made it


def as_stale_user(dsn: str) -> str:
    """The same address for the user of stale calls."""
    return make_conninfo(dsn, user=STALE_USER, password=_STALE_PASSWORD)


def boot_minus_wall_ns() -> int:
    """What turns the host's wall clock into its time since boot; measured in the smallest of a few gaps."""
    looks = []
    for _ in range(9):
        before = since_boot_ns()
        wall = time.time_ns()
        after = since_boot_ns()
        looks.append((after - before, (before + after) // 2 - wall))
    return min(looks)[1]


def read_transitions(dsn: str, boot_minus_wall: int) -> tuple[Transition, ...]:
    """Every transition so far, in the order of their sequence.

    `boot_minus_wall`: as `boot_minus_wall_ns` on the host of the server.
    """
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        rows = connection.execute(_READ).fetchall()
    return _merged(_transition(row, boot_minus_wall) for row in rows)


def read_final_rows(dsn: str) -> tuple[FinalRow, ...]:
    """How every task stands."""
    with psycopg.connect(dsn) as connection:
        return tuple(FinalRow(*row) for row in connection.execute(_FINAL))


def read_sessions(dsn: str) -> tuple[SessionRow, ...]:
    """The sessions that are in the tables."""
    with psycopg.connect(dsn) as connection:
        return tuple(SessionRow(*row) for row in connection.execute(_SESSIONS))


def read_graphs(
    dsn: str,
) -> tuple[tuple[GraphRow, ...], tuple[NodeRow, ...], tuple[EdgeRow, ...]]:
    """The graphs that are in the tables, their nodes, and their edges."""
    with psycopg.connect(dsn) as connection:
        return (
            tuple(GraphRow(*row) for row in connection.execute(_GRAPHS)),
            tuple(NodeRow(*row) for row in connection.execute(_NODES)),
            tuple(EdgeRow(*row) for row in connection.execute(_EDGES)),
        )


def read_ticks(dsn: str) -> tuple[tuple[TimeTableRow, ...], tuple[TickRow, ...]]:
    """The time tables, which all have an interval, and the tasks of their ticks."""
    with psycopg.connect(dsn) as connection:
        return (
            tuple(
                TimeTableRow(*row, open_minutes=tuple(minute_of(line) for line in hours))
                for *row, hours in connection.execute(_TIME_TABLES)
            ),
            tuple(TickRow(*row) for row in connection.execute(_TICKS)),
        )


def minute_of(hours: str) -> int:
    """Return the minute of the day of business hours that are one minute long, each day."""
    days, begin, end = re.fullmatch(r"(\S+) (\d\d:\d\d)-(\d\d:\d\d)", hours).groups()  # type: ignore[union-attr]
    first, last = (60 * int(each[:2]) + int(each[3:]) for each in (begin, end))
    assert (days, last) == ("MON-SUN", first + 1), hours
    return first


def read_uses(dsn: str) -> tuple[UseRow, ...]:
    """What is written of each resource."""
    with psycopg.connect(dsn) as connection:
        return tuple(UseRow(*row) for row in connection.execute(_USES))


def read_passed_over(dsn: str) -> tuple[PassedOver, ...]:
    """The marks of resources of which a task that fits was passed over."""
    with psycopg.connect(dsn) as connection:
        return tuple(PassedOver(*row) for row in connection.execute(_PASSED_OVER))


def read_events(dsn: str) -> tuple[EventRow, ...]:
    """The events of addresses that are kept."""
    with psycopg.connect(dsn) as connection:
        return tuple(EventRow(*row) for row in connection.execute(_EVENTS))


def read_stale_writes(dsn: str, boot_minus_wall: int) -> tuple[StaleWrite, ...]:
    """What was written for calls whose token's claim was over."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(_STALE_WRITES).fetchall()
    return tuple(
        StaleWrite(wall_ns + boot_minus_wall, written, _task_of(before, after), _changed(before, after))
        for wall_ns, written, before, after in rows
    )


def _task_of(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    return str((after or before or {}).get("task_id") or "")


def _changed(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    old, new = before or {}, after or {}
    return ", ".join(
        f"{name} {old.get(name)} -> {new.get(name)}"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name)
    )[:_LONGEST_CHANGE]


def sample(connection: psycopg.Connection[Any], horizon: timedelta, processes: int = 0) -> Sample:
    """Look at the running system. `horizon`: the farthest that a next trigger may be from now, or from the due time."""
    at_ns = since_boot_ns()
    untriggered = tuple(row[0] for row in connection.execute(_UNTRIGGERED, {"horizon": horizon}))
    live, connections = connection.execute(_COUNTS).fetchone() or (0, 0)
    return Sample(at_ns, untriggered, live, connections, processes)


def _transition(row: dict[str, Any], boot_minus_wall: int) -> tuple[bool, Transition]:
    entity = row.pop("entity")
    return entity, Transition(at_ns=row.pop("wall_ns") + boot_minus_wall, **row)


def _merged(written: Iterable[tuple[bool, Transition]]) -> tuple[Transition, ...]:
    """Make one transition of the two rows that a move to or from an end writes in one transaction."""
    kept: dict[int, Transition] = {}
    assocs: dict[tuple[int, str], int] = {}
    entities: dict[tuple[int, str], int] = {}
    for entity, transition in written:
        key = transition.txid, transition.task_id
        mine, others = (entities, assocs) if entity else (assocs, entities)
        other = kept.get(others.get(key, -1))
        merged = None
        if other is not None:
            merged = _end(other, transition) if entity else _end(transition, other)
        if merged is None or other is None:
            kept[transition.sequence] = transition
            mine[key] = transition.sequence
        else:
            kept[other.sequence] = merged
            del others[key]
    return tuple(sorted(kept.values(), key=lambda transition: transition.sequence))


def _end(assoc: Transition, entity: Transition) -> Transition | None:
    """Of a deleted assoc and an entity that ended, or of an entity that lives again and its new assoc."""
    if not assoc.after and not entity.before and entity.after in FINAL:
        return replace(
            assoc,
            after=entity.after,
            last_token=entity.last_token,
            fence=entity.fence,
            failures=entity.failures,
            crashes=entity.crashes,
        )
    if not assoc.before and entity.before in FINAL and not entity.after:
        return replace(
            assoc,
            before=entity.before,
            fence_before=entity.fence_before,
            failures_before=entity.failures_before,
            crashes_before=entity.crashes_before,
        )
    return None
