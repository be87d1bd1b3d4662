"""The real store that the model is held against: one database, one loop, and a clock that stands still."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg

from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks.lifecycle import Status
from duly_wire.enums import FailureKind
from duly_wire.ids import TaskId
from tests.models.model import Row

Answer = TypeVar("Answer")

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
"""When every example begins."""

_FIXED = """
create table test_clock (at timestamptz not null, chance double precision not null);
insert into test_clock values (now(), 0.5);
create or replace function duly_now() returns timestamptz language sql volatile parallel safe
    as 'select at from test_clock';
create function public.random() returns double precision language sql volatile parallel safe
    as 'select chance from test_clock';
do 'begin execute format(''alter database %I set search_path = public, pg_catalog'', current_database()); end';
"""
"""Time and chance are the machine's: what is found once is found again. (The statements' own `random()` is
Postgres's; the one that the search path finds first is this.)"""

_EMPTY = "truncate event, event_key, event_wait, task, task_assoc, fair_lambda, fair_weight, unique_key, merged_task, session, resource, resource_use, gate, idempotency_key, lambda, attempt, dead_letter, attachment, attachment_use, attachment_usage"

_ROWS = """
select task.task_id, task.lambda, coalesce(assoc.status, task.status)::text,
    nullif(assoc.next_trigger_at, 'infinity'), assoc.due_at,
    case when assoc.task_id is null then task.expires_at else assoc.expires_at end,
    coalesce(assoc.fence, task.fence), coalesce(assoc.failures, task.failures),
    coalesce(assoc.crashes, task.crashes), assoc.token,
    case when assoc.task_id is null then task.last_token else assoc.last_token end,
    assoc.holder, coalesce(assoc.cancel_requested, false), coalesce(assoc.kill_requested, false), assoc.progress, assoc.progress_note,
    task.started_at, task.finished_at, task.result, task.failure_kind, task.failed_at,
    coalesce(assoc.crashed_at, '{}'), task.redrives,
    assoc.status is not null and task.status is not null as twice
from task left join task_assoc as assoc using (task_id)
"""


class World:
    """A migrated database, emptied by `reset`; `run` drives the store's own functions on it.

    `changes` counts the changes of status that `rows` saw, over all examples.
    """

    def __init__(self, dsn: str) -> None:
        self._runner = asyncio.Runner()
        self._connection = psycopg.connect(dsn, autocommit=True)
        self._connection.execute("set synchronous_commit = off")
        self._connection.execute(_FIXED)
        self._store = Store(StoreSettings(dsn=dsn))
        self.changes: Counter[tuple[Status, Status]] = Counter()
        self._before: dict[TaskId, Status] = {}

    @property
    def store(self) -> Store:
        return self._store

    def __enter__(self) -> Self:
        self.run(self._store.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._store.__aexit__())
        self._runner.close()
        self._connection.close()

    def run(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Run one of the store's functions to its end."""
        return self._runner.run(call)

    def reset(self) -> None:
        """Begin anew, at EPOCH."""
        self._connection.execute(_EMPTY)
        self._before = {}
        self.fix(EPOCH, 0.5)

    def fix(self, now: datetime, chance: float) -> None:
        """What `duly_now()` and `random()` say from here on."""
        self._connection.execute("update test_clock set at = %s, chance = %s", [now, chance])

    def execute(self, query: str, parameters: Sequence[object] | None = None) -> list[tuple[Any, ...]]:
        """Run a query of a test's own; its rows, if it has any."""
        cursor = self._connection.execute(query.encode(), parameters)
        return cursor.fetchall() if cursor.description else []

    def attempts(self) -> dict[TaskId, int]:
        """How many ended attempts of each task are on record."""
        rows = self._connection.execute("select task_id, count(*) from attempt group by task_id").fetchall()
        return {row[0].bytes: row[1] for row in rows}

    def dead_letters(self) -> set[TaskId]:
        return {
            row[0].bytes for row in self._connection.execute("select task_id from dead_letter").fetchall()
        }

    def rows(self) -> dict[TaskId, Row]:
        """Every task, as its rows say.

        Raises:
            AssertionError: an assoc row is there though its task ended, or without an entity.
        """
        rows = self._connection.execute(_ROWS).fetchall()
        assert not any(row[-1] for row in rows), "a task that ended still has an assoc row"
        orphans = "select count(*) from task_assoc where not exists (select from task where task_id = task_assoc.task_id)"
        assert self._connection.execute(orphans).fetchone() == (0,), "an assoc row has no entity"
        found = {row[0].bytes: _row(row[1:-1]) for row in rows}
        self.changes.update(
            (self._before[each], row.status) for each, row in found.items() if each in self._before
        )
        self._before = {task_id: row.status for task_id, row in found.items()}
        return found


def _row(values: tuple[Any, ...]) -> Row:
    row = Row(*(value.bytes if isinstance(value, UUID) else value for value in values))
    row.status = Status(row.status)
    row.crashed_at = tuple(row.crashed_at)
    row.failure_kind = FailureKind(row.failure_kind) if row.failure_kind is not None else None
    return row
