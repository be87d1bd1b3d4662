"""The part of the blocking client that is about time tables."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, TypeVar, Unpack

from duly.client import AsyncClient
from duly.new_time_table import TimeTableOptions
from duly.time_tables import KEEP, Backfill, TimeTable

Value = TypeVar("Value")


class SyncTimeTableCalls(ABC):
    """Each method runs its namesake of AsyncClient, and waits."""

    _client: AsyncClient

    @abstractmethod
    def _run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine on the client's loop and return its value, or raise what it raises."""

    def create_table(
        self,
        name: str,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        **options: Unpack[TimeTableOptions],
    ) -> TimeTable:
        """Create a time table: a task of a lambda at each of its ticks; see AsyncClient.create_table."""
        return self._run(self._client.create_table(name, lambda_name, payload, **options))

    def change_table(
        self,
        name: str,
        lambda_name: str | Callable[..., Any] | None = None,
        payload: Any = KEEP,
        **options: Unpack[TimeTableOptions],
    ) -> TimeTable:
        """Change what is said here of a time table; see AsyncClient.change_table."""
        return self._run(self._client.change_table(name, lambda_name, payload, **options))

    def table(self, name: str, *, next_ticks: int = 0) -> TimeTable:
        """Return a time table with so many of its next ticks; see AsyncClient.table."""
        return self._run(self._client.table(name, next_ticks=next_ticks))

    def tables(self, *, lambda_name: str = "") -> list[TimeTable]:
        """Return the time tables, of a lambda or all, by name, without their payloads."""
        return self._run(self._client.tables(lambda_name=lambda_name))

    def pause_table(self, name: str, *, note: str = "") -> TimeTable:
        """Pause a time table until it is resumed; see AsyncClient.pause_table."""
        return self._run(self._client.pause_table(name, note=note))

    def resume_table(self, name: str) -> TimeTable:
        """Resume a time table with its first tick from now on; see AsyncClient.resume_table."""
        return self._run(self._client.resume_table(name))

    def delete_table(self, name: str) -> TimeTable:
        """Delete a time table, and return it as it was; see AsyncClient.delete_table."""
        return self._run(self._client.delete_table(name))

    def backfill_table(
        self, name: str, start: datetime, end: datetime | None = None, *, dry_run: bool = False
    ) -> Backfill:
        """Schedule the ticks of a past range at once; see AsyncClient.backfill_table."""
        return self._run(self._client.backfill_table(name, start, end, dry_run=dry_run))
