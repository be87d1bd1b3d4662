"""The callers of ClaimWork that wait for the same lambdas, and when to look for work for them next. No I/O."""

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from duly_core.store.claims import Caller
from duly_core.store.stream import STREAM, STREAM_GAP
from duly_core.task import ClaimedTask
from duly_hsc.turns import Turns

_SMOOTHING = 0.2
_MOST_IDLE = 200


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
            other = by_holder.get(waiter.caller.holder)
            # the one with more room: a call that is filled calls for another look
            if other is None or waiter.most > other.most:
                by_holder[waiter.caller.holder] = waiter
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


class WorkGroups:
    """All groups in which somebody waits, by their lambdas; others are kept a while for whose turn it is.

    A host that is busy asks now and then only: with a new group each time it would get one priority only.
    """

    def __init__(self, low_priority_share: float) -> None:
        """Make one; `low_priority_share` is the part of starts that lower priorities get."""
        self._low_priority_share = low_priority_share
        self._groups: dict[frozenset[str], WorkGroup] = {}
        self._idle: dict[frozenset[str], WorkGroup] = {}

    def __iter__(self) -> Iterator[WorkGroup]:
        return iter(self._groups.values())

    def join(self, lambdas: frozenset[str]) -> WorkGroup:
        """Return the group of a caller."""
        group = self._groups.get(lambdas) or self._idle.pop(lambdas, None)
        if group is None:
            group = WorkGroup(lambdas, Turns(self._low_priority_share))
        self._groups[lambdas] = group
        return group

    def set_aside(self, group: WorkGroup) -> None:
        """Keep a group in which nobody waits; of many the oldest are forgotten."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        if self._groups.get(group.lambdas) is group:
            del self._groups[group.lambdas]
            self._idle[group.lambdas] = group
            while len(self._idle) > _MOST_IDLE:
                del self._idle[next(iter(self._idle))]
