"""The part of Client that changes tasks which nobody runs yet: each method runs its namesake of AsyncClient."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from duly.bulk import CancelFilter, PurgeFilter
from duly.enums import Priority, TaskStatus
from duly.errors import DulyError
from duly.task_reads import TaskRef
from duly.task_update import KEEP, TaskUpdate

if TYPE_CHECKING:
    from duly.client import AsyncClient

Value = TypeVar("Value")


class SyncChangeCalls(ABC):
    """Changes tasks by their ids, or by a filter."""

    _client: AsyncClient

    @abstractmethod
    def _run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the client's loop and return its value, or raise what it raises."""

    def update(
        self,
        task: TaskRef,
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        priority: Priority | None = None,
        payload: Any = KEEP,
    ) -> TaskStatus:
        """Change a task that nobody runs yet, and return its status; see AsyncClient.update."""
        return self._run(self._client.update(task, at=at, delay=delay, priority=priority, payload=payload))

    def update_many(self, updates: Iterable[TaskUpdate]) -> list[TaskStatus | DulyError]:
        """Change tasks; return for each, in order, its status now, or why it was not changed."""
        return self._run(self._client.update_many([*updates]))

    def cancel_where(
        self, *, limit: int | None = None, dry_run: bool = False, **which: Unpack[CancelFilter]
    ) -> int:
        """Cancel the live tasks that the filters find, and return how many; see AsyncClient.cancel_where."""
        return self._run(self._client.cancel_where(limit=limit, dry_run=dry_run, **which))

    def purge(self, *, limit: int | None = None, dry_run: bool = False, **which: Unpack[PurgeFilter]) -> int:
        """Delete the finished tasks that the filters find, and return how many; see AsyncClient.purge."""
        return self._run(self._client.purge(limit=limit, dry_run=dry_run, **which))
