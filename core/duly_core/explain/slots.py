"""Reads which tasks hold the slots of the Executors that serve a lambda."""

from collections.abc import Sequence
from dataclasses import dataclass

from duly_core.explain.statements import EXPLAIN
from duly_core.explain.waits import MOST_SHOWN
from duly_core.postgres.pool import Store
from duly_core.tasks.store import TaskRow, select_text

_EXECUTORS = EXPLAIN["executors_of_lambda"].sql

_HELD = EXPLAIN["held_by_executors"].sql
_MOST_HELD = 100_000


@dataclass(frozen=True, slots=True)
class TakenSlots:
    """The slots of the Executors that serve a lambda, all of which are taken."""

    slots: int
    holders: Sequence[TaskRow]
    """The tasks that were claimed first; at most 20, with lambda, scheduled_by, held_since_at and holder."""


async def read_taken_slots(store: Store, lambda_name: str) -> TakenSlots | None:
    """Return what holds the slots for a lambda, or for a version of one (NAME@VERSION); None: some are free, or nobody knows.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    base, _, version = lambda_name.partition("@")
    asked = {"lambda": lambda_name, "base": base, "version": version, "most_held": _MOST_HELD}
    executors = await select_text(store, _EXECUTORS, asked)
    if not executors or any(each["held"] < each["slots"] for each in executors):
        return None
    holders = [each["executor_id"] for each in executors]
    held = await select_text(store, _HELD, {"holders": holders, "most": MOST_SHOWN, "most_held": _MOST_HELD})
    return TakenSlots(sum(each["slots"] for each in executors), held)
