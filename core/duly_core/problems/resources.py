"""Finds resources whose units are taken, or that have none, while tasks wait for them."""

from collections import Counter
from datetime import datetime
from typing import Any

from duly_core.explain.waits import read_holders
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import AboutTask, FoundProblem, found
from duly_core.problems.queues import LONG
from duly_core.problems.statements import PROBLEMS

_MOST_LOOKED_AT = 2_000
_MOST_WAITERS = 1_000
"""Of a resource."""
_MOST_CARDS = 50
_MOST_HOLDERS = 5
"""Resources whose holders are looked for in a round."""


async def resources_full(store: Store, now: datetime) -> list[FoundProblem]:
    """Return a problem for each resource for whose units a task has waited for long: those with most waiters.

    Raises:
        StoreUnavailableError: ask again.
    """
    asked = {"most_looked_at": _MOST_LOOKED_AT, "most": _MOST_WAITERS}
    waits: dict[str, _Waits] = {}
    for name, capacity, note, changed_at, key, lambda_name, count, due_at in await store.run(
        PROBLEMS["parked_by_resource"], asked
    ):
        of_resource = waits.setdefault(name, _Waits(name, capacity, note, changed_at))
        of_resource.add(key, lambda_name, count, due_at)
    late = [each for each in waits.values() if each.oldest_at is not None and now - each.oldest_at >= LONG]
    late.sort(key=lambda each: -each.waiters.total())
    problems = []
    for place, each in enumerate(late[:_MOST_CARDS]):
        holders: Any = ()
        if place < _MOST_HOLDERS and each.capacity:
            holders = await read_holders(store, each.name, each.keys.most_common(1)[0][0])
        problems.append(each.problem(holders))
    return problems


class _Waits:
    """What waits for one resource."""

    def __init__(self, name: str, capacity: int, note: str, changed_at: datetime) -> None:
        self.name, self.capacity, self.note, self.changed_at = name, capacity, note, changed_at
        self.waiters: Counter[str] = Counter()
        self.keys: Counter[str] = Counter()
        self.oldest_at: datetime | None = None

    def add(self, key: str, lambda_name: str, count: int, due_at: datetime) -> None:
        self.waiters[lambda_name] += count
        self.keys[key] += count
        self.oldest_at = due_at if self.oldest_at is None else min(self.oldest_at, due_at)

    def problem(self, holders: Any) -> FoundProblem:
        assert self.oldest_at is not None  # noqa: S101 (it has waiters)
        return found(
            Kind.RESOURCE_FULL,
            # no units at all is what somebody decided
            Severity.WARNING if self.capacity else Severity.INFORMATION,
            self.oldest_at,
            self.name,
            lambdas=self.waiters,
            at_least=self.waiters.total() >= _MOST_WAITERS,
            holders=[
                AboutTask(
                    str(each["task_id"]),
                    each["lambda"],
                    each["status"],
                    each["held_since_at"],
                    units=each["units"] or 0,
                )
                for each in holders
            ],
            capacity=self.capacity,
            note=self.note,
            keys=len([key for key in self.keys if key]),
            changed_at=self.changed_at.isoformat(),
        )
