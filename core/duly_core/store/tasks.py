"""Read and cancel tasks: the cold paths, written with SQLAlchemy and run on the same connections."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from psycopg import AsyncClientCursor
from psycopg.rows import dict_row
from sqlalchemy.dialects.postgresql.psycopg import dialect as psycopg_dialect

from duly_core.lifecycle import FINAL, Status
from duly_core.routing import Priority
from duly_core.store.arrays import uuids
from duly_core.store.pool import Store, as_uuid
from duly_core.store.statements import READS, TRANSITIONS
from duly_core.store.tables import dead_letter, task, task_assoc
from duly_core.task import Attempt, AttemptOutcome, FailureKind, TaskId

_DIALECT = psycopg_dialect()

TaskRow = dict[str, Any]
"""A task's columns by name, entity and assoc together; `status` is the one in force."""

_STATUS = sa.func.coalesce(task_assoc.c.status, task.c.status).cast(sa.Text)
_JOINED = task.outerjoin(task_assoc, task_assoc.c.task_id == task.c.task_id)
_SUMMARY = (
    task.c.task_id,
    task.c["lambda"],
    task.c.collection,
    task.c.priority,
    _STATUS.label("status"),
    task.c.created_at,
    task.c.scheduled_at,
    task.c.expires_at,
    task.c.started_at,
    task.c.finished_at,
    task.c.failure_kind,
    task.c.failure_message,
    task.c.failed_at,
    sa.func.coalesce(task_assoc.c.fence, task.c.fence).label("fence"),
    sa.func.coalesce(task_assoc.c.failures, task.c.failures).label("failures"),
    sa.func.coalesce(task_assoc.c.crashes, task.c.crashes).label("crashes"),
    task_assoc.c.next_trigger_at,
    task_assoc.c.holder,
    task_assoc.c.cancel_requested,
    task_assoc.c.progress,
    task_assoc.c.progress_note,
    task.c.redrives,
)
_WHOLE = (*_SUMMARY, task.c.payload, task.c.payload_encoding, task.c.result, task.c.result_encoding)


@dataclass(frozen=True, slots=True)
class TaskFilter:
    """Which tasks to list; empty means any."""

    lambda_name: str = ""
    collection: str = ""
    statuses: frozenset[Status] = frozenset()
    priorities: frozenset[Priority] = frozenset()
    failure_kinds: frozenset[FailureKind] = frozenset()
    """Of the last failure."""
    finished_after: datetime | None = None
    """This instant or later; with either, what is not finished is left out."""
    finished_before: datetime | None = None


async def select(store: Store, query: sa.Select[Any]) -> list[TaskRow]:
    """Run a query that SQLAlchemy made, planned for what it asks; its rows by column name.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    compiled = query.compile(dialect=_DIALECT, compile_kwargs={"render_postcompile": True})
    async with store.connection() as connection:
        # the values are literals of its text: Postgres plans it for them, and keeps nothing (decision 0019)
        cursor = AsyncClientCursor(connection, row_factory=dict_row)
        await cursor.execute(compiled.string.encode(), dict(compiled.params))
        return await cursor.fetchall()


async def get_tasks(
    store: Store, task_ids: Iterable[TaskId], *, bodies: bool = True
) -> dict[TaskId, TaskRow]:
    """Tasks, with payload and result or without; those that do not exist are left out."""
    wanted = [as_uuid(task_id) for task_id in set(task_ids)]
    columns = _WHOLE if bodies else _SUMMARY
    rows = await select(store, sa.select(*columns).select_from(_JOINED).where(task.c.task_id.in_(wanted)))
    return {row["task_id"].bytes: row for row in rows}


async def get_attempts(store: Store, task_ids: Iterable[TaskId]) -> dict[TaskId, list[Attempt]]:
    """The attempts of each task that did not succeed, oldest first, the newest 100; none: the task is left out."""
    found: dict[TaskId, list[Attempt]] = {}
    for row in await store.run(READS["attempts"], {"task_ids": uuids(sorted(set(task_ids)))}):
        task_id, fence, number, outcome, holder, started_at, ended_at, kind, message = row
        found.setdefault(task_id, []).append(
            Attempt(
                attempt=number,
                fence=fence,
                outcome=AttemptOutcome(outcome),
                holder=holder,
                started_at=started_at,
                ended_at=ended_at,
                failure_kind=FailureKind(kind) if kind is not None else None,
                failure_message=message or "",
            )
        )
    return found


async def final_of(store: Store, task_ids: Iterable[TaskId]) -> set[TaskId]:
    """Which of these need not be waited for: final, or not there at all."""
    wanted = set(task_ids)
    return wanted - {row[0] for row in await store.run(READS["live"], {"task_ids": uuids(sorted(wanted))})}


async def list_tasks(store: Store, wanted: TaskFilter, before: TaskId | None, limit: int) -> list[TaskRow]:
    """Up to `limit` tasks, newest id first, from below `before` on; without payloads and results."""
    # live tasks are few and finished ones many: a list of live ones begins with the assoc rows
    only_live = bool(wanted.statuses) and not wanted.statuses & FINAL
    key = task_assoc.c.task_id if only_live else task.c.task_id
    source = task_assoc.join(task, task.c.task_id == task_assoc.c.task_id) if only_live else _JOINED
    dead = wanted.statuses == {Status.FATAL_FAILURE}
    if dead:  # few among the finished, too
        key = dead_letter.c.task_id
        source = dead_letter.join(_JOINED, task.c.task_id == dead_letter.c.task_id)
    query = sa.select(*_SUMMARY).select_from(source).order_by(key.desc()).limit(limit)
    if before is not None:
        query = query.where(key < as_uuid(before))
    return await select(store, query.where(*conditions(wanted, dead=dead)))


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


async def cancel_tasks(store: Store, task_ids: Sequence[TaskId]) -> dict[TaskId, Status]:
    """End those that nobody runs, ask the holders of the others; each one's status after that.

    Tasks that do not exist, and those that were final already, are left out.
    """
    left = sorted(set(task_ids))
    answers: dict[TaskId, Status] = {}
    for _ in range(3):  # a task may pass from one kind to the other between the two statements
        rows = await store.run(TRANSITIONS["cancel"], {"task_ids": uuids(left), "only_if_requested": False})
        answers |= {row[0]: Status.CANCELLED for row in rows}
        left = [task_id for task_id in left if task_id not in answers]
        if left:
            rows = await store.run(TRANSITIONS["request_cancel"], {"task_ids": uuids(left)})
            answers |= {row[0]: Status(row[1]) for row in rows}
            left = sorted(set(left) - set(answers) - await final_of(store, left))
        if not left:
            break
        await asyncio.sleep(0)
    return answers
