"""Finds tasks to cancel and to purge, written with SQLAlchemy: loaded when the first of them is asked for."""

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from duly_core.store.pool import Store
from duly_core.store.tables import graph, task, task_assoc
from duly_core.store.task_queries import conditions, select
from duly_core.store.tasks import TaskFilter
from duly_core.task import TaskId

_LIVE = task_assoc.join(task, task.c.task_id == task_assoc.c.task_id)


async def find_live(
    store: Store, wanted: TaskFilter, as_of: datetime, after: TaskId | None, limit: int
) -> list[TaskId]:
    """Ids of live tasks that were scheduled by `as_of`, ascending, from above `after` on."""
    query = sa.select(task_assoc.c.task_id).select_from(_LIVE).where(*_live(wanted, as_of))
    return await _ids(store, query, task_assoc.c.task_id, after, limit)


async def count_live(store: Store, wanted: TaskFilter, as_of: datetime) -> int:
    """How many there are."""
    return await _count(
        store, sa.select(sa.func.count().label("count")).select_from(_LIVE), _live(wanted, as_of)
    )


async def find_finished(
    store: Store, wanted: TaskFilter, as_of: datetime, after: TaskId | None, limit: int
) -> list[TaskId]:
    """Ids of tasks that ended by `as_of`, ascending, from above `after` on; without those of graphs that run."""
    query = sa.select(task.c.task_id).where(*_finished(wanted, as_of))
    return await _ids(store, query, task.c.task_id, after, limit)


async def count_finished(store: Store, wanted: TaskFilter, as_of: datetime) -> int:
    """How many there are."""
    return await _count(
        store, sa.select(sa.func.count().label("count")).select_from(task), _finished(wanted, as_of)
    )


def _live(wanted: TaskFilter, as_of: datetime) -> list[sa.ColumnElement[bool]]:
    """What the assoc knows is asked of it: the rows of a lambda that lie ahead are few, its tasks many."""
    found = [task.c.created_at <= as_of, task_assoc.c.status.cast(sa.Text).in_(map(str, wanted.statuses))]
    if wanted.lambda_name:
        found.append(task_assoc.c["lambda"] == wanted.lambda_name)
    if wanted.collection:
        found.append(task_assoc.c.collection == wanted.collection)
    if wanted.priorities:
        found.append(task_assoc.c.priority.in_([int(priority) for priority in wanted.priorities]))
    return found


def _finished(wanted: TaskFilter, as_of: datetime) -> list[sa.ColumnElement[bool]]:
    statuses = task.c.status.cast(sa.Text).in_(map(str, wanted.statuses))
    others = replace(wanted, statuses=frozenset())  # else `conditions` asks task_assoc, too
    running = sa.exists().where(graph.c.graph_id == task.c.graph, graph.c.open > 0)
    no_graph_runs = sa.or_(task.c.graph.is_(None), ~running)  # its result is for the nodes that wait
    return [task.c.finished_at <= as_of, statuses, no_graph_runs, *conditions(others, dead=False)]


async def _ids(
    store: Store,
    query: sa.Select[Any],
    column: sa.ColumnElement[Any],
    after: TaskId | None,
    limit: int,
) -> list[TaskId]:
    if after is not None:
        query = query.where(column > UUID(bytes=after))
    rows = await select(store, query.order_by(column).limit(limit))
    return [row["task_id"].bytes for row in rows]


async def _count(store: Store, query: sa.Select[Any], which: list[sa.ColumnElement[bool]]) -> int:
    (row,) = await select(store, query.where(*which))
    return int(row["count"])
