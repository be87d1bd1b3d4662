"""Reads what explains why a task does not run: its rows, what is before it, and how fast its lambda's tasks are claimed."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duly_core.explain.statements import EXPLAIN
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import fragment
from duly_core.tasks.store import TaskRow, select_text
from duly_core.upkeep.partitions import first_id
from duly_wire.ids import TaskId

MOST_COUNTED = 10_000
"""Rows before a task; more are estimated."""
_MOST_HELD = 100_000
_MOST_CLAIMS = 500
_LATELY = timedelta(minutes=10)
"""Claims before this say nothing about the rate."""
_FEWEST_CLAIMS = 5
_LONGEST_AGO = timedelta(days=2)
"""Tasks that are older are not looked at for their claims."""

_NEWEST = UUID(int=2**128 - 1)

_TASK = EXPLAIN["explained_task"].sql

_ESTIMATE = f"explain (format json) select {fragment('tasks_ahead')}"
_COUNTS = EXPLAIN["tasks_before"].sql

_HELD = EXPLAIN["held_of_lambda"].sql

_CLAIMS = EXPLAIN["recent_claims"].sql

_RELATED = EXPLAIN["related_tasks"].sql


@dataclass(frozen=True, slots=True)
class Claims:
    """What hosts hold and claimed of a lambda."""

    running: int
    """Tasks of all its priorities that hosts hold."""
    sent: int
    """With SQS: tasks of its priority that were sent before."""
    last_claim_at: datetime | None
    """The newest claim of its priority that is known."""
    per_second: float | None
    """Claims of its priority. None: too few were found to tell."""


@dataclass(frozen=True, slots=True)
class Load:
    """What is before a task that is due."""

    ahead: int
    """Due tasks of its lambda and priority, before it; with SQS those in the queue, too."""
    is_estimated: bool
    higher: int
    """Due tasks of its lambda with higher priorities; of each at most 10,000."""
    claims: Claims

    @property
    def wait(self) -> timedelta | None:
        """How long it waits if tasks go on to be claimed at this rate."""
        rate = self.claims.per_second
        return (rate and timedelta(seconds=self.ahead / rate)) or None


async def read_explained(store: Store, task_id: TaskId) -> TaskRow | None:
    """Return all that its rows say of a task, and of its lambda; None: there is no such task.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await select_text(store, _TASK, {"task_id": UUID(bytes=task_id)})
    return rows[0] if rows else None


async def read_load(store: Store, row: TaskRow) -> Load:
    """Return what is before a task that is due or enqueued.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    now: datetime = row["now"]
    is_sent = row["status"] == "enqueued"
    # what is enqueued is before all that is not
    due_at = row["due_at"] if is_sent else row["next_trigger_at"]
    asked = {
        "lambda": row["lambda"],
        "priority": row["priority"],
        "before": min(due_at, now),
        "now": now,
        "most": MOST_COUNTED,
    }
    (counts,) = await select_text(store, _COUNTS, asked)
    claims = await read_claims(store, row, counts["head"] or row["task_id"])
    ahead = claims.sent if is_sent else counts["ahead"]
    estimated = ahead > MOST_COUNTED
    if estimated and not is_sent:
        ahead = max(MOST_COUNTED, await _estimate(store, asked))
    return Load(ahead, estimated, counts["higher"], claims)


async def read_claims(store: Store, row: TaskRow, head: UUID = _NEWEST) -> Claims:
    """Return what hosts hold and claimed of the lambda of a task; of those that ended, only what is older than `head`.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    now: datetime = row["now"]
    asked = {
        "lambda": row["lambda"],
        "priority": row["priority"],
        "most": _MOST_CLAIMS,
        "most_held": _MOST_HELD,
        "sent_at": row["sent_at"] or now,
        "head": head,
        "oldest": first_id(now - _LONGEST_AGO),
        "since": now - _LATELY,
    }
    (held,) = await select_text(store, _HELD, asked)
    ended = await select_text(store, _CLAIMS, asked)
    claims = [each["claimed_at"] for each in ended] + list(held["claims"] or ())
    return Claims(held["running"], held["sent"], max(claims, default=None), _rate(claims, now))


def _rate(claims: Collection[datetime], now: datetime) -> float | None:
    newest = sorted(each for each in claims if each > now - _LATELY)[-_MOST_CLAIMS:]
    if len(newest) < _FEWEST_CLAIMS:
        return None
    return len(newest) / max((now - newest[0]).total_seconds(), 0.001)


async def _estimate(store: Store, asked: Mapping[str, Any]) -> int:
    """Return how many tasks Postgres's planner expects to be before it."""
    (row,) = await select_text(store, _ESTIMATE, asked)
    plan = row["QUERY PLAN"]
    (found,) = json.loads(plan) if isinstance(plan, str) else plan
    return int(found["Plan"]["Plan Rows"])


async def read_related(store: Store, task_ids: Collection[UUID]) -> dict[UUID, TaskRow]:
    """Return lambda, status and scheduled_by of other tasks by id; those that were removed are left out.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    if not task_ids:
        return {}
    rows = await select_text(store, _RELATED, {"task_ids": list(task_ids)})
    return {row["task_id"]: row for row in rows}
