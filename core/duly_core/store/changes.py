"""Change tasks that nobody runs yet: their due time, priority and payload."""

import asyncio
import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from duly_core.errors import StoreUnavailableError
from duly_core.lifecycle import LIVE, Status
from duly_core.store.arrays import byteas, int2s, intervals, timestamps, uuids
from duly_core.store.pool import Store
from duly_core.store.statements import TRANSITIONS
from duly_core.store.tasks import get_tasks
from duly_core.task import TaskChange, TaskId

_TRIES = 3
"""A task may start, be released or end while the statement runs, or before the look at what it is."""
_PENDING = frozenset({"new", "retriable_failure", "enqueued"})


class ChangeVerdict(enum.Enum):
    """What became of a TaskChange."""

    CHANGED = "changed"
    NOT_PENDING = "not pending"
    """Somebody runs it, or it has ended."""
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
    """With CHANGED: how far ahead it is looked at next."""


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
        for row in await store.run(TRANSITIONS["update_pending"], _columns(left)):
            if row[0] is None:
                released.add(row[1])
            elif answer := _answer(asked[row[0]], *row[1:]):
                answers[row[0]] = answer
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
    is_moved = change.scheduled_at is not None or change.delay is not None
    if was not in _PENDING:
        verdict = ChangeVerdict.NOT_PENDING
    elif len(change.payload or b"") > payload_limit:
        verdict = ChangeVerdict.PAYLOAD_TOO_LARGE
    elif is_moved and is_ordered_by_time:
        verdict = ChangeVerdict.ORDERED_BY_TIME
    else:
        return None
    return Changed(verdict, Status(was), lambda_name, payload_limit)


def _columns(changes: Sequence[TaskChange]) -> dict[str, object]:
    return {
        "task_ids": uuids([change.task_id for change in changes]),
        "payloads": byteas([change.payload for change in changes]),
        "encodings": int2s([change.encoding for change in changes]),
        "priorities": int2s([change.priority for change in changes]),
        "scheduled_at": timestamps([change.scheduled_at for change in changes]),
        "delays": intervals([change.delay for change in changes]),
    }
