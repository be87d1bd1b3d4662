"""Fills a store with waiting and finished tasks by generate_series."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

LAMBDA = "bench.store"
READY = 2_000
"""Tasks of each kind that the statements are measured on: due, enqueued, claimed."""

_ID = "(lpad(to_hex((extract(epoch from now()) * 1000)::int8 - {ago}), 12, '0') || '7' || substr(h, 1, 3) || '8' || substr(h, 4, 15))::uuid"
_LAMBDA = """
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor,
    backoff_max, payload_limit, registered_at, updated_at)
values (%s, '', '', 10, 3, '1 h', '1 s', 2, '10 min', 1000, now(), now())
"""
_WAITING = f"""
with ids as materialized (
    select n, {_ID.format(ago="n / 10")} as task_id, case when n <= %(ready)s then 'new'
        when n <= 2 * %(ready)s then 'enqueued' when n <= 3 * %(ready)s then 'claimed' else 'new' end as status
    from generate_series(1, %(count)s) as n cross join lateral md5(n || 'w') as h
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at)
    select task_id, %(lambda)s, '', 3, 1, repeat('x', 100)::bytea, now(), now() from ids
)
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at, fence, token, holder)
select task_id, %(lambda)s, '', 3, status::task_status,
    case when n <= %(ready)s then now() - interval '1 s' else now() + interval '1 h' + n * interval '1 ms' end, now(),
    case when status = 'new' then 0 else 1 end, case when status = 'claimed' then task_id end,
    case when status = 'claimed' then 'host' end
from ids
"""
_FINISHED = f"""
insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, status,
    finished_at, started_at, fence, failures, crashes, last_token)
select {_ID.format(ago="(%(count)s - n) / 10")}, %(lambda)s, '', 3, 1, repeat('x', 100)::bytea, now(), now(), 'success',
    now(), now(), 1, 0, 0, {_ID.format(ago="0")}
from generate_series(1, %(count)s) as n cross join lateral md5(n || 'f') as h
"""


@dataclass(frozen=True, slots=True)
class Filled:
    """Ids by the state in which the tasks are, ascending."""

    enqueued: list[UUID]
    claimed: list[UUID]


def fill(dsn: str, waiting: int, finished: int) -> Filled:
    """Fill a migrated, empty store; vacuumed and analyzed, as one that has lived for a while is."""
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(_LAMBDA, [LAMBDA])
        for statement, count in ((_FINISHED, finished), (_WAITING, waiting + 3 * READY)):
            parameters: dict[str, Any] = {"count": count, "lambda": LAMBDA, "ready": READY}
            connection.execute(statement.encode(), parameters)
        connection.execute("vacuum (analyze) task, task_assoc")
        return Filled(_ids(connection, "enqueued"), _ids(connection, "claimed"))


_LAMBDAS = """
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor,
    backoff_max, payload_limit, registered_at, updated_at)
select 'team-' || n %% 50 || '/job.' || lpad(n::text, 5, '0'), '', '', 10, 3, '1 h', '1 s', 2, '10 min', 1000, now(), now()
from generate_series(1, %(lambdas)s) as n
"""
_OF_LAMBDA = "'team-' || lambda_of % 50 || '/job.' || lpad(lambda_of::text, 5, '0')"
_LIVE = f"""
with ids as materialized (
    select n, {_ID.format(ago="n / 10")} as task_id, 1 + (n::int8 * 7919) % %(lambdas)s as lambda_of
    from generate_series(%(first)s, %(last)s) as n cross join lateral md5(n || 'w') as h
), named as materialized (
    select n, task_id, {_OF_LAMBDA} as lambda, 1 + (n / %(lambdas)s) % 4 as priority from ids
), entity as (
    insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at)
    select task_id, lambda, '', priority, 1, repeat('x', 100)::bytea, now(), now() from named
)
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at, fence)
select task_id, lambda, '', priority, 'new', trigger_at, trigger_at, 0
from named cross join lateral (
    select case when n % 21 = 0 then now() - interval '1 s' else now() + interval '2 h' + n * interval '1 ms' end as trigger_at
) as trigger
""".replace("%", "%%").replace("%%(", "%(")
_ENDED = f"""
insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, status,
    finished_at, started_at, fence, failures, crashes, last_token)
select {_ID.format(ago="(%(last)s - n) / 10")}, {_OF_LAMBDA}, '', 1 + (n / %(lambdas)s) % 4, 1, repeat('x', 100)::bytea, now(), now(),
    case when n % 21 = 0 then 'fatal_failure' else 'success' end::task_status, now(), now(), 1, 0, 0, {_ID.format(ago="0")}
from generate_series(%(first)s, %(last)s) as n cross join lateral md5(n || 'f') as h
cross join lateral (select 1 + (n::int8 * 7919) % %(lambdas)s as lambda_of) as of_lambda
""".replace("%", "%%").replace("%%(", "%(")
_A_STATEMENT = 500_000


def fill_lambdas(dsn: str, lambdas: int, live: int, ended: int) -> None:
    """Fill a migrated, empty store with tasks of many lambdas: one in 21 of the live ones is due, one in 21 of the ended a dead letter."""
    with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(_LAMBDAS.encode(), {"lambdas": lambdas})
        for statement, count in ((_ENDED, ended), (_LIVE, live)):
            for first in range(1, count + 1, _A_STATEMENT):
                last = min(count, first + _A_STATEMENT - 1)
                connection.execute(statement.encode(), {"lambdas": lambdas, "first": first, "last": last})
        connection.execute("vacuum (analyze) task, task_assoc, lambda")
        ((queues,),) = connection.execute(
            "select count(*) from (select distinct lambda, priority from task_assoc) as queue"
        )
        if queues != min(4 * lambdas, live):
            message = f"the store has {queues:,} queues, not {4 * lambdas:,}"
            raise RuntimeError(message)


def _ids(connection: psycopg.Connection[Any], status: str) -> list[UUID]:
    query = "select task_id from task_assoc where status = %s::task_status order by task_id"
    return [row[0] for row in connection.execute(query, [status])]
