"""Decides in which order a look takes from queues: best priority first, and a share for the lower ones. No I/O."""

from collections.abc import Callable, Collection, Iterator, Sequence

from duly_core.lambdas.names import ALL_PRIORITIES, QueueKey
from duly_core.tasks.claims import Pick
from duly_core.tasks.task import ClaimedTask
from duly_wire.enums import Priority

_MOST_LAMBDAS = 500
"""In one look; the others are next."""


class FairOrder:
    """Lambdas of one priority take turns; lower priorities get a share while better ones wait, so they never starve."""

    def __init__(
        self, low_priority_share: Callable[[], float], priorities: Collection[Priority] = ALL_PRIORITIES
    ) -> None:
        """Make one.

        Args:
            low_priority_share: tells the part of the picks that lower priorities get.
            priorities: those from which it takes.
        """
        self._priorities = sorted(priorities)
        self._share = low_priority_share
        self._credit = 0.0
        """Picks that lower priorities have earned; below zero they have had more."""
        self._best_found: Priority | None = None
        """The best priority of which the last look found something."""
        self._grants = False
        """Whether the last plan put lower priorities first."""
        self._plans = 0

    def plan(self, lambdas: Sequence[str], most: int) -> list[Pick]:
        """Return from which queues to take, in order, and how much of each, for `most` in all.

        Each lambda of a priority may take its part; then each may take what is left, before a worse priority does.
        """
        self._plans += 1
        start = self._plans % len(lambdas)
        lambdas = [*lambdas[start:], *lambdas[:start]][:_MOST_LAMBDAS]
        granted = {pick.queue: pick.size for pick in self._granted(lambdas, most)}
        picks = [Pick(queue, size, 0) for queue, size in granted.items()]
        part = -(-most // len(lambdas))
        for priority in self._priorities:
            queues = [QueueKey(name, priority) for name in lambdas]
            picks += [Pick(queue, part, granted.get(queue, 0)) for queue in queues]
            if part < most:
                picks += [Pick(queue, most, granted.get(queue, 0) + part) for queue in queues]
        self._grants = bool(granted)
        return picks

    def _granted(self, lambdas: Sequence[str], most: int) -> Iterator[Pick]:
        """Yield what lower priorities may take first. Each of them may: what that is too much is owed."""
        if self._credit < 1 or self._best_found is None:
            return
        grant = min(int(self._credit), most)
        lower = [priority for priority in self._priorities if priority > self._best_found]
        for place in range(len(lower)):
            priority = lower[(place + self._plans) % len(lower)]
            for name in lambdas[:grant]:
                yield Pick(QueueKey(name, priority), max(1, grant // len(lambdas)), 0)

    def took(self, tasks: Sequence[ClaimedTask], most: int) -> None:
        """Note what a look found, that was to take `most`."""
        if not tasks:
            return
        priorities = [task.priority for task in tasks]
        best = Priority(min(priorities))
        if self._grants and self._best_found is not None and best > self._best_found:
            lower = len(tasks)  # better ones may wait: the look had no room for them
        else:
            lower = len(tasks) - priorities.count(best)
            self._best_found = best
        share = self._share()
        earned = len(tasks) * share if len(tasks) >= most else 0.0
        # what lower priorities get because nothing better is due makes no debt
        least = -float(3 * most) if self._grants else min(self._credit, 0.0)
        self._credit = max(least, min(self._credit + earned - lower, most * share + 1))
