"""Reads of dead letters, written with SQLAlchemy: loaded when the first of them is asked for."""

from datetime import datetime

import sqlalchemy as sa

from duly_core.store.pool import Store
from duly_core.store.tables import dead_letter, lambda_, task
from duly_core.store.task_queries import conditions, select
from duly_core.store.tasks import TaskFilter, TaskRow

_DEAD = dead_letter.join(task, task.c.task_id == dead_letter.c.task_id)


async def find(store: Store, wanted: TaskFilter, as_of: datetime, limit: int) -> list[TaskRow]:
    """The ids of dead letters that a redrive takes, those that ended first before the others."""
    query = sa.select(dead_letter.c.task_id).select_from(_DEAD).where(*_dead(wanted, as_of))
    query = query.order_by(dead_letter.c.finished_at, dead_letter.c.task_id).limit(limit)
    return await select(store, query)


async def count(store: Store, wanted: TaskFilter, as_of: datetime) -> int:
    """How many dead letters a redrive takes."""
    # what dead_letter knows by itself is counted without a look at each task
    of_task = wanted.collection or wanted.priorities or wanted.failure_kinds
    source = _DEAD if of_task else dead_letter
    query = sa.select(sa.func.count().label("count")).select_from(source).where(*_dead(wanted, as_of))
    (row,) = await select(store, query)
    return int(row["count"])


async def as_of(store: Store, wanted: datetime | None) -> tuple[datetime, datetime]:
    """The store's now, and the instant at which the redrive began: never later, whatever the caller says."""
    (row,) = await select(store, sa.select(sa.func.duly_now().label("now")))
    now: datetime = row["now"]
    return now, min(wanted or now, now)


def _dead(wanted: TaskFilter, as_of: datetime) -> list[sa.ColumnElement[bool]]:
    """What a redrive takes: dead by then, found by the filter, and of a lambda that somebody serves."""
    registered = sa.exists().where(lambda_.c.name == dead_letter.c["lambda"])
    return [*conditions(wanted, dead=True), dead_letter.c.finished_at <= as_of, registered]
