"""Reads what is kept of a task's runs and rare events, for people."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from duly_core.postgres.pool import Store
from duly_core.postgres.statements import load
from duly_core.tasks.store import TaskRow, select_text
from duly_wire.ids import TaskId

_EPOCH = datetime.fromtimestamp(0, UTC)

_RUNS = load("tasks/history.sql")["runs_of_task"].sql


@dataclass(frozen=True, slots=True)
class Event:
    """A rare move of a task, as the statement that made it wrote it."""

    kind: str
    happened_at: datetime
    next_trigger_at: datetime | None = None
    about: str = ""
    """What it has to do with: a resource, another task, what was changed."""
    principal: str = ""
    """Who asked for it."""


async def read_runs(store: Store, task_id: TaskId) -> list[TaskRow]:
    """Return the newest 100 runs of a task that did not succeed, oldest first.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    return (await select_text(store, _RUNS, {"task_id": UUID(bytes=task_id)}))[::-1]


def events_of(*kept: Sequence[dict[str, Any]] | None) -> list[Event]:
    """Return events as the columns `events` of a task's rows have them, in their order; None: no event."""
    return [
        Event(
            event["kind"],
            _instant(event["at"]),
            _instant(event["next"]) if "next" in event else None,
            event.get("about", ""),
            event.get("by", ""),
        )
        for events in kept
        for event in events or ()
    ]


def _instant(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
