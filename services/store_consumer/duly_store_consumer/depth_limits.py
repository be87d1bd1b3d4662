"""Limits how deep each queue may be: a few seconds of what its hosts claim. No I/O.

Without a bound, references that wait longer than enqueue_timeout are sent again, the copies lengthen the
queue, and a burst never drains. With a bound the backlog waits in the store, where priorities, gates and
cancels still apply.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from math import isinf

from duly_core.lambdas.names import QueueKey

_SMOOTHING = 0.5
_FIRST_BOUND = 1_000
_LOOK_GAP = timedelta(milliseconds=10)
_BLIND = timedelta(milliseconds=250)
"""Others may have filled a queue by then: little is sent to it before its depth is measured."""
_LOOK_EVERY = timedelta(seconds=1)
_LOOK_EVERY_EMPTY = timedelta(seconds=30)
"""For a queue that was empty and was sent nothing: its depth is measured for the metric only."""
_OTHERS_FOR = timedelta(seconds=60)


@dataclass(slots=True)
class _Queue:
    bound: int = _FIRST_BOUND
    depth: int = 0
    sent: int = 0
    """References, since the depth was measured."""
    filled_at: float = float("-inf")
    """When the first references were sent after it was empty: nothing could drain before."""
    others_at: float = float("-inf")
    """When it last held more than was sent from here: other Store Consumers send to it."""
    looked_at: float = float("-inf")
    unknown: bool = False
    """Whether it did not tell its depth when last asked."""
    rate: float | None = None
    """References claimed a second, smoothed; None before the first measurement."""


class DepthLimits:
    """Learns how fast each queue drains from its depths, and tells how much room it has."""

    def __init__(self, horizon: timedelta, least: int, most: int, look_gap: timedelta = _LOOK_GAP) -> None:
        """Make one; `look_gap` is how soon the queue measures its depth anew."""
        self._look_gap = look_gap.total_seconds()
        self._blind = max(self._look_gap, _BLIND.total_seconds())
        self._look_every = max(self._look_gap, _LOOK_EVERY.total_seconds())
        self.apply(horizon, least, most)
        self._queues: dict[QueueKey, _Queue] = {}

    def apply(self, horizon: timedelta, least: int, most: int) -> None:
        """Use these bounds from each queue's next measurement on."""
        self._horizon = horizon.total_seconds()
        self._least = least
        self._most = most

    def unsure(self, queues: Iterable[QueueKey], now: float) -> list[QueueKey]:
        """Return the queues whose depth must be measured before they are sent more."""
        return [key for key in queues if self._is_unsure(self._queue(key), now)]

    def _is_unsure(self, queue: _Queue, now: float) -> bool:
        age, held = now - queue.looked_at, queue.depth + queue.sent
        near = queue.unknown or held > queue.bound // 2
        return (
            (near and age >= self._look_gap) or (age > self._blind and held > self._least // 2) or isinf(age)
        )

    def stale(self, queues: Iterable[QueueKey], now: float) -> list[QueueKey]:
        """Return the queues whose depth is out of date, though nothing waits for it."""
        empty_age = max(self._look_every, _LOOK_EVERY_EMPTY.total_seconds())
        return [
            key
            for key in queues
            if now - (queue := self._queue(key)).looked_at
            > (self._look_every if queue.depth or queue.sent or queue.unknown else empty_age)
        ]

    def not_told(self, queues: Iterable[QueueKey], now: float) -> None:
        """Note that these did not tell their depth: they have no room until they do."""
        for key in queues:
            queue = self._queue(key)
            queue.unknown, queue.looked_at = True, now

    def looked(self, depths: Mapping[QueueKey, int], now: float) -> None:
        """Note the depths at `now` (seconds on a clock that never goes back)."""
        for key, depth in depths.items():
            queue = self._queue(key)
            held = queue.depth + queue.sent
            known = not isinf(queue.looked_at)
            elapsed = now - max(queue.looked_at, queue.filled_at)
            if depth > held and known:
                queue.others_at = now
            # while other Store Consumers send too, the depth says nothing of the drain: neither here nor to a
            # standby that sees a depth which another keeps up
            tells = depth < held or queue.sent or now - queue.others_at > _OTHERS_FOR.total_seconds()
            long_enough = elapsed >= self._look_gap and elapsed > 0
            if depth <= held and held and tells and known and not queue.unknown and long_enough:
                rate = (held - depth) / elapsed
                if queue.rate is None or (rate > queue.rate and depth == 0):
                    queue.rate = rate
                else:
                    queue.rate += _SMOOTHING * (rate - queue.rate)
                queue.bound = max(self._least, min(self._most, round(queue.rate * self._horizon)))
            queue.depth, queue.sent, queue.looked_at, queue.unknown = depth, 0, now, False
            queue.filled_at = float("-inf")

    def sent(self, key: QueueKey, references: int, now: float) -> None:
        """Note that so many references were sent to this queue."""
        queue = self._queue(key)
        if not queue.depth and not queue.sent:
            queue.filled_at = now
        queue.sent += references

    def room(self, queues: Iterable[QueueKey], batch: int, now: float) -> dict[QueueKey, int]:
        """Return how many references each queue may be sent now, at most `batch`; full ones are left out."""
        room = {}
        for key in queues:
            queue = self._queue(key)
            blind = now - queue.looked_at > self._blind and not isinf(queue.looked_at)
            most = min(batch, self._least) if blind else batch
            free = 0 if queue.unknown else min(most, queue.bound - queue.depth - queue.sent)
            if free > 0:
                room[key] = free
        return room

    def depths(self) -> dict[QueueKey, int]:
        """Return how many references each queue held when its depth was last measured."""
        return {key: queue.depth for key, queue in self._queues.items()}

    def _queue(self, key: QueueKey) -> _Queue:
        return self._queues.setdefault(key, _Queue())
