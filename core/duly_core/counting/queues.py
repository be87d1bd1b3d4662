"""Counts the live tasks of each lambda and priority by status, at a bounded cost however many there are.

What is due or to run later is counted by index, up to a limit for each queue. What is taken and what waits is counted by
index, up to a limit for all. Beyond a limit a sample of the table's pages tells how many there are, and the count is marked
as an estimate. A table that is no larger than a sample is read whole.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from psycopg.rows import TupleRow

from duly_core.counting.queue_statements import PENDING, PRESENT, SAMPLE, TAKEN, WAITING
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import int2s, texts
from duly_core.postgres.pool import Store
from duly_wire.enums import Priority

READY, SCHEDULED, BACKING_OFF, PARKED = "ready", "scheduled", "backing_off", "waiting"
ENQUEUED, CLAIMED, PROCESSING = "enqueued", "claimed", "processing"
_PENDING = (READY, SCHEDULED, BACKING_OFF)
_TAKEN = (ENQUEUED, CLAIMED, PROCESSING)


@dataclass(frozen=True, slots=True)
class CountLimits:
    """How much one count reads."""

    pending: int = 200_000
    """Rows that are due or to run later, of all queues together."""
    queue: int = 10_000
    """The same, of one queue."""
    others: int = 20_000
    """Rows that are taken, and as many that wait."""
    pages: int = 2_000
    """Of a sample."""


_LEAST = 10
"""Rows of one queue, however many queues there are."""
_QUEUES_AT_A_TIME = 2_000
"""Of one statement: the rows of its answer are read without a pause for other calls."""
_PRIORITIES = {int(each): each for each in Priority}
LIMITS = CountLimits()


class Count(NamedTuple):
    """A number of tasks."""

    number: int = 0
    is_estimated: bool = False


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """The live tasks of a queue."""

    counts: Mapping[str, Count]
    """By class; a class that is left out has none."""
    oldest_ready_at: datetime | None = None
    oldest_claim_at: datetime | None = None
    cut: frozenset[str] = frozenset()
    """Classes that were not counted to their end."""

    def count(self, kind: str) -> Count:
        """Return how many there are of a class."""
        return self.counts.get(kind, Count())

    @property
    def backlog(self) -> int:
        """How many are due, those in queues of SQS among them."""
        return self.count(READY).number + self.count(ENQUEUED).number


EMPTY = QueueCounts({})


class Sample(NamedTuple):
    """How many tasks a part of the table has."""

    numbers: Mapping[tuple[QueueKey, str], int]
    """Multiplied to what the whole table may have."""
    is_whole: bool
    """All of the table was read."""

    def settle(self, key: QueueKey, kind: str, counted: int) -> Count:
        """Return how many there are of a class that was not counted to its end."""
        return Count(max(counted, self.numbers.get((key, kind), 0)), not self.is_whole)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All queues with live tasks at one time."""

    counted_at: datetime
    queues: Mapping[QueueKey, QueueCounts]
    sample: Sample | None
    recounted: dict[QueueKey, tuple[int, QueueCounts]] = field(default_factory=dict, compare=False)
    """What `recount` found, and how far it counted: many ask for the same queues while a snapshot is kept."""
    lists: dict[Hashable, Any] = field(default_factory=dict, compare=False)
    """Lists of its queues in some order, by what was asked for; its keeper fills it."""


class _Pending(NamedTuple):
    """What is due or to run later of a queue."""

    ready: int
    scheduled: int
    backing_off: int
    oldest_ready_at: datetime | None
    is_cut: bool

    @property
    def cut(self) -> frozenset[str]:
        """Classes that were not counted to their end."""
        if not self.is_cut:
            return _NOTHING
        # in the order of their time: behind one that runs later, none is due
        return _LATER if self.scheduled or self.backing_off else _ALL_PENDING


_NOTHING: frozenset[str] = frozenset()
_LATER, _ALL_PENDING = frozenset(_PENDING[1:]), frozenset(_PENDING)
_NONE_PENDING = _Pending(0, 0, 0, None, is_cut=False)


async def count_queues(store: Store, limits: CountLimits = LIMITS) -> Snapshot:
    """Count all queues.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    others = {"most": limits.others + 1}
    # a connection for each statement: all of them together may take longer than one may be held
    present = await store.run(PRESENT, {})
    (counted_at,) = (now for now, *_ in present if now is not None)
    keys = [_key(name, priority) for now, name, priority in present if now is None]
    most = _most_of_a_queue(len(keys), limits)
    pending = await _count_pending(store, keys, counted_at, most, tells_apart=False)
    taken = await store.run(TAKEN, others)
    waiting = await store.run(WAITING, others)
    cut = frozenset(_TAKEN if _is_cut(taken, limits) else ()) | frozenset(
        (PARKED,) if _is_cut(waiting, limits) else ()
    )
    sample = None
    if cut or any(each.is_cut for each in pending.values()):
        sample = await _sample(store, counted_at, limits)
    # there may be tens of thousands of queues: other calls have their turn meanwhile
    queues = await asyncio.to_thread(_put_together, pending, [*taken, *waiting], cut, sample)
    return Snapshot(counted_at, queues, sample)


async def recount(
    store: Store, snapshot: Snapshot, keys: Collection[QueueKey], limits: CountLimits = LIMITS
) -> dict[QueueKey, QueueCounts]:
    """Return some queues of a snapshot; what is due or to run later is counted further than for all.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    found = {key: snapshot.queues.get(key, EMPTY) for key in keys}
    cut = [key for key, each in found.items() if each.cut]
    most = _most_of_a_queue(len(cut), limits)
    known = snapshot.recounted
    found |= {key: known[key][1] for key in cut if key in known}
    unknown = [key for key in cut if key not in known or (known[key][0] < most and known[key][1].cut)]
    if unknown:
        counted = await _count_pending(store, unknown, snapshot.counted_at, most, tells_apart=True)
        for key, pending in counted.items():
            before = snapshot.queues[key]
            others = {kind: count for kind, count in before.counts.items() if kind not in _ALL_PENDING}
            counts = _queue(key, pending, others, snapshot.sample, before.oldest_claim_at)
            # another call may have counted further meanwhile
            if key not in known or known[key][0] < most:
                known[key] = most, counts
            found[key] = known[key][1]
    return found


def _most_of_a_queue(queues: int, limits: CountLimits) -> int:
    return max(_LEAST, min(limits.queue, limits.pending // max(1, queues)))


async def _count_pending(
    store: Store, keys: Sequence[QueueKey], counted_at: datetime, most: int, *, tells_apart: bool
) -> dict[QueueKey, _Pending]:
    found: dict[QueueKey, _Pending] = {}
    for start in range(0, len(keys), _QUEUES_AT_A_TIME):
        some = keys[start : start + _QUEUES_AT_A_TIME]
        parameters = {
            "lambdas": texts([key.lambda_name for key in some]),
            "priorities": int2s([key.priority for key in some]),
            "now": counted_at,
            "most": most,
            "tells_apart": tells_apart,
        }
        for name, priority, ready, scheduled, backing_off, oldest in await store.run(PENDING, parameters):
            is_cut = ready + scheduled + backing_off >= most
            found[_key(name, priority)] = _Pending(ready, scheduled, backing_off, oldest, is_cut)
    return found


async def _sample(store: Store, counted_at: datetime, limits: CountLimits) -> Sample:
    rows = await store.run(SAMPLE, {"now": counted_at, "pages": limits.pages})
    return Sample(
        {
            (_key(name, priority), kind): round(number * factor)
            for name, priority, kind, number, factor in rows
            if number
        },
        is_whole=all(row[-1] <= 1 for row in rows),
    )


def _put_together(
    pending: Mapping[QueueKey, _Pending],
    others: Sequence[TupleRow],
    cut: Collection[str],
    sample: Sample | None,
) -> dict[QueueKey, QueueCounts]:
    """Return all queues with their counts; classes in `cut` were not counted to their end."""
    numbers: dict[QueueKey, dict[str, Count]] = defaultdict(dict)
    claimed_at: dict[QueueKey, datetime] = {}
    for name, priority, kind, number, since in others:
        key = _key(name, priority)
        numbers[key][kind] = sample.settle(key, kind, number) if sample and kind in cut else Count(number)
        if kind == PROCESSING:
            claimed_at[key] = since
    if sample and cut:
        for key, kind in sample.numbers:
            if kind in cut and kind not in numbers[key]:
                numbers[key][kind] = sample.settle(key, kind, 0)
    return {
        key: _queue(key, pending.get(key, _NONE_PENDING), numbers.get(key, {}), sample, claimed_at.get(key))
        for key in pending.keys() | numbers.keys()
    }


def _queue(
    key: QueueKey,
    pending: _Pending,
    others: Mapping[str, Count],
    sample: Sample | None,
    oldest_claim_at: datetime | None,
) -> QueueCounts:
    counts = dict(others)
    cut = pending.cut
    for kind, number in zip(_PENDING, pending[:3], strict=True):
        count = sample.settle(key, kind, number) if cut and sample and kind in cut else Count(number)
        if count.number:
            counts[kind] = count
    return QueueCounts(counts, pending.oldest_ready_at, oldest_claim_at, cut)


def _is_cut(rows: Iterable[TupleRow], limits: CountLimits) -> bool:
    total: int = sum(number for *_, number, _ in rows)
    return total > limits.others


def _key(name: str, priority: int) -> QueueKey:
    return QueueKey(name, _PRIORITIES[priority])
