"""Queries of people: the tasks that a filter finds, to be listed, counted, cancelled, purged or redriven.

Only names of our own are put into their text. Values are literals there, so Postgres plans each for what it asks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from duly_core.postgres.pool import Store
from duly_core.tasks import attributes
from duly_core.tasks.lifecycle import FINAL, Status
from duly_core.tasks.scope import scope_condition, scope_parameters
from duly_core.tasks.store import SUMMARY, TaskFilter, TaskRow, select_text
from duly_wire.ids import TaskId

_PAGES_OF_ATTRIBUTES = 5
"""That one page of a list looks at."""
_JOINED = "task left join task_assoc on task_assoc.task_id = task.task_id"
_LIVE = "task_assoc join task on task.task_id = task_assoc.task_id"
_DEAD = "dead_letter join task on task.task_id = dead_letter.task_id"
_OF_DOMAIN = "select name from lambda where split_part(name, '~', 2) = %(domain)s and %(lambda)s in ('', split_part(name, '@', 1))"
"""The queues of a domain: few, and found without a look at tasks."""
_NO_GRAPH_RUNS = """(task.graph is null
    or not exists (select from graph where graph.graph_id = task.graph and graph.open > 0))"""
"""The result of a node is for the nodes that wait."""


@dataclass(frozen=True, slots=True)
class Query:
    """Which tasks."""

    source: str
    key: str
    """The column with their ids."""
    conditions: list[str]
    parameters: Mapping[str, Any]

    def select(self, columns: str, rest: str = "") -> str:
        """Return its text."""
        where = f"where {' and '.join(self.conditions)}" if self.conditions else ""
        return f"select {columns} from {self.source} {where} {rest}"  # noqa: S608 (the names are our own)


class Listed(NamedTuple):
    """Tasks of a list."""

    rows: list[TaskRow]
    read_to: TaskId | None = None
    """Below this id there may be more, though there are fewer rows than asked for; None: that says it."""


async def list_page(store: Store, wanted: TaskFilter, before: TaskId | None, limit: int) -> Listed:
    """Return up to `limit` tasks, newest id first, from below `before` on; without payloads and results.

    Of tasks with attributes a bounded number is read: an answer may have fewer, and a place to go on from.
    """
    if not wanted.attributes:
        return Listed(await select_text(store, *list_query(wanted, before, limit)))
    rows: list[TaskRow] = []
    for _ in range(_PAGES_OF_ATTRIBUTES):
        found = await attributes.find(store, wanted.attributes, before)
        if found.task_ids:
            query = list_query(wanted, None, limit - len(rows), found.task_ids)
            rows += await select_text(store, *query)
        before = found.read_to
        if before is None or len(rows) >= limit:
            return Listed(rows)
    return Listed(rows, before)


def list_query(
    wanted: TaskFilter, before: TaskId | None, limit: int, among: Sequence[TaskId] | None = None
) -> tuple[str, Mapping[str, Any]]:
    """Return the query of `list_page`, and its parameters; `among`: only these tasks."""
    # live tasks are few and finished ones many: a list of live ones begins with the assoc rows
    only_live = bool(wanted.statuses) and not wanted.statuses & FINAL
    source, key = (_LIVE, "task_assoc.task_id") if only_live else (_JOINED, "task.task_id")
    is_dead = wanted.statuses == {Status.FATAL_FAILURE}
    if is_dead:  # few among the finished, too
        source = f"dead_letter join ({_JOINED}) on task.task_id = dead_letter.task_id"
        key = "dead_letter.task_id"
    found = _conditions(wanted, is_dead=is_dead)
    if before is not None:
        found.append(f"{key} < %(before)s")
    parameters = _parameters(wanted) | {"before": UUID(bytes=before or bytes(16)), "limit": limit}
    if among is not None:
        found.append(f"{key} = any(%(among)s::uuid[])")
        parameters["among"] = [UUID(bytes=each) for each in among]
    query = Query(source, key, found, parameters)
    return query.select(SUMMARY, f"order by {key} desc limit %(limit)s"), parameters


def live(wanted: TaskFilter, as_of: datetime) -> Query:
    """Live tasks that were scheduled by `as_of`.

    What the assoc knows is asked of it: the rows of a lambda that lie ahead are few, its tasks many.
    """
    found = ["task.created_at <= %(as_of)s", "task_assoc.status::text = any(%(statuses)s)"]
    if wanted.lambda_name:
        found.append("task_assoc.lambda = %(lambda)s")
    if wanted.collection:
        found.append("task_assoc.collection = %(collection)s")
    if wanted.priorities:
        found.append("task_assoc.priority = any(%(priorities)s)")
    found += _scope(wanted, "task_assoc")
    return Query(_LIVE, "task_assoc.task_id", found, _parameters(wanted, as_of))


def finished(wanted: TaskFilter, as_of: datetime) -> Query:
    """Tasks that ended by `as_of`, without those of graphs that run."""
    found = ["task.finished_at <= %(as_of)s", "task.status::text = any(%(statuses)s)", _NO_GRAPH_RUNS]
    others = replace(wanted, statuses=frozenset())  # else task_assoc is asked, too
    found += _conditions(others, is_dead=False)
    return Query("task", "task.task_id", found, _parameters(wanted, as_of))


def dead(wanted: TaskFilter, as_of: datetime) -> Query:
    """Dead letters that a redrive takes: dead by then, found by the filter, and of a lambda that somebody serves."""
    found = [
        *_conditions(wanted, is_dead=True),
        "dead_letter.finished_at <= %(as_of)s",
        "exists (select from lambda where lambda.name = dead_letter.lambda)",
    ]
    # what dead_letter knows by itself is asked without a look at each task
    of_task = (
        wanted.collection
        or wanted.priorities
        or wanted.failure_kinds
        or (wanted.scope is not None and wanted.scope.own_tasks)
    )
    source = _DEAD if of_task else "dead_letter"
    return Query(source, "dead_letter.task_id", found, _parameters(wanted, as_of))


async def ids_after(store: Store, query: Query, after: TaskId | None, limit: int) -> list[TaskId]:
    """Return up to `limit` ids, ascending, from above `after` on."""
    if after is not None:
        query = replace(query, conditions=[*query.conditions, f"{query.key} > %(after)s"])
    parameters = {**query.parameters, "after": UUID(bytes=after or bytes(16)), "limit": limit}
    return await _ids(store, query, f"order by {query.key} limit %(limit)s", parameters)


class IdPage(NamedTuple):
    """Tasks that a change takes, and where the next page begins."""

    ids: list[TaskId]
    more: bool
    """There may be others."""
    after: TaskId | None
    """Above it; None: nothing was read."""


async def page_after(
    store: Store, query: Query, wanted: TaskFilter, after: TaskId | None, limit: int
) -> IdPage:
    """Return up to `limit` ids, ascending, from above `after` on.

    Of tasks with attributes a bounded number is read: a page may have fewer, though there are more.
    """
    if not wanted.attributes:
        ids = await ids_after(store, query, after, limit + 1)
        return IdPage(ids[:limit], len(ids) > limit, ids[:limit][-1] if ids else None)
    ids = []
    for _ in range(_PAGES_OF_ATTRIBUTES):
        found = await attributes.find_after(store, wanted.attributes, after)
        if found.task_ids:
            among = replace(
                query,
                conditions=[*query.conditions, f"{query.key} = any(%(among)s::uuid[])"],
                parameters={**query.parameters, "among": [UUID(bytes=each) for each in found.task_ids]},
            )
            ids += await ids_after(store, among, None, limit + 1 - len(ids))
        if len(ids) > limit:
            return IdPage(ids[:limit], more=True, after=ids[limit - 1])
        after = found.read_to
        if after is None:
            return IdPage(ids, more=False, after=ids[-1] if ids else None)
    return IdPage(ids, more=True, after=after)


async def first_dead(
    store: Store,
    wanted: TaskFilter,
    as_of: datetime,
    limit: int,
    after: tuple[datetime, TaskId] | None = None,
) -> list[tuple[datetime, TaskId]]:
    """Return up to `limit` dead letters that a redrive takes, and when they ended: those that ended first before the others.

    `after`: only those behind this one.
    """
    query = dead(wanted, as_of)
    parameters = {**query.parameters, "limit": limit}
    if after is not None:
        behind = "(dead_letter.finished_at, dead_letter.task_id) > (%(after_at)s, %(after)s)"
        query = replace(query, conditions=[*query.conditions, behind])
        parameters |= {"after_at": after[0], "after": UUID(bytes=after[1])}
    rest = "order by dead_letter.finished_at, dead_letter.task_id limit %(limit)s"
    columns = "dead_letter.finished_at as ended_at, dead_letter.task_id as id"
    rows = await select_text(store, query.select(columns, rest), parameters)
    return [(row["ended_at"], row["id"].bytes) for row in rows]


async def queues_of(store: Store, lambda_name: str) -> tuple[str, ...]:
    """Return the queues of a lambda: its own, and those of its versions, domains and labels."""
    query = "select name from lambda where name = %(lambda)s or starts_with(name, %(versions)s) order by name"
    rows = await select_text(store, query, {"lambda": lambda_name, "versions": f"{lambda_name}@"})
    return tuple(row["name"] for row in rows)


async def count(store: Store, query: Query) -> int:
    """Return how many there are."""
    (row,) = await select_text(store, query.select("count(*) as count"), query.parameters)
    return int(row["count"])


async def begun_at(store: Store, wanted: datetime | None) -> tuple[datetime, datetime]:
    """The store's now, and the instant at which a call over several pages began: never later, whatever its caller says."""
    (row,) = await select_text(store, "select duly_now() as now", {})
    now: datetime = row["now"]
    return now, min(wanted or now, now)


async def _ids(store: Store, query: Query, rest: str, parameters: Mapping[str, Any]) -> list[TaskId]:
    return [
        row["id"].bytes
        for row in await select_text(store, query.select(f"{query.key} as id", rest), parameters)
    ]


def _conditions(wanted: TaskFilter, *, is_dead: bool) -> list[str]:
    """The filter as SQL, on task (and on task_assoc, if live statuses are wanted).

    With `is_dead` all that dead_letter knows is asked of it: it has no others, and what is said of task beside it
    leads the planner to walk all of the lambda's tasks.
    """
    known = "dead_letter" if is_dead else "task"
    statuses = []
    if wanted.statuses - FINAL:
        statuses.append("task_assoc.status::text = any(%(live)s)")
    if wanted.statuses & FINAL:
        statuses.append("task.status::text = any(%(final)s)")
    return _scope(wanted, known) + [
        condition
        for asked, condition in (
            (wanted.lambda_name and not (wanted.domain or wanted.queues), f"{known}.lambda = %(lambda)s"),
            (wanted.queues, f"{known}.lambda = any(%(queues)s)"),
            (wanted.domain, f"{known}.lambda = any (array({_OF_DOMAIN}))"),
            (wanted.collection, "task.collection = %(collection)s"),
            (wanted.priorities, "task.priority = any(%(priorities)s)"),
            (statuses and not is_dead, f"({' or '.join(statuses)})"),
            (wanted.failure_kinds, "task.failure_kind = any(%(failure_kinds)s)"),
            (wanted.finished_after, f"{known}.finished_at >= %(finished_after)s"),
            (wanted.finished_before, f"{known}.finished_at < %(finished_before)s"),
        )
        if asked
    ]


def _scope(wanted: TaskFilter, known: str) -> list[str]:
    if wanted.scope is None:
        return []
    return [scope_condition(wanted.scope, wanted.lambda_name, f"{known}.lambda", "task.scheduled_by")]


def _parameters(wanted: TaskFilter, as_of: datetime | None = None) -> dict[str, Any]:
    return scope_parameters(wanted.scope) | {
        "lambda": wanted.lambda_name,
        "collection": wanted.collection,
        "domain": wanted.domain,
        "queues": [*wanted.queues],
        "priorities": sorted(map(int, wanted.priorities)),
        "statuses": sorted(map(str, wanted.statuses)),
        "live": sorted(map(str, wanted.statuses - FINAL)),
        "final": sorted(map(str, wanted.statuses & FINAL)),
        "failure_kinds": sorted(map(int, wanted.failure_kinds)),
        "finished_after": wanted.finished_after,
        "finished_before": wanted.finished_before,
        "as_of": as_of,
    }
