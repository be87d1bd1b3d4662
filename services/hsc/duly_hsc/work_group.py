"""The callers of ClaimWork that wait for the same lambdas, and when to look for work for them next. No I/O."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from duly_core.store.claims import Caller
from duly_core.store.stream import STREAM, STREAM_GAP
from duly_core.task import ClaimedTask
from duly_hsc.turns import Turns

_SMOOTHING = 0.2


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a caller."""

    tasks: list[ClaimedTask]
    waited: timedelta
    """From the request's arrival to the statement that made the claims."""


@dataclass(slots=True, eq=False)
class Waiter:
    """One call of ClaimWork."""

    caller: Caller
    most: int
    arrived_at: float
    answer: asyncio.Future[Claimed]
    in_look: bool = False
    """Whether a look is under way that may claim for it: it must be answered by that."""
    is_over: bool = False
    """Its time was over while a look was under way."""


@dataclass(slots=True, eq=False)
class WorkGroup:
    """Callers by the set of lambdas that they serve: one statement can claim for all of them."""

    lambdas: frozenset[str]
    turns: Turns
    waiters: list[Waiter] = field(default_factory=list)
    is_looking: bool = False
    rests_until: float = float("-inf")
    timer: asyncio.TimerHandle | None = None
    began_at: float = float("-inf")
    bytes_a_task: float = 0.0
    """Of payload, smoothed."""

    def serves(self, lambdas: Collection[str]) -> bool:
        """Tell whether its callers take any of these lambdas (empty: any at all)."""
        return not lambdas or not self.lambdas.isdisjoint(lambdas)

    def choose(self, most_bytes: int) -> tuple[list[Waiter], int]:
        """Choose for whom the next look is, one call of each holder, and how many tasks each of them may get."""
        by_holder: dict[str, Waiter] = {}
        for waiter in self.waiters:
            by_holder.setdefault(waiter.caller.holder, waiter)
        chosen = list(by_holder.values())
        most = min(waiter.most for waiter in chosen)
        if self.bytes_a_task:
            most = min(most, max(1, int(most_bytes / 2 / self.bytes_a_task)))
        return chosen, most

    def took(self, tasks: Sequence[ClaimedTask], most: int, now: float, gap: timedelta) -> None:
        """Note what a look found that began at `now`; after one that found all there was the next one rests."""
        self.turns.took(tasks, most)
        elapsed, self.began_at = now - self.began_at, now
        if not tasks:
            return
        size = sum(len(task.payload) for task in tasks) / len(tasks)
        self.bytes_a_task += _SMOOTHING * (size - self.bytes_a_task) if self.bytes_a_task else size
        if len(tasks) < most:
            streams = len(tasks) >= STREAM * elapsed
            self.rests_until = now + (max(gap, STREAM_GAP) if streams else gap).total_seconds()
