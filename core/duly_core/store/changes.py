"""Change tasks that nobody runs yet: their due time, priority and payload."""

import asyncio
import enum
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from duly_core.lifecycle import LIVE, Status
from duly_core.store.arrays import byteas, int2s, intervals, timestamps, uuids
from duly_core.store.pool import Store
from duly_core.store.statements import TRANSITIONS
from duly_core.store.tasks import get_tasks
from duly_core.task import TaskChange, TaskId

_TRIES = 3
"""A task may end between the statement and the look at what it is."""
_PENDING = frozenset({"new", "retriable_failure", "enqueued"})


class ChangeVerdict(enum.Enum):
    """What became of a TaskChange."""

    CHANGED = "changed"
    NOT_PENDING = "not pending"
    """Somebody runs it, or it has ended."""
    PAYLOAD_TOO_LARGE = "payload too large"


class Changed(NamedTuple):
    """The store's answer to a TaskChange."""

    verdict: ChangeVerdict
    status: Status
    """Now."""
    lambda_name: str = ""
    payload_limit: int = 0
    due_in: timedelta | None = None
    """With CHANGED: how far ahead it is looked at next."""


async def update_pending(store: Store, changes: Sequence[TaskChange]) -> dict[TaskId, Changed]:
    """Change tasks, each once and for itself; those that do not exist are left out of the answer.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same changes.
    """
    left = sorted(changes, key=lambda change: change.task_id)
    answers: dict[TaskId, Changed] = {}
    for _ in range(_TRIES):
        for row in await store.run(TRANSITIONS["update_pending"], _columns(left)):
            answers[row[0]] = _answer(*row[1:])
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
        left = [change for change in left if ended.get(change.task_id) in LIVE]  # redriven just now
        if not left:
            break
        await asyncio.sleep(0)
    return answers


def _answer(
    lambda_name: str, was: str, payload_limit: int, status: str | None, due_in: timedelta | None
) -> Changed:
    if status is not None:
        return Changed(ChangeVerdict.CHANGED, Status(status), lambda_name, payload_limit, due_in)
    verdict = ChangeVerdict.PAYLOAD_TOO_LARGE if was in _PENDING else ChangeVerdict.NOT_PENDING
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
