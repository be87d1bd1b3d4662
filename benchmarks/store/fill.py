"""Fills a store with waiting and finished tasks by generate_series."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

LAMBDA = "bench.store"
LAMBDA_OF_SESSIONS = "bench.session"
LAMBDA_OF_GRAPHS = "bench.graph"
READY = 2_000
"""Tasks of each kind that the statements are measured on: due, enqueued, claimed."""
DUE = 1_000
"""Of the lambdas over which the tasks are spread, the first so many have one more task, that is due."""
IN_A_SESSION = 2
IN_A_GRAPH = 10
_A_STATEMENT = 500_000
_DEAD_OR_DUE = 21

_INSERT_LAMBDAS = """
insert into lambda (name, owner, version, max_attempts, max_crashes, max_runtime, backoff_initial, backoff_factor,
    backoff_max, payload_limit, registered_at, updated_at)
select name, '', '', 10, 3, '1 h', '1 s', 2, '10 min', 1000, now(), now() from
"""
_NAMED = f"{_INSERT_LAMBDAS} unnest(%(names)s::text[]) as name"
_MANY = (
    f"{_INSERT_LAMBDAS} (select {{name}} as name from generate_series(1, %(lambdas)s) as lambda_of) as many"
)


def task_id_ago(ago: str, digits: str) -> str:
    """An id of so many milliseconds ago, with these hex digits behind the time."""
    at = f"lpad(to_hex((extract(epoch from now()) * 1000)::int8 - {ago}), 12, '0')"
    return f"({at} || '7' || substr({digits}, 1, 3) || '8' || substr({digits}, 4, 15))::uuid"


def lambda_name(number: str) -> str:
    return f"'team-' || ({number}) % 50 || '/job.' || lpad(({number})::text, 5, '0')"


_OF_ROW = f"""
cross join lateral (select 1 + (n::int8 * 7919) % %(lambdas)s as lambda_of) as numbered
cross join lateral (
    select case when %(lambdas)s = 1 then '{LAMBDA}' else {lambda_name("lambda_of")} end as lambda,
        case when %(lambdas)s = 1 then 3 else 1 + (n / %(lambdas)s) % 4 end as priority
) as queue
"""
"""Lambda and priority of row n: with one lambda it is that of the measured tasks."""

_ENTITY = """
insert into task (
    task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, session, session_order,
    session_policy, graph
)
select task_id, lambda, '', priority, 1, repeat('x', 100)::bytea, now(), now(), session, session_order, session_policy, graph
from made
"""
_MADE = (
    "null::text as session, null::int2 as session_order, null::int2 as session_policy, null::uuid as graph"
)

_PLAIN = f"""
with made as materialized (
    select n, {task_id_ago("(%(count)s - n) / 10", "h")} as task_id, lambda, priority, {_MADE}
    from generate_series(%(first)s, %(last)s) as n cross join lateral md5(n || 'w') as h {_OF_ROW}
), entity as ({_ENTITY})
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at, fence)
select task_id, lambda, '', priority, 'new', trigger_at, trigger_at, 0
from made cross join lateral (
    select case when n % %(due)s = 0 then now() - interval '1 s' else now() + interval '1 day' + n * interval '1 ms' end as trigger_at
) as trigger
"""
_FINISHED = f"""
insert into task (task_id, lambda, collection, priority, payload_encoding, payload, created_at, scheduled_at, status,
    finished_at, started_at, fence, failures, crashes, last_token)
select {task_id_ago("(%(count)s - n) / 10", "h")}, lambda, '', priority, 1, repeat('x', 100)::bytea, now(), now(),
    case when n % %(dead)s = 0 then 'fatal_failure' else 'success' end::task_status,
    now(), now(), 1, 0, 0, {task_id_ago("0", "h")}
from generate_series(%(first)s, %(last)s) as n cross join lateral md5(n || 'f') as h {_OF_ROW}
"""
_MEASURED = f"""
with made as materialized (
    select n, {task_id_ago("n / 10", "h")} as task_id, %(lambda)s as lambda, 3 as priority, {_MADE},
        case when n <= %(ready)s then 'new' when n <= 2 * %(ready)s then 'enqueued' else 'claimed' end as status
    from generate_series(1, 3 * %(ready)s) as n cross join lateral md5(n || 'm') as h
), entity as ({_ENTITY})
insert into task_assoc (
    task_id, lambda, collection, priority, status, next_trigger_at, due_at, fence, token, holder
)
select task_id, lambda, '', priority, status::task_status, case when status = 'new' then now() - interval '1 s' else now() + interval '1 day' end,
    now(), case when status = 'new' then 0 else 1 end, case when status = 'claimed' then task_id end,
    case when status = 'claimed' then 'host' end
from made
"""

_DUE = f"""
with made as materialized (
    select {task_id_ago("0", "md5(name)")} as task_id, name as lambda, 3 as priority, {_MADE} from unnest(%(names)s::text[]) as name
), entity as ({_ENTITY})
insert into task_assoc (task_id, lambda, collection, priority, status, next_trigger_at, due_at)
select task_id, lambda, '', priority, 'new', now() - interval '1 s', now() from made
"""

SESSIONS = f"""
with sized as materialized (
    select n, lambda, priority, case when strpos(lambda, '/') > 0 then split_part(lambda, '/', 1) else '' end || '/' || %(name)s || n as session
    from generate_series(%(first)s, %(last)s) as n {_OF_ROW}
), made as materialized (
    select sized.n, seq, {task_id_ago("(%(count)s - n) / 10", "h")} as task_id, coalesce(%(lambda)s, sized.lambda) as lambda,
        priority, session, 1::int2 as session_order, 1::int2 as session_policy, null::uuid as graph
    from sized cross join generate_series(1, {IN_A_SESSION}) as seq cross join lateral md5(n || %(name)s || seq) as h
), entity as ({_ENTITY}), line as (
    insert into session (key, head, length, last_seq)
    select session, task_id, {IN_A_SESSION}, {IN_A_SESSION} from made where seq = 1
)
insert into task_assoc (
    task_id, lambda, collection, priority, status, next_trigger_at, due_at, fence, token, holder, session, session_rank,
    session_seq, session_policy
)
select task_id, lambda, '', priority, status::task_status,
    case when status = 'waiting' then 'infinity' when n <= %(due)s then now() - interval '1 s' else now() + interval '1 day' + n * interval '1 ms' end,
    now(), case when status = 'claimed' then 1 else 0 end, case when status = 'claimed' then task_id end,
    case when status = 'claimed' then 'host' end, session, '-infinity', seq, session_policy
from made cross join lateral (
    select case when seq > 1 then 'waiting' when n > %(due)s and n <= %(due)s + %(claimed)s then 'claimed' else 'new' end as status
) as state
"""
"""The first %(due)s have a head that is due, the next %(claimed)s one that runs, the others one that is due later."""

GRAPHS = f"""
with made as materialized (
    select n, place, {task_id_ago("(%(count)s - n) / 10", "h")} as task_id, coalesce(%(lambda)s, queue.lambda) as lambda, priority,
        null::text as session, null::int2 as session_order, null::int2 as session_policy,
        {task_id_ago("(%(count)s - n) / 10", "md5(n || %(name)s)")} as graph
    from generate_series(%(first)s, %(last)s) as n {_OF_ROW}
    cross join generate_series(1, {IN_A_GRAPH}) as place cross join lateral md5(n || %(name)s || place) as h
), placed as materialized (
    select *, lag(task_id) over (partition by graph order by place) as before from made
), entity as ({_ENTITY}), whole as (
    insert into graph (graph_id, name, digest, created_at, total, open)
    select graph, 'bench', ''::bytea, now(), {IN_A_GRAPH}, {IN_A_GRAPH} from made where place = 1
), node as (
    insert into graph_node (
        graph_id, label, task_id, lambda, place, any_of, ignore_failure, handled, waits_for, conditions
    )
    select graph, 'node-' || place, task_id, lambda, place - 1, false, false, 0,
        array_remove(array[before], null), case when place = 1 then '{{}}' else '{{1}}' end::int2[]
    from placed
), edge as (
    insert into graph_edge (from_task, to_task, fires_on) select before, task_id, 1 from placed where place > 1
)
insert into task_assoc (
    task_id, lambda, collection, priority, status, next_trigger_at, due_at, fence, token, holder, graph, open_edges, any_of
)
select task_id, lambda, '', priority, status::task_status,
    case when status = 'waiting' then 'infinity' else now() + interval '1 day' + n * interval '1 ms' end,
    now(), case when status = 'claimed' then 1 else 0 end, case when status = 'claimed' then task_id end,
    case when status = 'claimed' then 'host' end, graph, case when place = 1 then 0 else 1 end, false
from made cross join lateral (
    select case when place > 1 then 'waiting' when n <= %(claimed)s then 'claimed' else 'new' end as status
) as state
"""
"""Chains: of the first %(claimed)s the first node runs, of the others it is due later."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Over what the waiting tasks are spread."""

    lambdas: int = 1
    """One: that of the measured tasks; more: others, with four priorities."""
    sessions: int = 0
    """Of IN_A_SESSION tasks."""
    graphs: int = 0
    """Of IN_A_GRAPH nodes, one after the other."""

    def fitting(self, waiting: int, most: int) -> "Spread":
        """For a store with fewer tasks than the largest: as many lambdas, a fitting part of the sessions and graphs."""
        most = max(most, waiting)
        return Spread(self.lambdas, self.sessions * waiting // most, self.graphs * waiting // most)

    @property
    def tasks(self) -> int:
        """Of sessions and graphs."""
        return IN_A_SESSION * self.sessions + IN_A_GRAPH * self.graphs


ONE_LAMBDA = Spread()


@dataclass(frozen=True, slots=True)
class Filled:
    """Ids by the state in which the tasks are, ascending."""

    enqueued: list[UUID]
    claimed: list[UUID]
    of_sessions: list[UUID]
    """Claimed heads of sessions in which one more task waits."""
    of_graphs: list[UUID]
    """Claimed first nodes."""
    lambdas: list[str]
    """Those over which the tasks are spread."""


def fill(dsn: str, waiting: int, finished: int, spread: Spread = ONE_LAMBDA, *, ready: int = READY) -> Filled:
    """Fill a migrated, empty store; vacuumed and analyzed, as one that has lived for a while is.

    Beside the tasks that are measured, of which `ready` are in each state. Of the others so many wait, and so many are finished.
    """
    with connect(dsn) as connection:
        names = [LAMBDA, LAMBDA_OF_SESSIONS, LAMBDA_OF_GRAPHS]
        run(connection, _NAMED, {"names": names})
        lambdas = make_lambdas(connection, spread.lambdas) if spread.lambdas > 1 else [LAMBDA]
        never = max(waiting, finished) + 1
        of_all = {"lambdas": spread.lambdas, "due": never, "dead": never}
        run_in_parts(connection, _FINISHED, finished, of_all)
        run_in_parts(connection, _PLAIN, waiting - spread.tasks, of_all)
        none = of_all | {"lambda": None, "due": 0, "claimed": 0}
        run_in_parts(connection, SESSIONS, spread.sessions, none | {"name": "s-"})
        run_in_parts(connection, GRAPHS, spread.graphs, none | {"name": "g-"})
        run(connection, _MEASURED, {"lambda": LAMBDA, "ready": ready})
        if spread.lambdas > 1:
            run(connection, _DUE, {"names": lambdas[:DUE]})
        of_sessions = {"lambdas": 1, "lambda": LAMBDA_OF_SESSIONS, "name": "m-"}
        run_in_parts(connection, SESSIONS, 2 * ready, of_sessions | {"due": ready, "claimed": ready})
        of_graphs = {"lambdas": 1, "lambda": LAMBDA_OF_GRAPHS, "name": "m-"}
        run_in_parts(connection, GRAPHS, ready, of_graphs | {"claimed": ready})
        _tidy(connection)
        return Filled(
            _ids(connection, LAMBDA, "enqueued"),
            _ids(connection, LAMBDA, "claimed"),
            _ids(connection, LAMBDA_OF_SESSIONS, "claimed"),
            _ids(connection, LAMBDA_OF_GRAPHS, "claimed"),
            lambdas,
        )


def fill_lambdas(dsn: str, lambdas: int, live: int, ended: int) -> None:
    """Fill a migrated, empty store with tasks of many lambdas: one in 21 of the live ones is due, one in 21 of the ended a dead letter."""
    with connect(dsn) as connection:
        make_lambdas(connection, lambdas)
        of_all = {"lambdas": lambdas, "due": _DEAD_OR_DUE, "dead": _DEAD_OR_DUE}
        run_in_parts(connection, _FINISHED, ended, of_all)
        run_in_parts(connection, _PLAIN, live, of_all)
        _tidy(connection)
        ((queues,),) = connection.execute(
            "select count(*) from (select distinct lambda, priority from task_assoc) as queue"
        )
        if queues != min(4 * lambdas, live):
            message = f"the store has {queues:,} queues, not {4 * lambdas:,}"
            raise RuntimeError(message)


def connect(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor)


def make_lambdas(connection: psycopg.Connection[Any], count: int) -> list[str]:
    run(connection, _MANY.format(name=lambda_name("lambda_of")), {"lambdas": count})
    return [
        row[0] for row in connection.execute("select name from lambda where name like 'team-%' order by 1")
    ]


def run_in_parts(
    connection: psycopg.Connection[Any], statement: str, count: int, parameters: dict[str, Any]
) -> None:
    """Run it for the rows from 1 to `count`."""
    for first in range(1, count + 1, _A_STATEMENT):
        last = min(count, first + _A_STATEMENT - 1)
        run(connection, statement, parameters | {"count": count, "first": first, "last": last})


def run(connection: psycopg.Connection[Any], statement: str, parameters: dict[str, Any]) -> None:
    """Run it; a percent sign that begins no parameter is one of SQL."""
    text = statement.replace("%", "%%").replace("%%(", "%(")
    connection.execute(text.encode(), parameters)


def _tidy(connection: psycopg.Connection[Any]) -> None:
    tables = "task, task_assoc, lambda, session, graph, graph_node, graph_edge, dead_letter"
    connection.execute(f"vacuum (analyze) {tables}".encode())


def _ids(connection: psycopg.Connection[Any], name: str, status: str) -> list[UUID]:
    query = "select task_id from task_assoc where status = %s::task_status and lambda = %s order by task_id"
    return [row[0] for row in connection.execute(query, [status, name])]
