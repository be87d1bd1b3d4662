"""Counts the live tasks of each lambda and priority by status, at a bounded cost however many there are.

What is due or to run later is counted by index, up to a limit for each queue. What is taken and what waits is counted by
index, up to a limit for all. Beyond a limit a sample of the table's pages tells how many there are, and the count is marked
as an estimate. A table that is no larger than a sample is read whole.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from psycopg.rows import TupleRow

from duly.enums import Priority
from duly_core.routing import QueueKey
from duly_core.store.arrays import int2s, texts
from duly_core.store.pool import Connection, Store, fetch
from duly_core.store.queue_statements import PENDING, PRESENT, SAMPLE, TAKEN, WAITING

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
    next_due_at: datetime | None = None
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


async def count_queues(store: Store, limits: CountLimits = LIMITS) -> Snapshot:
    """Count all queues.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    others = {"most": limits.others + 1}
    async with store.connection() as connection:
        present = await fetch(connection, PRESENT, {})
        (counted_at,) = (now for now, *_ in present if now is not None)
        keys = [QueueKey(name, Priority(priority)) for now, name, priority in present if now is None]
        queues = dict(await _count_pending(connection, keys, counted_at, limits))
        taken = await fetch(connection, TAKEN, others)
        waiting = await fetch(connection, WAITING, others)
        cut = frozenset(_TAKEN if _is_cut(taken, limits) else ()) | frozenset(
            (PARKED,) if _is_cut(waiting, limits) else ()
        )
        sample = None
        if cut or any(each.cut for each in queues.values()):
            sample = await _sample(connection, counted_at, limits)
    numbers: dict[QueueKey, dict[str, int]] = defaultdict(dict)
    for name, priority, kind, number, since in (*taken, *waiting):
        key = QueueKey(name, Priority(priority))
        numbers[key][kind] = number
        if kind == PROCESSING:
            queues[key] = replace(queues.get(key, EMPTY), oldest_claim_at=since)
    if sample is not None:
        for key, kind in sample.numbers:
            if kind in cut:
                numbers[key].setdefault(kind, 0)
    for key in numbers.keys() | queues.keys():
        queue = queues.get(key, EMPTY)
        counted = _settled(key, numbers[key], cut, sample)
        pending = _settled(key, {kind: each.number for kind, each in queue.counts.items()}, queue.cut, sample)
        queues[key] = replace(queue, counts=counted | pending)
    return Snapshot(counted_at, queues, sample)


async def recount(
    store: Store, snapshot: Snapshot, keys: Collection[QueueKey], limits: CountLimits = LIMITS
) -> dict[QueueKey, QueueCounts]:
    """Return some queues of a snapshot; what is due or to run later is counted further than for all.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    found = {key: snapshot.queues.get(key, EMPTY) for key in keys}
    if cut := [key for key, each in found.items() if each.cut]:
        async with store.connection() as connection:
            for key, anew in await _count_pending(connection, cut, snapshot.counted_at, limits):
                others = {kind: each for kind, each in found[key].counts.items() if kind not in _PENDING}
                numbers = {kind: each.number for kind, each in anew.counts.items()}
                counts = others | _settled(key, numbers, anew.cut, snapshot.sample)
                found[key] = replace(anew, counts=counts, oldest_claim_at=found[key].oldest_claim_at)
    return found


async def _count_pending(
    connection: Connection, keys: Sequence[QueueKey], counted_at: datetime, limits: CountLimits
) -> list[tuple[QueueKey, QueueCounts]]:
    if not keys:
        return []
    most = max(_LEAST, min(limits.queue, limits.pending // len(keys)))
    parameters = {
        "lambdas": texts([key.lambda_name for key in keys]),
        "priorities": int2s([key.priority for key in keys]),
        "now": counted_at,
        "most": most,
    }
    found = []
    for name, priority, ready, scheduled, backing_off, oldest, due_at in await fetch(
        connection, PENDING, parameters
    ):
        numbers = dict(zip(_PENDING, (ready, scheduled, backing_off), strict=True))
        cut: tuple[str, ...] = ()
        if sum(numbers.values()) >= most:
            # in the order of their time: behind one that runs later, none is due
            cut = _PENDING[1:] if scheduled or backing_off else _PENDING
        counts = {kind: Count(number) for kind, number in numbers.items()}
        queue = QueueCounts(counts, oldest, due_at, cut=frozenset(cut))
        found.append((QueueKey(name, Priority(priority)), queue))
    return found


async def _sample(connection: Connection, counted_at: datetime, limits: CountLimits) -> Sample:
    rows = await fetch(connection, SAMPLE, {"now": counted_at, "pages": limits.pages})
    return Sample(
        {
            (QueueKey(name, Priority(priority)), kind): round(number * factor)
            for name, priority, kind, number, factor in rows
            if number
        },
        is_whole=all(row[-1] <= 1 for row in rows),
    )


def _is_cut(rows: Iterable[TupleRow], limits: CountLimits) -> bool:
    return sum(number for *_, number, _ in rows) > limits.others


def _settled(
    key: QueueKey, numbers: Mapping[str, int], cut: Collection[str], sample: Sample | None
) -> dict[str, Count]:
    """Return counts by class, with estimates for those that were not counted to their end."""
    counts = {
        kind: sample.settle(key, kind, number) if sample is not None and kind in cut else Count(number)
        for kind, number in numbers.items()
    }
    return {kind: count for kind, count in counts.items() if count.number}
