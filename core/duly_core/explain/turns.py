"""Reads which turns are before a task whose fair key takes turns with others."""

from dataclasses import dataclass
from datetime import datetime

from duly_core.explain.statements import EXPLAIN
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow, select_text

MOST_KEYS = 1_000
"""That are looked at."""
MOST_COUNTED = 10_000
"""Tasks of a key that are counted."""

_TURNS = EXPLAIN["turns_before"].sql


@dataclass(frozen=True, slots=True)
class Turns:
    """What is before a task in the turns of its lambda and priority."""

    key: str
    """Empty: that of tasks without one."""
    ahead: int
    """Due tasks of its key before it; more than MOST_COUNTED: at least so many."""
    weight: int
    """Tasks of its key that start in a turn."""
    others: int
    """Other keys that have a due task."""
    has_more_keys: bool
    """There may be more: not all keys were looked at."""


async def read_turns(store: Store, row: TaskRow) -> Turns | None:
    """Return the turns that are before a task that is due; None: the keys of its lambda take no turns.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    now: datetime = row["now"]
    key = row["fair_key"] or ""
    rows = await select_text(
        store,
        _TURNS,
        {
            "lambda": row["lambda"],
            "priority": row["priority"],
            "key": key,
            "before": min(row["next_trigger_at"], now),
            "now": now,
            "most": MOST_COUNTED,
            "most_keys": MOST_KEYS,
        },
    )
    if not rows:
        return None
    (found,) = rows
    return Turns(key, found["ahead"], found["weight"], found["others"], found["has_more"])
