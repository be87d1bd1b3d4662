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


@dataclass(slots=True)
class _Queue:
    bound: int = _FIRST_BOUND
    depth: int = 0
    sent: int = 0
    """Since the depth was looked at."""
    looked_at: float = float("-inf")
    rate: float | None = None
    """References claimed a second, smoothed; None before the first measurement."""


class DepthBounds:
    """Learns from the depths it is told how fast each queue drains, and answers how much room it has."""

    def __init__(self, horizon: timedelta, least: int, most: int) -> None:
        self._horizon = horizon.total_seconds()
        self._least = least
        self._most = most
        self._queues: dict[QueueKey, _Queue] = {}

    def unsure(self, queues: Iterable[QueueKey], now: float) -> list[QueueKey]:
        """The queues whose depth should be looked at: those that might be near their bound, or were not for long."""
        return [
            key
            for key in queues
            if (queue := self._queue(key)).depth + queue.sent > queue.bound // 2
            or now - queue.looked_at > _LOOK_EVERY.total_seconds()
        ]

    def looked(self, depths: Mapping[QueueKey, int], now: float) -> None:
        """These are the depths at `now` (seconds on a clock that never goes back)."""
        for key, depth in depths.items():
            queue = self._queue(key)
            held = queue.depth + queue.sent
            elapsed = now - queue.looked_at
            if held and 0 < elapsed < float("inf"):
                rate = max(0, held - depth) / elapsed
                if queue.rate is None or (rate > queue.rate and depth == 0):
                    queue.rate = rate
                else:
                    queue.rate += _SMOOTHING * (rate - queue.rate)
                queue.bound = max(self._least, min(self._most, round(queue.rate * self._horizon)))
            queue.depth, queue.sent, queue.looked_at = depth, 0, now

    def sent(self, key: QueueKey, references: int) -> None:
        """So many references went to this queue."""
        self._queue(key).sent += references

    def room(self, queues: Iterable[QueueKey], batch: int) -> dict[QueueKey, int]:
        """How many references each queue may be sent now, at most `batch`; full ones are left out."""
        room = {}
        for key in queues:
            queue = self._queue(key)
            free = min(batch, queue.bound - queue.depth - queue.sent)
            if free > 0:
                room[key] = free
        return room

    def _queue(self, key: QueueKey) -> _Queue:
        return self._queues.setdefault(key, _Queue())
