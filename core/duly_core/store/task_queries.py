"""Reads of tasks, written with SQLAlchemy: loaded when the first of them is asked for."""

from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect

from duly_core.lifecycle import FINAL, Status
from duly_core.store.pool import Store
from duly_core.store.tables import dead_letter, task, task_assoc
from duly_core.store.tasks import SUMMARY, TaskFilter, TaskRow, select_text
from duly_core.task import TaskId

_DIALECT = psycopg_dialect()

_JOINED = task.outerjoin(task_assoc, task_assoc.c.task_id == task.c.task_id)


async def select(store: Store, query: sa.Select[Any]) -> list[TaskRow]:
    """Run a query that SQLAlchemy made, planned for what it asks; its rows by column name.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    compiled = query.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    return await select_text(store, compiled.string, dict(compiled.params))


async def list_tasks(store: Store, wanted: TaskFilter, before: TaskId | None, limit: int) -> list[TaskRow]:
    """Up to `limit` tasks, newest id first, from below `before` on; without payloads and results."""
    return await select(store, list_query(wanted, before, limit))


def list_query(wanted: TaskFilter, before: TaskId | None, limit: int) -> sa.Select[Any]:
    """Return the query of `list_tasks`."""
    # live tasks are few and finished ones many: a list of live ones begins with the assoc rows
    only_live = bool(wanted.statuses) and not wanted.statuses & FINAL
    key = task_assoc.c.task_id if only_live else task.c.task_id
    source = task_assoc.join(task, task.c.task_id == task_assoc.c.task_id) if only_live else _JOINED
    dead = wanted.statuses == {Status.FATAL_FAILURE}
    if dead:  # few among the finished, too
        key = dead_letter.c.task_id
        source = dead_letter.join(_JOINED, task.c.task_id == dead_letter.c.task_id)
    query = sa.select(sa.text(SUMMARY)).select_from(source).order_by(key.desc()).limit(limit)
    if before is not None:
        query = query.where(key < UUID(bytes=before))
    return query.where(*conditions(wanted, dead=dead))


def conditions(wanted: TaskFilter, *, dead: bool) -> list[sa.ColumnElement[bool]]:
    """The filter as SQL, on task (and on task_assoc, if live statuses are wanted).

    With `dead` all that dead_letter knows is asked of it: it has no others, and what is said of task beside it
    leads the planner to walk all of the lambda's tasks.
    """
    found: list[sa.ColumnElement[bool]] = []
    known = dead_letter.c if dead else task.c
    if wanted.lambda_name:
        found.append(known["lambda"] == wanted.lambda_name)
    if wanted.collection:
        found.append(task.c.collection == wanted.collection)
    if wanted.priorities:
        found.append(task.c.priority.in_([int(priority) for priority in wanted.priorities]))
    if wanted.statuses and not dead:
        found.append(_status_is_one_of(wanted.statuses))
    if wanted.failure_kinds:
        found.append(task.c.failure_kind.in_([int(kind) for kind in wanted.failure_kinds]))
    if wanted.finished_after is not None:
        found.append(known.finished_at >= wanted.finished_after)
    if wanted.finished_before is not None:
        found.append(known.finished_at < wanted.finished_before)
    return found


def _status_is_one_of(statuses: frozenset[Status]) -> sa.ColumnElement[bool]:
    live = [str(status) for status in statuses - FINAL]
    final = [str(status) for status in statuses & FINAL]
    return sa.or_(
        task_assoc.c.status.cast(sa.Text).in_(live) if live else sa.false(),
        task.c.status.cast(sa.Text).in_(final) if final else sa.false(),
    )
