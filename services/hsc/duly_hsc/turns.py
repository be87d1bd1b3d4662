"""Decides in which order a look takes from queues: best priority first, and a share for the lower ones. No I/O."""

from collections.abc import Sequence

from duly_core.routing import Priority, QueueKey
from duly_core.task import ClaimedTask

_MOST_LAMBDAS = 500
"""In one look; the others are next."""


class Turns:
    """Lambdas of one priority take turns; lower priorities get a share while better ones wait, so they never starve."""

    def __init__(self, low_priority_share: float) -> None:
        """Make one; `low_priority_share` is the part of the picks that lower priorities get."""
        self._share = low_priority_share
        self._credit = 0.0
        self._lower = Priority.LOW
        self._best_found: Priority | None = None
        """The best priority of which the last look found something."""
        self._granted: Priority | None = None
        """The lower priority that the last plan put first."""
        self._first = 0

    def plan(self, lambdas: Sequence[str], most: int) -> dict[QueueKey, int]:
        """Return the queues to look at, in order, and how many tasks to take of each, for `most` in all."""
        if len(lambdas) > 1:
            start = self._first % len(lambdas)
            self._first += 1
            lambdas = [*lambdas[start:], *lambdas[:start]][:_MOST_LAMBDAS]
        turn = -(-most // len(lambdas))
        queues: dict[QueueKey, int] = {}
        self._granted = None
        if self._credit >= 1 and self._best_found is not None and self._best_found < Priority.LOW:
            self._lower = _next_below(self._best_found, self._lower)
            self._granted = self._lower
            granted = -(-min(int(self._credit), most) // len(lambdas))
            queues = {QueueKey(name, self._lower): granted for name in lambdas}
        for priority in Priority:
            for name in lambdas:
                queues.setdefault(QueueKey(name, priority), turn)
        return queues

    def took(self, tasks: Sequence[ClaimedTask], most: int) -> None:
        """Note what a look found, that was to take `most`."""
        if not tasks:
            return
        priorities = [task.priority for task in tasks]
        best = min(priorities)
        if (
            self._granted is not None and best >= self._granted
        ):  # better ones may wait: the look had no room for them
            lower = len(tasks)
        else:
            lower = len(tasks) - priorities.count(best)
            self._best_found = Priority(best)
        earned = len(tasks) * self._share if len(tasks) >= most else 0.0
        self._credit = max(0.0, min(self._credit + earned, most * self._share + 1) - lower)


def _next_below(best: Priority, last: Priority) -> Priority:
    """Return the lower priority whose turn it is."""
    lower = [priority for priority in Priority if priority > best]
    return next((priority for priority in lower if priority > last), lower[0])
