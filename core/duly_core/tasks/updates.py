"""Change tasks that nobody runs yet: their due time, priority and payload."""

import asyncio
import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from duly_core.access.current import scheduler
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.arrays import byteas, int2s, intervals, timestamps, uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import TRANSITIONS
from duly_core.tasks.lifecycle import LIVE, Status
from duly_core.tasks.store import get_tasks
from duly_core.tasks.task import TaskChange
from duly_core.tasks.waiting import change_waiting
from duly_wire.ids import TaskId

_TRIES = 3
"""A task may start, be released or end while the statement runs, or before the look at what it is."""
_PENDING = frozenset({"new", "retriable_failure", "enqueued"})


class ChangeVerdict(enum.Enum):
    """What became of a TaskChange."""

    CHANGED = "changed"
    NOT_PENDING = "not pending"
    """Somebody runs it, it has ended, is about to end without a run, or is parked."""
    PAYLOAD_TOO_LARGE = "payload too large"
    ORDERED_BY_TIME = "ordered by time"
    """Its session runs by due time: the time of a task that is in it stays."""


class Changed(NamedTuple):
    """The store's answer to a TaskChange."""

    verdict: ChangeVerdict
    status: Status
    """Now."""
    lambda_name: str = ""
    payload_limit: int = 0
    due_in: timedelta | None = None
    """With CHANGED: how far ahead it is looked at next; None: it waits for another task."""


class Changes(NamedTuple):
    """What came of many TaskChanges."""

    answers: dict[TaskId, Changed]
    released: frozenset[str]
    """The lambdas of tasks that were parked on units of the changed ones, and are due."""


NONE = Changes({}, frozenset())


async def update_pending(store: Store, changes: Sequence[TaskChange]) -> Changes:
    """Change tasks, each once and for itself; those that do not exist are left out of the answer.

    Raises:
        StoreUnavailableError: the outcome is unknown, or a task moved at each try; ask again with the same changes.
    """
    left = sorted(changes, key=lambda change: change.task_id)
    answers: dict[TaskId, Changed] = {}
    released: set[str] = set()
    for _ in range(_TRIES):
        asked = {change.task_id: change for change in left}
        waiting = []
        for row in await store.run(TRANSITIONS["update_pending"], change_columns(left)):
            if row[0] is None:
                released.add(row[1])
            elif row[2] == Status.WAITING:
                if refusal := _refusal(asked[row[0]], row[3], is_ordered_by_time=row[4]):
                    answers[row[0]] = Changed(
                        refusal, Status.WAITING, lambda_name=row[1], payload_limit=row[3]
                    )
                else:
                    waiting.append(asked[row[0]])
            elif answer := _answer(asked[row[0]], *row[1:]):
                answers[row[0]] = answer
        if waiting:
            # those that are parked on gates are taken from them, and changed at the next try
            task_ids = uuids(sorted(change.task_id for change in waiting))
            unparked = {
                row[0] for row in await store.run(TRANSITIONS["unpark_gated"], {"task_ids": task_ids})
            }
            waiting = [change for change in waiting if change.task_id not in unparked]
            answers |= await _update_waiting(store, waiting) if waiting else {}
        left = [change for change in left if change.task_id not in answers]
        if not left:
            break
        found = await get_tasks(store, [change.task_id for change in left], most_bytes=None)
        ended = {task_id: Status(row["status"]) for task_id, row in found.items()}
        answers |= {
            task_id: Changed(ChangeVerdict.NOT_PENDING, status)
            for task_id, status in ended.items()
            if status not in LIVE
        }
        left = [change for change in left if ended.get(change.task_id) in LIVE]  # moved just now
        if not left:
            break
        await asyncio.sleep(0)
    else:
        raise StoreUnavailableError(f"{len(left)} tasks moved each time that they were to be changed")
    return Changes(answers, frozenset(released))


async def _update_waiting(store: Store, changes: Sequence[TaskChange]) -> dict[TaskId, Changed]:
    """Change what waits in a session or a graph; what was released meanwhile is left out."""
    asked = {change.task_id: change for change in changes}
    answers = {}
    for task_id, lambda_name, was, limit, is_ordered_by_time, status, is_fixed in await change_waiting(
        store, asked, lambda task_ids: change_columns([asked[task_id] for task_id in task_ids])
    ):
        if status is None and was != Status.WAITING:
            continue
        if status is not None:
            verdict = ChangeVerdict.CHANGED
        elif is_fixed:
            verdict = ChangeVerdict.NOT_PENDING
        elif refusal := _refusal(asked[task_id], limit, is_ordered_by_time=is_ordered_by_time):
            verdict = refusal
        else:
            continue
        answers[task_id] = Changed(verdict, Status.WAITING, lambda_name, limit)
    return answers


def _refusal(change: TaskChange, payload_limit: int, *, is_ordered_by_time: bool) -> ChangeVerdict | None:
    """Return what is wrong with a change of a task that nobody runs, if anything."""
    if len(change.payload or b"") > payload_limit:
        return ChangeVerdict.PAYLOAD_TOO_LARGE
    if is_ordered_by_time and (change.scheduled_at is not None or change.delay is not None):
        return ChangeVerdict.ORDERED_BY_TIME
    return None


def _answer(
    change: TaskChange,
    lambda_name: str,
    was: str,
    payload_limit: int,
    is_ordered_by_time: bool,  # noqa: FBT001
    status: str | None,
    due_in: timedelta | None,
) -> Changed | None:
    """Return what a row says; None: the task was pending, and moved while the statement ran."""
    if status is not None:
        return Changed(ChangeVerdict.CHANGED, Status(status), lambda_name, payload_limit, due_in)
    if was not in _PENDING:
        return Changed(ChangeVerdict.NOT_PENDING, Status(was), lambda_name, payload_limit)
    refusal = _refusal(change, payload_limit, is_ordered_by_time=is_ordered_by_time)
    return refusal and Changed(refusal, Status(was), lambda_name, payload_limit)


def change_columns(changes: Sequence[TaskChange]) -> dict[str, object]:
    """Return the parameters of `update_pending` and `update_waiting`."""
    return {
        "task_ids": uuids([change.task_id for change in changes]),
        "payloads": byteas([change.payload for change in changes]),
        "encodings": int2s([change.encoding for change in changes]),
        "priorities": int2s([change.priority for change in changes]),
        "scheduled_at": timestamps([change.scheduled_at for change in changes]),
        "delays": intervals([change.delay for change in changes]),
        "by": scheduler(),
    }
