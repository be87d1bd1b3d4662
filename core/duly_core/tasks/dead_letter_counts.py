"""Counts new dead letters by lambda and kind, as they become visible."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import load
from duly_core.process.newer_values import known
from duly_wire.enums import FailureKind

_SETTLED = timedelta(seconds=15)
"""Longer than a statement may take: a dead letter is visible by then, whatever its time says."""
_MOST = 10_000
"""Dead letters for each statement, and those of the same microsecond as the last."""

_STATEMENTS = load("tasks/dead_letter_counts.sql")
_NEWEST = _STATEMENTS["newest_dead_letter"]
_SINCE = _STATEMENTS["dead_letters_since"]
_KINDS = _STATEMENTS["failure_kinds"]


@dataclass(slots=True)
class NewDeadLetters:
    """What was counted, and up to when."""

    until: datetime
    """Pass it to the next count."""
    newest_at: datetime | None = None
    """When the newest dead letter ended, counted or not; None: there is none."""
    by_kind: Counter[tuple[str, FailureKind | None]] = field(default_factory=Counter)
    """By lambda and kind; None: a kind of a newer release."""


async def count_new(store: Store, after: datetime | None) -> NewDeadLetters:
    """Count the dead letters after that time, up to some seconds ago; with None none.

    Raises:
        StoreUnavailableError: nothing was counted.
    """
    ((settled_at, newest_at),) = await store.run(_NEWEST, {"settled": _SETTLED})
    if after is None or newest_at is None or newest_at <= after:
        return NewDeadLetters(max(after or settled_at, settled_at), newest_at)
    rows = await store.run(_SINCE, {"after": after, "until": settled_at, "most": _MOST})
    counted = NewDeadLetters(max(after, rows[0][0]), newest_at)
    lambdas = {task_id: name for _, task_id, name in rows if task_id is not None}
    if lambdas:
        for task_id, kind in await _kinds(store, [*lambdas]):
            counted.by_kind[lambdas[task_id], kind] += 1
    return counted


async def _kinds(store: Store, task_ids: Sequence[bytes]) -> list[tuple[bytes, FailureKind | None]]:
    """Return the kinds of those that are still there."""
    rows = await store.run(_KINDS, {"task_ids": uuids(task_ids)})
    return [(task_id, known(FailureKind, kind)) for task_id, kind in rows if kind is not None]
