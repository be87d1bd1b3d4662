"""Finds due tasks behind those that gates hold, by reads of bounded size: each begins where the one before it ended.

What it finds is a hint: the statement that picks tasks checks each of them. A row that becomes ready with an earlier due time
than a scan has reached is found by the next scan from the first row.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, NamedTuple

from duly_core.gates.rules import GateSet
from duly_core.gates.store import gate_columns
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import int2s, texts, timestamps, uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import READS
from duly_wire.enums import Priority
from duly_wire.ids import TaskId

WINDOW = 200
"""A pick reads so many rows of a queue from its first row on; or twice as many as it is to take, if that is more."""
_LARGEST_READ = 12_800
"""Rows of one read, of all queues; a read begins with a queue's WINDOW, and reads four times as many as long as all are held."""
_LARGEST_TIE = 16 * _LARGEST_READ
"""Rows of one read among rows that are due at one instant. What is left of them waits until those before it are parked."""
_TOLD = 200
"""A pick is told of so many tasks of a queue."""
_AGAIN = 60.0
"""Seconds after which a scan that has reached the end begins again with the first row."""
_OVERLAP = timedelta(seconds=1)
"""A read that goes on at the end of a queue begins so much earlier: transactions commit later than they read the clock."""
_SHORT_REST = 1.0
"""Seconds in which a queue is not read that a pick reads as a whole."""
_MOST_PASSED_OVER = 5
"""Picks in a row that took nothing of what was found in a queue; then it is read again."""
_NEXT_INSTANT = timedelta(microseconds=1)
_REMEMBERED = 20_000
"""Queues: names come from callers."""
_SETS_OF_LAMBDAS = 8
"""Whose parameters are kept: those of many lambdas are long, and an HSC has few kinds of callers."""


@dataclass(slots=True)
class _Scan:
    """How far a queue was read."""

    since: datetime | None = None
    """The next read begins here; None: with the first row."""
    size: int = WINDOW
    rows: int = 0
    """That the last read saw."""
    found: dict[TaskId, None] = field(default_factory=dict)
    """In the order in which they are due."""
    is_at_end: bool = False
    is_read: bool = False
    """A read is under way."""
    read_at: float = float("-inf")
    """When the last read began (the loop's time, as those below)."""
    rests_until: float = float("-inf")
    again_at: float = float("inf")
    passed_over: int = 0
    """Picks in a row that took none of `found`."""

    def begin_again(self) -> None:
        """Read on from the first row."""
        self.since, self.size, self.again_at = None, WINDOW, float("inf")

    @property
    def cost(self) -> int:
        """Rows that the next read is expected to see: few, where the last one reached the end."""
        return self.rows + 1 if self.is_at_end else self.size


class _Seen(NamedTuple):
    """What a read of a queue saw."""

    rows: int
    last_at: datetime | None
    """When the last of them is due."""
    is_settled: bool
    """That is so long ago that no other row comes before it, unless one is ready again."""
    task_ids: Sequence[TaskId]
    """Those that no gate holds."""


class GatedPick(NamedTuple):
    """What a pick from queues some of whose tasks gates hold needs to know."""

    told: Mapping[QueueKey, Sequence[TaskId]]
    """What was found in each queue."""
    parameters: Mapping[str, Any]
    """Of its statement."""


class GateScans:
    """Of one process: remembers how far each queue was read, and what was found."""

    def __init__(self) -> None:
        self._gates: GateSet | None = None
        self._scans: dict[QueueKey, _Scan] = {}
        self._columns: dict[frozenset[str], dict[str, Any]] = {}
        """The parameters of the gates of some lambdas: callers ask for the same ones again and again."""

    async def look(self, store: Store, gates: GateSet, queues: Collection[QueueKey], most: int) -> GatedPick:
        """Read on in queues some of whose tasks gates hold, before a pick of at most so many tasks.

        Raises:
            StoreUnavailableError: nothing was read.
        """
        if gates is not self._gates or len(self._scans) > _REMEMBERED:
            self._gates, self._scans, self._columns = gates, {}, {}
        now = asyncio.get_running_loop().time()
        every, scans = self._scans, self._to_read(queues, now)
        columns = self._gate_columns(gates, frozenset(queue.lambda_name for queue in queues))
        if scans:
            for scan in scans.values():
                scan.is_read = True
            try:
                rows = await store.run(READS["behind_gated"], columns | _parameters(scans))
            finally:
                for scan in scans.values():
                    scan.is_read = False
            for lambda_name, priority, *seen in rows:
                _note(scans[QueueKey(lambda_name, Priority(priority))], _Seen(*seen), now)
        told = {queue: [*islice(every[queue].found, _TOLD)] for queue in queues}
        return GatedPick(told, columns | _pick_parameters(told, most))

    def _gate_columns(self, gates: GateSet, lambdas: frozenset[str]) -> dict[str, Any]:
        if lambdas not in self._columns:
            if len(self._columns) >= _SETS_OF_LAMBDAS:
                self._columns.clear()
            self._columns[lambdas] = gate_columns(gates.of_rows(lambdas))
        return self._columns[lambdas]

    def picked(self, pick: GatedPick, taken: Collection[TaskId], *, is_all: bool) -> frozenset[str]:
        """Note what a pick took; return the lambdas of which the next pick may take more.

        `is_all`: it wanted more, so that what it was told of and did not take cannot be taken now.
        """
        for queue, told in pick.told.items():
            if scan := self._scans.get(queue):
                for task_id in told:
                    if is_all or task_id in taken:
                        scan.found.pop(task_id, None)
                scan.passed_over = 0 if any(task_id in taken for task_id in told) else scan.passed_over + 1
                if scan.found and scan.passed_over >= _MOST_PASSED_OVER:
                    # others have them, perhaps, or they were cancelled
                    scan.found.clear()
                    scan.passed_over = 0
                    scan.begin_again()
        return frozenset(queue.lambda_name for queue in pick.told if self.has_more(queue))

    def has_more(self, queue: QueueKey) -> bool:
        """Tell whether a queue was not read to its end, or tasks of it are known: the next pick may take some."""
        scan = self._scans.get(queue)
        return scan is not None and (bool(scan.found) or not scan.is_at_end)

    def _to_read(self, queues: Iterable[QueueKey], now: float) -> dict[QueueKey, _Scan]:
        chosen: dict[QueueKey, _Scan] = {}
        left = _LARGEST_READ
        scans = {queue: self._scans.setdefault(queue, _Scan()) for queue in queues}
        for queue, scan in sorted(scans.items(), key=lambda item: item[1].read_at):
            if scan.found or scan.is_read or now < scan.rests_until:
                continue
            if now >= scan.again_at:
                scan.begin_again()
            if left <= 0:
                break  # they are the first of the next look, and those that were not read to their end make it soon
            chosen[queue] = scan
            scan.read_at = now
            left -= scan.cost
        return chosen


def _note(scan: _Scan, seen: _Seen, now: float) -> None:
    """Note what a read found."""
    scan.rows = seen.rows
    scan.is_at_end = seen.rows < scan.size
    if scan.since is None:  # what is first in its queue a pick reads itself
        scan.since = seen.last_at
        if scan.is_at_end:
            scan.since, scan.rests_until = None, now + _SHORT_REST
        return
    scan.found |= dict.fromkeys(seen.task_ids)
    if scan.is_at_end:
        scan.again_at = min(scan.again_at, now + _AGAIN)
        scan.size = WINDOW
        if seen.last_at is not None and seen.is_settled:
            scan.since = seen.last_at + _NEXT_INSTANT
        elif seen.last_at is not None:
            scan.since = max(scan.since, seen.last_at - _OVERLAP)
    elif seen.last_at != scan.since:
        scan.since = seen.last_at
        scan.size = WINDOW if seen.task_ids else min(4 * scan.size, _LARGEST_READ)
    elif scan.size < _LARGEST_TIE:  # all of them are due at one instant: the next read has them, too
        scan.size = min(4 * scan.size, _LARGEST_TIE)
    else:
        scan.since, scan.size = scan.since + _NEXT_INSTANT, WINDOW


def _parameters(scans: dict[QueueKey, _Scan]) -> dict[str, Any]:
    return {
        "lambdas": texts([queue.lambda_name for queue in scans]),
        "priorities": int2s([queue.priority for queue in scans]),
        "since": timestamps([scan.since for scan in scans.values()]),
        "most": [scan.size for scan in scans.values()],
    }


def _pick_parameters(told: Mapping[QueueKey, Sequence[TaskId]], most: int) -> dict[str, Any]:
    found = [(task_id, queue) for queue, task_ids in told.items() for task_id in task_ids]
    return {
        "window": max(WINDOW, 2 * most),
        "behind": uuids(task_id for task_id, _ in found),
        "behind_lambdas": texts([queue.lambda_name for _, queue in found]),
        "behind_priorities": int2s([queue.priority for _, queue in found]),
    }
