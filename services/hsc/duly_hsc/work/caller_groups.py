"""The callers of ClaimWork that wait for the same lambdas, and when to look for work for them next. No I/O."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from math import exp

from duly_core.lambdas.names import ALL_PRIORITIES
from duly_core.postgres.rate_detector import STREAM, STREAM_GAP
from duly_core.tasks.claims import Caller
from duly_core.tasks.task import ClaimedTask
from duly_core.traffic.group_commit import GROUPS_WITHOUT_REST, USELESS_RESTS
from duly_hsc.lease_timeouts import LeaseTimeouts
from duly_hsc.work.due_times import DueTimes
from duly_hsc.work.fair_order import FairOrder
from duly_hsc.work.look_turn import LookTurn
from duly_wire.enums import Priority

_SMOOTHING = 0.2
_FAST = 200
"""Single tasks a second, from which on they wait for others."""
_TOGETHER = 2.5
"""So many intervals between two tasks, at least, such a rest has: less would often bring one task only."""
_MOST_LEFT_OUT = 1_024
_RATE_OVER = 0.05
"""Seconds over which the rate of tasks is smoothed: two of them in one millisecond are no stream."""
_FAR_LESS = 4
_PASSED_OVER = 2
"""Looks that a caller with little room waits for those with more."""
_MOST_BYTES_A_LOOK = 32 * 1024 * 1024
"""Of payload, about, in one answer of the store."""
_MOST_IDLE = 200
_Key = tuple[frozenset[str], frozenset[Priority]]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a caller."""

    tasks: list[ClaimedTask]
    waited: timedelta
    """From the request's arrival to the statement that made the claims."""
    timeouts: LeaseTimeouts | None = None
    """Under which the claims were made; None: there are none."""


@dataclass(slots=True, eq=False)
class WaitingCall:
    """One call of ClaimWork."""

    caller: Caller
    most: int
    arrived_at: float
    answer: asyncio.Future[Claimed]
    in_look: bool = False
    """Whether a look is under way that may claim for it: it must be answered by that."""
    passed_over: int = 0
    """Looks that were for callers with more room."""
    is_over: bool = False
    """Its time was over while a look was under way."""
    turn: LookTurn | None = None
    """Of a call that waits in other stores, too."""

    def is_open(self) -> bool:
        """Tell whether a look may claim for it now."""
        return not self.answer.done() and (self.turn is None or self.turn.is_open())


@dataclass(slots=True, eq=False)
class CallerGroup:
    """Callers by the lambdas and priorities that they ask for: one statement can claim for all of them."""

    lambdas: frozenset[str]
    priorities: frozenset[Priority]
    fair_order: FairOrder
    due_times: DueTimes
    """Shared by the groups of these priorities."""
    waiters: list[WaitingCall] = field(default_factory=list)
    is_looking: bool = False
    rests_until: float = float("-inf")
    timer: asyncio.TimerHandle | None = None
    began_at: float = float("-inf")
    bytes_a_task: float = 16 * 1024
    """Of payload, smoothed; a guess before the first look."""
    largest: int = 0
    """Bytes of the largest recent payload."""
    has_rested: bool = False
    """Whether single tasks waited for others after the last look."""
    useless_rests: int = 0
    """So many rests in a row brought nothing together."""
    without_rest: int = 0
    """So many looks are followed by the batching gap alone."""
    left_out: int = GROUPS_WITHOUT_REST
    """So many will be, after the next useless rests."""
    rate: float = 0.0
    """Tasks a second that looks found in the last tenth of a second, about."""

    def serves(self, lambdas: Collection[str]) -> bool:
        """Tell whether its callers take any of these lambdas (empty: any at all)."""
        return not lambdas or not self.lambdas.isdisjoint(lambdas)

    def takes_all_of(self, name: str) -> bool:
        """Tell whether its callers take all tasks of a lambda, whatever their priority."""
        return name in self.lambdas and self.priorities == ALL_PRIORITIES

    def is_waited_in(self) -> bool:
        """Tell whether somebody still waits for an answer."""
        return any(not waiter.answer.done() for waiter in self.waiters)

    def is_open(self) -> bool:
        """Tell whether a look may claim for somebody now."""
        return any(waiter.is_open() for waiter in self.waiters)

    def choose(self, most_bytes: int) -> tuple[list[WaitingCall], int]:
        """Choose for whom the next look is, one call of each holder, and how many tasks each of them may get.

        All get the same number, so those who ask for far less wait for later looks.
        """
        by_holder: dict[str, WaitingCall] = {}
        for waiter in self.waiters:
            if not waiter.is_open():
                continue
            other = by_holder.get(waiter.caller.holder)
            # the one with more room: a call that is filled calls for another look
            if other is None or waiter.most > other.most:
                by_holder[waiter.caller.holder] = waiter
        if not by_holder:
            return [], 0
        waiters = list(by_holder.values())
        if all(waiter.passed_over < _PASSED_OVER for waiter in waiters):
            least = max(waiter.most for waiter in waiters) / _FAR_LESS
            for waiter in waiters:
                waiter.passed_over += waiter.most < least
            waiters = [waiter for waiter in waiters if waiter.most >= least]
        size = max(1.0, self.bytes_a_task)
        each = min(waiter.most for waiter in waiters)
        each = max(1, min(each, int(most_bytes / 2 / size), int(_MOST_BYTES_A_LOOK / max(1, self.largest))))
        return waiters[: max(1, int(_MOST_BYTES_A_LOOK / size / each))], each

    def took(self, tasks: Sequence[ClaimedTask], most: int, now: float, gap: timedelta) -> None:
        """Note what a look found that began at `now`; after one that found all there was the next one rests."""
        self.fair_order.took(tasks, most)
        elapsed, self.began_at = now - self.began_at, now
        if elapsed > 0:
            self.rate += (1 - exp(-elapsed / _RATE_OVER)) * (len(tasks) / elapsed - self.rate)
        if not tasks:
            return
        sizes = [len(task.payload) for task in tasks]
        self.bytes_a_task += _SMOOTHING * (sum(sizes) / len(sizes) - self.bytes_a_task)
        self.largest = max(*sizes, int(self.largest * (1 - _SMOOTHING)))
        if len(tasks) < most:
            streams = len(tasks) >= STREAM * elapsed
            rest = STREAM_GAP if streams else self._rest_of_single_tasks(len(tasks)) if gap else gap
            self.rests_until = now + max(gap, rest).total_seconds()

    def _rest_of_single_tasks(self, found: int) -> timedelta:
        """Return how long single tasks wait for others after a look that found so many.

        It grows with the rate: from 200 tasks a second on two of them are taken together, at 500 five. Where the next task follows from
        the end of the last one, as in a session, rests bring nothing together, and are left out, ever longer.
        """
        if found > 1:
            self.useless_rests = self.without_rest = 0
            self.left_out = GROUPS_WITHOUT_REST
        elif self.has_rested:
            self.useless_rests += 1
            if self.useless_rests >= USELESS_RESTS:
                self.without_rest = self.left_out
                self.left_out = min(_MOST_LEFT_OUT, 2 * self.left_out)
        self.has_rested = self.without_rest == 0 and self.rate >= _FAST
        if self.without_rest:
            self.without_rest -= 1
        if not self.has_rested:
            return timedelta()
        return min(
            STREAM_GAP, max(STREAM_GAP * (self.rate / STREAM), timedelta(seconds=_TOGETHER / self.rate))
        )


class CallerGroups:
    """All groups in which somebody waits; others are kept a while for whose turn it is.

    A host that is busy asks now and then only: with a new group each time it would get one priority only.
    """

    def __init__(self, low_priority_share: Callable[[], float]) -> None:
        """Make one; `low_priority_share` tells the part of starts that lower priorities get."""
        self._low_priority_share = low_priority_share
        self._groups: dict[_Key, CallerGroup] = {}
        self._idle: dict[_Key, CallerGroup] = {}
        self.due_times: dict[frozenset[Priority], DueTimes] = {}
        """By the priorities that callers ask for: few look at single priorities, and what they see holds for these only."""

    def __iter__(self) -> Iterator[CallerGroup]:
        return iter(self._groups.values())

    def join(self, lambdas: frozenset[str], priorities: frozenset[Priority] = ALL_PRIORITIES) -> CallerGroup:
        """Return the group of a caller."""
        key = lambdas, priorities
        group = self._groups.get(key) or self._idle.pop(key, None)
        if group is None:
            due_times = self.due_times.setdefault(priorities, DueTimes())
            group = CallerGroup(
                lambdas, priorities, FairOrder(self._low_priority_share, priorities), due_times
            )
        self._groups[key] = group
        return group

    def set_aside(self, group: CallerGroup) -> None:
        """Keep a group in which nobody waits; of many the oldest are forgotten."""
        if group.timer is not None:
            group.timer.cancel()
            group.timer = None
        key = group.lambdas, group.priorities
        if self._groups.get(key) is group:
            del self._groups[key]
            self._idle[key] = group
            while len(self._idle) > _MOST_IDLE:
                del self._idle[next(iter(self._idle))]
