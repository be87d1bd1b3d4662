"""Read and cancel tasks: the cold paths, run on the same connections as the others."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg import AsyncClientCursor
from psycopg.rows import TupleRow, dict_row

from duly_core.access.current import scheduler
from duly_core.access.grants import Scope
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.arrays import texts, uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import READS, TRANSITIONS, fragment
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Attempt, AttemptOutcome
from duly_core.tasks.waiting import cancel_waiting
from duly_wire.enums import FailureKind, Priority
from duly_wire.ids import TaskId

SUMMARY = fragment("task_summary")
"""Columns of all that is told of a task but payload and result."""

UNLIMITED = 2**62
"""Bytes."""

_LABEL = """case when task.graph is not null then (
    select node.label from graph_node as node where node.task_id = task.task_id limit 1
) end as graph_label"""
# of the bytes only their number is read until it is known that they are wanted
_BODIES = """task.payload_encoding, task.result_encoding, body.bytes as body_bytes,
    case when sum(body.bytes) over () <= %(most_bytes)s then task.payload end as payload,
    case when sum(body.bytes) over () <= %(most_bytes)s then task.result end as result,
    case when sum(body.bytes) over () <= %(most_bytes)s then task.checkpoint end as checkpoint"""
_USES = fragment("uses_of", "task")
"""Bounded by themselves: a task has two hundred at most."""
_BY_ID = """from task left join task_assoc on task_assoc.task_id = task.task_id
    cross join lateral (
        select octet_length(task.payload) + coalesce(octet_length(task.result), 0)
            + coalesce(octet_length(task.checkpoint), 0) as bytes
    ) as body
    where task.task_id = any(%(task_ids)s::uuid[])"""

_DOOMED = "select task_id from task_assoc where task_id = any(%(task_ids)s::uuid[]) and doom is not null"
_TRIES = 3
"""A task may pass from one kind to the other between the statements of a cancel."""

TaskRow = dict[str, Any]
"""A task's columns by name, entity and assoc together; `status` is the one in force."""


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
    scope: Scope | None = None
    """What the caller may reach; None: all."""
    domain: str = ""
    """With it `lambda_name` means its queues in that domain."""
    queues: tuple[str, ...] = ()
    """With them `lambda_name` means the lambda whose queues these are."""
    attributes: tuple[tuple[str, str], ...] = ()
    """All of these, as texts: lists alone know them."""


async def select_text(store: Store, query: str, parameters: Mapping[str, Any]) -> list[TaskRow]:
    """Run a query, planned for what it asks; its rows by column name.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    async with store.connection() as connection:
        # the values are literals of its text: Postgres plans it for them, and keeps nothing (decision 0021)
        cursor = AsyncClientCursor(connection, row_factory=dict_row)
        await cursor.execute(query.encode(), parameters)
        return await cursor.fetchall()


async def get_tasks(
    store: Store, task_ids: Iterable[TaskId], *, most_bytes: int | None = UNLIMITED
) -> dict[TaskId, TaskRow]:
    """Return tasks by id; those that do not exist are left out.

    With `most_bytes` None they have neither payload nor result. Otherwise `body_bytes` is the size of both, and where
    those of all tasks together are larger than `most_bytes`, no task has either.
    """
    wanted = [UUID(bytes=task_id) for task_id in set(task_ids)]
    columns = (
        f"{SUMMARY}, {_LABEL}"
        if most_bytes is None
        else f"{SUMMARY}, {_LABEL}, {_BODIES}, {_USES} as attachments"
    )
    parameters = {"task_ids": wanted, "most_bytes": most_bytes}
    rows = await select_text(store, f"select {columns} {_BY_ID}", parameters)
    return {row["task_id"].bytes: row for row in rows}


async def find_by_keys(store: Store, keys: Sequence[tuple[str, str]]) -> list[TaskId | None]:
    """Return the tasks of these lambdas that were scheduled with these idempotency keys, in order; None for a key that no task has.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    parameters = {"lambdas": texts([name for name, _ in keys]), "keys": texts([key for _, key in keys])}
    found: list[TaskId | None] = [None] * len(keys)
    for place, task_id in await store.run(READS["tasks_by_key"], parameters):
        found[place] = task_id
    return found


async def get_attempts(
    store: Store, task_ids: Iterable[TaskId], *, tracebacks: int = 3
) -> dict[TaskId, list[Attempt]]:
    """Return the newest 100 attempts of each task that did not succeed, oldest first; none: the task is left out.

    Only the newest `tracebacks` attempts of a task have their traceback.
    """
    found: dict[TaskId, list[Attempt]] = {}
    parameters = {"task_ids": uuids(sorted(set(task_ids))), "tracebacks": tracebacks}
    for row in await store.run(READS["attempts"], parameters):
        task_id, fence, number, outcome, holder, started_at, ended_at, kind, message, traceback = row
        found.setdefault(task_id, []).append(
            Attempt(
                attempt=number,
                fence=fence,
                outcome=AttemptOutcome(outcome),
                holder=holder,
                started_at=started_at,
                ended_at=ended_at,
                failure_kind=kind,
                failure_message=message or "",
                traceback=traceback or "",
            )
        )
    return found


async def final_of(store: Store, task_ids: Iterable[TaskId]) -> set[TaskId]:
    """Which of these need not be waited for: final, or not there at all."""
    wanted = set(task_ids)
    return wanted - {row[0] for row in await store.run(READS["live"], {"task_ids": uuids(sorted(wanted))})}


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What came of a cancel."""

    statuses: dict[TaskId, Status]
    """Of each task after it; tasks that do not exist, and those that were final already, are left out."""
    released: dict[str, timedelta]
    """The lambdas of tasks that waited for the end of one of these, and how far ahead the first of each is due."""


async def cancel_tasks(store: Store, task_ids: Sequence[TaskId], *, kill: bool = False) -> Cancelled:
    """End those that nobody runs, and ask the holders of the others to stop them, or to kill them.

    What waits and is about to end without a run is left to that, and answered as WAITING.

    Raises:
        StoreUnavailableError: the outcome is unknown, or a task moved at each try; ask again.
    """
    left = sorted(set(task_ids))
    answers: dict[TaskId, Status] = {}
    released: dict[str, timedelta] = {}

    def note(rows: Iterable[TupleRow]) -> None:
        for task_id, lambda_name, due_in in rows:
            if task_id is not None:
                answers[task_id] = Status.CANCELLED
            else:
                released[lambda_name] = min(due_in, released.get(lambda_name, due_in))

    for _ in range(_TRIES):
        pending = {"task_ids": uuids(left), "only_if_requested": False, "by": scheduler()}
        note(await store.run(TRANSITIONS["cancel"], pending))
        left = [task_id for task_id in left if task_id not in answers]
        if left:
            asked = {"task_ids": uuids(left), "by": scheduler(), "kill": kill}
            rows = await store.run(TRANSITIONS["request_cancel"], asked)
            answers |= {row[0]: Status(row[1]) for row in rows}
            left = sorted(set(left) - set(answers) - await final_of(store, left))
        if left:
            note(await cancel_waiting(store, left))
            left = [task_id for task_id in left if task_id not in answers]
        if not left:
            break
        await asyncio.sleep(0)
    else:
        doomed = await select_text(store, _DOOMED, {"task_ids": [UUID(bytes=task_id) for task_id in left]})
        answers |= {row["task_id"].bytes: Status.WAITING for row in doomed}
        if moved := set(left) - answers.keys() - await final_of(store, left):
            raise StoreUnavailableError(f"{len(moved)} tasks moved each time that they were to be cancelled")
    return Cancelled(answers, released)
