"""How deep each queue may be: a few seconds of what its hosts really claim. Pure arithmetic, no I/O.

Without a bound, references that wait longer than enqueue_timeout are sent again, the copies lengthen the
queue, and a burst never drains (architecture, rule 7). With it the backlog waits in the store, where
priorities, gates and cancels still bind.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from duly_core.routing import QueueKey

_SMOOTHING = 0.5
_FIRST_BOUND = 1_000
_LOOK_EVERY = timedelta(milliseconds=250)
_LOOK_GAP = timedelta(milliseconds=10)


@dataclass(slots=True)
class _Queue:
    bound: int = _FIRST_BOUND
    depth: int = 0
    sent: int = 0
    """Since the depth was looked at."""
    looked_at: float = float("-inf")
    unknown: bool = False
    """It did not tell its depth when it was last asked."""
    rate: float | None = None
    """References claimed a second, smoothed; None before the first measurement."""


class DepthBounds:
    """Learns from the depths it is told how fast each queue drains, and answers how much room it has."""

    def __init__(self, horizon: timedelta, least: int, most: int, look_gap: timedelta = _LOOK_GAP) -> None:
        """Make one; `look_gap` is how soon a queue's depth is worth another look: it must be measured anew by then."""
        self._look_gap = look_gap.total_seconds()
        self._look_every = max(self._look_gap, _LOOK_EVERY.total_seconds())
        self.tune(horizon, least, most)
        self._queues: dict[QueueKey, _Queue] = {}

    def tune(self, horizon: timedelta, least: int, most: int) -> None:
        """Bound queues so from their next look on; what was learned of them stays."""
        self._horizon = horizon.total_seconds()
        self._least = least
        self._most = most

    def unsure(self, queues: Iterable[QueueKey], now: float) -> list[QueueKey]:
        """The queues whose depth should be looked at: those that might be near their bound, or were not for long."""
        return [
            key
            for key in queues
            if self._may_be_near(queue := self._queue(key), now) or now - queue.looked_at > self._look_every
        ]

    def _may_be_near(self, queue: _Queue, now: float) -> bool:
        near = queue.unknown or queue.depth + queue.sent > queue.bound // 2
        return near and now - queue.looked_at >= self._look_gap

    def not_told(self, queues: Iterable[QueueKey], now: float) -> None:
        """These did not tell their depth: they get nothing until they do, and what was learned of them stays."""
        for key in queues:
            queue = self._queue(key)
            queue.unknown, queue.looked_at = True, now

    def looked(self, depths: Mapping[QueueKey, int], now: float) -> None:
        """These are the depths at `now` (seconds on a clock that never goes back)."""
        for key, depth in depths.items():
            queue = self._queue(key)
            held = queue.depth + queue.sent
            elapsed = now - queue.looked_at
            # more than was sent from here: other Store Consumers send too, and nothing can be told of the drain
            if depth <= held and held and not queue.unknown and 0 < elapsed < float("inf"):
                rate = (held - depth) / elapsed
                if queue.rate is None or (rate > queue.rate and depth == 0):
                    queue.rate = rate
                else:
                    queue.rate += _SMOOTHING * (rate - queue.rate)
                queue.bound = max(self._least, min(self._most, round(queue.rate * self._horizon)))
            queue.depth, queue.sent, queue.looked_at, queue.unknown = depth, 0, now, False

    def sent(self, key: QueueKey, references: int) -> None:
        """So many references went to this queue."""
        self._queue(key).sent += references

    def room(self, queues: Iterable[QueueKey], batch: int) -> dict[QueueKey, int]:
        """How many references each queue may be sent now, at most `batch`; full ones are left out."""
        room = {}
        for key in queues:
            queue = self._queue(key)
            free = 0 if queue.unknown else min(batch, queue.bound - queue.depth - queue.sent)
            if free > 0:
                room[key] = free
        return room

    def _queue(self, key: QueueKey) -> _Queue:
        return self._queues.setdefault(key, _Queue())
