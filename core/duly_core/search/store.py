"""Search the store: each query reads a bounded number of rows, by an index or of a table that is small.

Their values are literals, so Postgres plans each for what it asks, as those of lists.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duly_core.access.grants import Scope
from duly_core.lambdas.names import base_name
from duly_core.lambdas.patterns import to_regex
from duly_core.postgres.pool import Store
from duly_core.search.rules import IdPart
from duly_core.tasks import attributes
from duly_core.tasks.causes import Cause, cause_of
from duly_core.tasks.scope import graph_condition, scope_condition, scope_parameters
from duly_core.tasks.store import TaskRow, select_text

MOST_READ = 10_000
"""Ids that are compared by their end: of the newest tasks, of live ones, and of dead letters, each."""
_MOST_GRAPHS = 2_000
"""The newest, which are compared by name and by the end of their id."""
_MOST_LETTERS = 1_000
"""The newest dead letters, which are compared by cause, as those of the incident board."""
_MOST_QUEUES = 20_000
"""In which a key is looked for."""
_MOST_NAMESPACES = 200

Query = tuple[str, Mapping[str, Any]]
"""A query and its parameters."""

_ENDS_SO = "right(encode(uuid_send({key}), 'hex'), length(%(end)s)) = %(end)s"
_STATUS = """left join lateral (
        select task_assoc.status from task_assoc where task_assoc.task_id = task.task_id limit 1
    ) as assoc on true"""
_COLUMNS = "task.task_id, task.lambda, coalesce(assoc.status, task.status)::text as status, task.created_at"
_OWN_COLUMNS = "task.task_id, task.lambda, task.status, task.created_at"


def tasks_by_begin(part: IdPart, scope: Scope | None, limit: int) -> Query:
    """Return the query for tasks whose id begins so, the newest first."""
    found = ["task.task_id >= %(lowest)s", "task.task_id <= %(highest)s"]
    ends = [_ENDS_SO.format(key="task.task_id")] if part.end else []
    query = f"""
select {_COLUMNS}
from (
    select {_OWN_COLUMNS}
    from (
        select {_OWN_COLUMNS}, task.scheduled_by
        from task
        where {" and ".join(found)}
        order by task.task_id desc
        limit %(most)s
    ) as task
    where {" and ".join([*ends, _scoped(scope)])}
    order by task.task_id desc
    limit %(limit)s
) as task {_STATUS}
order by task.task_id desc"""  # noqa: S608 (the names are our own)
    parameters = {"lowest": part.lowest, "highest": part.highest, "end": part.end, "most": MOST_READ}
    return query, parameters | {"limit": limit} | scope_parameters(scope)


def tasks_by_end(end: str, scope: Scope | None, limit: int) -> Query:
    """Return the query for tasks whose id ends so: of the newest, of live ones, and of dead letters, with the newest ids."""
    read = " union ".join(
        f"""(
        select newest.task_id
        from (select {table}.task_id from {table} order by {table}.task_id desc limit %(most)s) as newest
        where {_ENDS_SO.format(key="newest.task_id")}
    )"""  # noqa: S608 (the names are our own)
        for table in ("task", "task_assoc", "dead_letter")
    )
    query = f"""
select {_COLUMNS}
from ({read}) as matching
cross join lateral (
    select {_OWN_COLUMNS}, task.scheduled_by from task where task.task_id = matching.task_id limit 1
) as task {_STATUS}
where {_scoped(scope)}
order by task.task_id desc
limit %(limit)s"""  # noqa: S608 (the names are our own)
    return query, {"end": end, "most": MOST_READ, "limit": limit} | scope_parameters(scope)


def tasks_by_key(table: str, key: str, scope: Scope | None, limit: int) -> Query:
    """Return the query for tasks with a key, of any lambda: `table` is `idempotency_key` or `unique_key`."""
    query = f"""
select {_COLUMNS}
from (select lambda.name from lambda limit {_MOST_QUEUES}) as queue
cross join lateral (
    select known.task_id from {table} as known where known.lambda = queue.name and known.key = %(key)s limit 1
) as known
cross join lateral (
    select {_OWN_COLUMNS}, task.scheduled_by from task where task.task_id = known.task_id limit 1
) as task {_STATUS}
where {_scoped(scope)}
limit %(limit)s"""  # noqa: S608 (the names are our own)
    return query, {"key": key, "limit": limit} | scope_parameters(scope)


def tasks_by_attribute(name: str, value: str, scope: Scope | None, limit: int) -> Query:
    """Return the query for tasks with an attribute, the newest first."""
    query = f"""
select {_COLUMNS}
from (
    {attributes.entries_query("name", "value", None)}
) as found
cross join lateral (
    select {_OWN_COLUMNS}, task.scheduled_by from task where task.task_id = found.task_id limit 1
) as task {_STATUS}
where {_scoped(scope)}
order by found.task_id desc
limit %(limit)s"""  # noqa: S608 (the names are our own)
    parameters = {"name": name, "value": value, "most": MOST_READ, "limit": limit}
    return query, parameters | attributes.bounds(None) | scope_parameters(scope)


def lambdas_by_name(text: str, scope: Scope | None, limit: int) -> Query:
    """Return the query for lambdas with a part of their name: those that begin with it first."""
    seen = "true" if scope is None else "lambda.name ~ %(scope_reads)s"
    query = f"""
select lambda.name, lambda.owner
from lambda
where strpos(lambda.name, %(text)s) > 0 and strpos(lambda.name, '@') = 0 and {seen}
order by lambda.name <> %(text)s, not starts_with(lambda.name, %(text)s), lambda.name
limit %(limit)s"""  # noqa: S608 (the names are our own)
    return query, {"text": text.lower(), "limit": limit} | _reads(scope)


def hosts_by_name(text: str, scope: Scope | None, limit: int) -> Query:
    """Return the query for hosts with a part of their name or id: those that reported last first."""
    seen = (
        "true"
        if scope is None
        else """exists (
        select from host_lambda as served where served.host_id = host.host_id and served.lambda ~ %(scope_reads)s
    )"""
    )
    query = f"""
select host.host_id, host.name, host.stopped, host.reported_at
from host
where (strpos(lower(host.name), %(text)s) > 0 or strpos(lower(host.host_id), %(text)s) > 0) and {seen}
order by host.stopped, host.reported_at desc
limit %(limit)s"""  # noqa: S608 (the names are our own)
    return query, {"text": text.lower(), "limit": limit} | _reads(scope)


def graphs_by_begin(part: IdPart, scope: Scope | None, limit: int) -> Query:
    """Return the query for graphs whose id begins so, the newest first."""
    where = "where graph.graph_id >= %(lowest)s and graph.graph_id <= %(highest)s"
    parameters = {"lowest": part.lowest, "highest": part.highest, "most": MOST_READ}
    return _graphs(
        where,
        _ENDS_SO.format(key="graph.graph_id") if part.end else "true",
        part.end,
        parameters,
        scope,
        limit,
    )


def graphs_by_text(text: str, end: str, scope: Scope | None, limit: int) -> Query:
    """Return the query for the newest graphs with a part of their name, or whose id ends so (empty: by name only)."""
    matches = "strpos(lower(graph.name), %(text)s) > 0"
    if end:
        matches = f"({matches} or {_ENDS_SO.format(key='graph.graph_id')})"
    return _graphs("", matches, end, {"text": text.lower(), "most": _MOST_GRAPHS}, scope, limit)


def _graphs(
    where: str, matches: str, end: str, parameters: Mapping[str, Any], scope: Scope | None, limit: int
) -> Query:
    seen = "true" if scope is None else graph_condition(scope)
    query = f"""
select graph.graph_id, graph.name, graph.open, graph.unhandled, graph.created_at
from (select graph.* from graph {where} order by graph.graph_id desc limit %(most)s) as graph
where {matches} and {seen}
order by graph.graph_id desc
limit %(limit)s"""  # noqa: S608 (the names are our own)
    return query, {**parameters, "end": end, "limit": limit} | scope_parameters(scope)


def sessions_by_begin(text: str, namespaces: Sequence[str] | None, limit: int) -> Query:
    """Return the query for sessions whose key begins so, in these namespaces; None: in all that lambdas have."""
    spaces = (
        "select unnest(%(namespaces)s::text[]) as name"
        if namespaces is not None
        else f"""select '' as name union (
        select split_part(lambda.name, '/', 1) from lambda where strpos(lambda.name, '/') > 0 limit {_MOST_QUEUES}
    )"""  # noqa: S608 (the names are our own)
    )
    query = f"""
select found.key, found.length, found.is_blocked
from (select space.name || '/' || %(text)s as begin from ({spaces}) as space limit {_MOST_NAMESPACES}) as wanted
cross join lateral (
    select session.key, session.length, session.blocked_at is not null as is_blocked
    from session
    where session.key >= wanted.begin and session.key < wanted.begin || chr(1114111)
    order by session.key
    limit %(limit)s
) as found
limit %(limit)s"""  # noqa: S608 (the names are our own)
    return query, {"text": text, "namespaces": list(namespaces or ()), "limit": limit}


def newest_letters(scope: Scope | None) -> Query:
    """Return the query for the newest dead letters, with what failed; only those that the scope reaches."""
    query = f"""
select task.task_id, task.lambda, task.failure_kind, task.failure_message
from (
    select dead_letter.task_id from dead_letter order by dead_letter.finished_at desc limit {_MOST_LETTERS}
) as letter
cross join lateral (
    select task.task_id, task.lambda, task.failure_kind, task.failure_message, task.scheduled_by
    from task
    where task.task_id = letter.task_id
    limit 1
) as task
where task.failure_kind is not null and {_scoped(scope)}"""  # noqa: S608 (the names are our own)
    return query, scope_parameters(scope)


class CauseFound(NamedTuple):
    """A cause of dead letters."""

    cause: Cause
    tasks: int
    """Of the newest 1,000 dead letters."""


def causes_that_match(rows: Sequence[TaskRow], text: str, limit: int) -> list[CauseFound]:
    """Return the causes with this begin of their fingerprint, or with the text in exception or message: the largest first."""
    sought = text.lower()
    counts: dict[Cause, int] = {}
    for row in rows:
        cause = cause_of(row["lambda"], row["failure_kind"], row["failure_message"] or "")
        counts[cause] = counts.get(cause, 0) + 1
    found = [
        CauseFound(cause, count)
        for cause, count in counts.items()
        if sought in f"{cause.exception}: {cause.message}".lower()
        or any(each.fingerprint.startswith(sought) for each in (cause, _of_board(cause)))
    ]
    return sorted(found, key=lambda each: (-each.tasks, each.cause))[:limit]


def _of_board(cause: Cause) -> Cause:
    """Return the cause as the incident board has it, which takes a lambda and its queues together."""
    return cause._replace(lambda_name=base_name(cause.lambda_name))


async def run(store: Store, query: Query) -> list[TaskRow]:
    """Run a query; return its rows by column name.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return await select_text(store, *query)


def _scoped(scope: Scope | None) -> str:
    return "true" if scope is None else scope_condition(scope, "", "task.lambda", "task.scheduled_by")


def _reads(scope: Scope | None) -> dict[str, Any]:
    return {} if scope is None else {"scope_reads": to_regex((*scope.all_tasks, *scope.own_tasks))}
