"""Fills a store as days of work leaves it: most tasks have ended, some wait, some failed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from benchmarks.store.fill import (
    GRAPHS,
    SESSIONS,
    connect,
    lambda_name,
    make_lambdas,
    run,
    run_in_parts,
    task_id_ago,
)
from duly_core.upkeep.partitions import first_id

DAYS = 6
"""Less than tasks are kept."""
HOSTS = 100
"""`bench-host-1` and so on have the tasks that run."""
_AHEAD = 2
"""Days for which partitions are made, as Store Consumers do."""
_MILLISECONDS = DAYS * 86_400_000
_BUSY = 1_000
"""Lambdas that have due tasks."""
_PAUSED = 3
_BLOCKED = 100
"""Sessions."""

_AGO = f"((%(count)s - n)::int8 * {_MILLISECONDS} / %(count)s)"
_AT = f"(now() - {_AGO} * interval '1 ms')"
_MESSAGE = """'ValueError: order ' || n || ' has no address in region ' || chr(65 + (n / 500 % 25)::int)"""

_ENDED = f"""
with made as materialized (
    select n, {task_id_ago(_AGO, "h")} as task_id, {lambda_name("1 + (n::int8 * 7919) % %(lambdas)s")} as lambda,
        (1 + (n / %(lambdas)s) % 4)::int2 as priority, {_AT} as at,
        case when n % 500 = 0 then 'fatal_failure' when n % 100 = 1 then 'cancelled' else 'success' end::task_status as status,
        case when n % 500 = 0 then {_MESSAGE} end as message
    from generate_series(%(first)s, %(last)s) as n cross join lateral md5(n || 'e') as h
), dead as (
    insert into dead_letter (task_id, lambda, finished_at)
    select task_id, lambda, at + interval '2 s' from made where message is not null
), attempted as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, started_at, ended_at, failure_kind, failure_message, traceback
    )
    select task_id, 1, 1, 'fatal_failure', 'bench-host-1', at, at + interval '2 s', 2, message,
        repeat('  File "app.py", line 17, in call', 20)
    from made where message is not null
), attributed as (
    insert into task_attribute (name, value, task_id)
    select pair.name, pair.value, task_id
    from made cross join lateral (
        values ('order', n::text), ('customer', (n % 1000)::text)
    ) as pair (name, value)
    where n % 50 = 0
), keyed as (
    insert into idempotency_key (lambda, key, task_id, created_at)
    select lambda, 'key-' || n, task_id, at from made where n % 100 = 7
)
insert into task (
    task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, status, started_at,
    finished_at, fence, failures, crashes, last_token, enqueued_at, claimed_at, holder, failure_kind, failure_message,
    failed_at, attributes
)
select task_id, lambda, '', priority, 1, repeat('x', 100)::bytea, at, at, status, at, at + interval '2 s', 1,
    case when message is not null then 1 else 0 end, 0, task_id, at, at, 'bench-host-' || 1 + n % {HOSTS},
    case when message is not null then 2 end, message, case when message is not null then at + interval '2 s' end,
    case when n % 50 = 0 then jsonb_build_object('order', n, 'customer', n % 1000) end
from made
"""
"""One in 500 is a dead letter, one in 100 cancelled, one in 50 has two attributes, one in 100 an idempotency key."""

_LIVE = f"""
with made as materialized (
    select n, {task_id_ago("(%(count)s - n)::int8 * 1000", "h")} as task_id, kind,
        {lambda_name("1 + (n::int8 * 7919) % case kind when 'later' then %(lambdas)s else %(busy)s end")} as lambda,
        (1 + n / 7 % 4)::int2 as priority, now() - (%(count)s - n) * interval '1 ms' as at
    from generate_series(%(first)s, %(last)s) as n cross join lateral md5(n || 'l') as h
    cross join lateral (
        select case when n % 100 < 50 then 'later' when n % 100 < 60 then 'failed' when n % 100 < 95 then 'due' else 'held' end as kind
    ) as kinds
), attempted as (
    insert into attempt (
        task_id, fence, attempt, outcome, holder, started_at, ended_at, failure_kind, failure_message, traceback
    )
    select task_id, 1, 1, 'retriable_failure', 'bench-host-1', at, at + interval '2 s', 2, {_MESSAGE},
        repeat('  File "app.py", line 17, in call', 20)
    from made where kind = 'failed'
), entity as (
    insert into task (
        task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, failure_kind,
        failure_message, failed_at
    )
    select task_id, lambda, '', priority, 1, repeat('x', 100)::bytea, at, at,
        case when kind = 'failed' then 2 end, case when kind = 'failed' then {_MESSAGE} end,
        case when kind = 'failed' then at + interval '2 s' end
    from made
)
insert into task_assoc (
    task_id, lambda, collection, priority, status, next_trigger_at, due_at, fence, failures, token, holder, claimed_at
)
select task_id, lambda, '', priority,
    case kind when 'failed' then 'retriable_failure' when 'held' then 'processing' else 'new' end::task_status,
    case kind when 'due' then at else now() + interval '1 day' + n * interval '10 ms' end,
    case kind when 'later' then now() + interval '1 day' + n * interval '10 ms' else at end,
    case when kind in ('failed', 'held') then 1 else 0 end, case when kind = 'failed' then 1 else 0 end,
    case when kind = 'held' then task_id end, case when kind = 'held' then 'bench-host-' || 1 + n % {HOSTS} || '-0' end,
    case when kind = 'held' then at end
from made
"""
"""Of 100: 50 are scheduled for the next day, 10 failed and wait for their next run, 35 are due, 5 run."""

_BLOCK = """
with chosen as (
    select key, row_number() over (order by key) as place from session order by key limit %(count)s
), failed as (
    select task_id, row_number() over (order by task_id) as place from dead_letter order by task_id limit %(count)s
)
update session set head = null, blocked_by = failed.task_id, blocked_at = now() - interval '1 hour'
from chosen join failed on failed.place = chosen.place
where session.key = chosen.key
"""
_STOP_HEADS = """
update task_assoc set status = 'waiting', next_trigger_at = 'infinity'
from session where session.key = task_assoc.session and session.blocked_at is not null and task_assoc.status = 'new'
"""

_TRENDS = f"""
insert into trend_point (
    minutes, lambda, at, scheduled, lateness, ended, dead, failed_runs, measured_at, ready, held, oldest, slots
)
select 1, case when place = 0 then '' else {lambda_name("place")} end, date_trunc('minute', now()) - minute * interval '1 min',
    100 + minute % 60, array_fill(5, array[12]), 100 + minute % 50, minute % 3, minute % 5, now(), 10, 5, interval '1 s', 1600
from generate_series(1, 1440) as minute cross join generate_series(0, 200) as place
"""
_AUDIT = """
insert into audit_event (at, actor, peer, method, outcome, request, answer)
select now() - n * interval '1 min', 'anna', '10.0.0.1', '/duly.v1.GateService/PutGate', 'OK', '{"name": "night"}', '{}'
from generate_series(10000, 1, -1) as n
"""
_GATES = f"""
insert into gate (name, kind, lambda, owner, reason, created_at)
select 'pause-' || n, 'pause', {lambda_name("n")}, 'anna', 'a vendor is away', now() from generate_series(1, {_PAUSED}) as n
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a store."""

    lambdas: int = 10_000
    tasks: int = 10_000_000
    """All of them: those that ended, `live` and those of sessions and graphs."""
    live: int = 100_000
    sessions: int = 5_000
    """Of two tasks each."""
    graphs: int = 1_000
    """Of ten nodes each."""

    @property
    def ended(self) -> int:
        """Tasks that have ended."""
        return self.tasks - self.live - 2 * self.sessions - 10 * self.graphs


def fill(dsn: str, sizes: Sizes) -> list[str]:
    """Fill a migrated, empty store; vacuumed and analyzed. Return the names of its lambdas."""
    with connect(dsn) as connection:
        _make_partitions(connection)
        names = make_lambdas(connection, sizes.lambdas)
        of_all = {
            "lambdas": sizes.lambdas,
            "busy": min(_BUSY, sizes.lambdas),
            "lambda": None,
            "due": 0,
            "claimed": 0,
        }
        run_in_parts(connection, _ENDED, sizes.ended, of_all)
        run_in_parts(connection, _LIVE, sizes.live, of_all)
        run_in_parts(connection, SESSIONS, sizes.sessions, of_all | {"name": "s-"})
        run_in_parts(connection, GRAPHS, sizes.graphs, of_all | {"name": "g-"})
        run(connection, _BLOCK, {"count": min(_BLOCKED, sizes.sessions)})
        for statement in (
            _STOP_HEADS,
            _TRENDS,
            _AUDIT,
            _GATES,
            "update gate_version set version = version + 1",
        ):
            run(connection, statement, {})
        connection.execute("vacuum (analyze)")
        return names


def _make_partitions(connection: psycopg.Connection[Any]) -> None:
    """Make those of the days: a new store has one for its first two, which would take all ids of the past."""
    connection.execute("drop table task_first, attempt_first")
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    for day in range(-DAYS - 1, _AHEAD + 1):
        begin = today + timedelta(days=day)
        bounds = [f"{begin:%Y%m%d}", first_id(begin), first_id(begin + timedelta(days=1))]
        connection.execute("select duly_add_partition(%s, %s, %s)", bounds)
