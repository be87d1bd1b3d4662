"""Tasks of lambdas whose callbacks take many in one call, while they wait for others. Decisions only: no I/O, no clock.

A batch is ready when it is full, or when its first task has waited as long as the lambda says. It is taken when a slot is free.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from duly_core.lambdas.names import base_name
from duly_wire.enums import Priority
from duly_wire.v1 import hsc_pb2, registry_pb2

_MOST_TASKS = 1_000
_LONGEST_WAIT = 60.0
"""Whatever a callback process declares."""
MOST_BYTES = 16 * 1024 * 1024
"""Of a batch, if one task alone has not more: payloads, checkpoints, results of predecessors. It goes to its process as one message."""
MOST_HELD = 10_000
"""Tasks of batches that an Executor holds."""


class BatchTerms(NamedTuple):
    """What a lambda declares."""

    size: int
    wait: float
    """In seconds."""


def terms_of(lambdas: Iterable[registry_pb2.Lambda]) -> dict[str, BatchTerms]:
    """Return the terms of the lambdas whose callbacks take batches."""
    return {
        base_name(each.name): BatchTerms(
            min(max(1, each.batch.size), _MOST_TASKS),
            min(max(0.0, each.batch.wait.ToNanoseconds() / 1e9), _LONGEST_WAIT),
        )
        for each in lambdas
        if each.HasField("batch")
    }


def _priority(task: hsc_pb2.ClaimedTask) -> int:
    return task.priority or int(Priority.NORMAL)


@dataclass(slots=True, eq=False)
class _Line:
    terms: BatchTerms
    tasks: dict[int, deque[tuple[hsc_pb2.ClaimedTask, float]]] = field(default_factory=dict)
    """By priority, the best first; each with the time when it came."""
    count: int = 0
    bytes: int = 0
    ready_since: float | None = None
    """Since when a batch is ready and none was taken."""
    taken_at: float = float("-inf")
    """When a batch was taken last."""

    def first_came(self) -> float:
        return min(tasks[0][1] for tasks in self.tasks.values() if tasks)

    def is_full(self) -> bool:
        return self.count >= self.terms.size or self.bytes >= MOST_BYTES

    def ready_at(self) -> float:
        return float("-inf") if self.is_full() else self.first_came() + self.terms.wait


class BatchLines:
    """A line for each such lambda, with the tasks of its versions, domains and labels. The caller says what time it is (seconds)."""

    def __init__(self, recall_after: float) -> None:
        """Args: `recall_after` is how long a batch that is ready may wait for a slot."""
        self._recall_after = recall_after
        self._lines: dict[str, _Line] = {}
        """Those whose turn is next come first."""

    def __bool__(self) -> bool:
        return bool(self._lines)

    def declare(self, terms: Mapping[str, BatchTerms]) -> None:
        """Learn which lambdas take batches, before any task comes."""
        self._lines = {name: _Line(each) for name, each in terms.items()}

    @property
    def names(self) -> frozenset[str]:
        """The lambdas that take batches."""
        return frozenset(self._lines)

    def size_of(self, lambda_name: str) -> int:
        """Return how many tasks one call of a queue's lambda takes."""
        line = self._lines.get(base_name(lambda_name))
        return 1 if line is None else line.terms.size

    def add(self, task: hsc_pb2.ClaimedTask, now: float) -> bool:
        """Have this task wait for others; False: its lambda takes no batches."""
        line = self._lines.get(base_name(getattr(task, "lambda")))
        if line is None:
            return False
        priority = _priority(task)
        if priority not in line.tasks:
            line.tasks[priority] = deque()
            line.tasks = dict(sorted(line.tasks.items()))
        line.tasks[priority].append((task, now))
        line.count += 1
        line.bytes += task.ByteSize()
        return True

    def waiting(self, name: str | None = None) -> int:
        """Return how many tasks of a lambda wait; without a name: of all."""
        return sum(line.count for line in self._lines.values()) if name is None else self._lines[name].count

    def ready(self, now: float) -> Iterator[tuple[str, hsc_pb2.ClaimedTask]]:
        """Yield the lambdas of which a batch is ready, and its first task: best priorities first, then in turns."""
        found = []
        for name, line in self._lines.items():
            if line.count and line.ready_at() <= now:
                if line.ready_since is None:
                    line.ready_since = now
                priority, first = next((key, tasks[0][0]) for key, tasks in line.tasks.items() if tasks)
                found.append((priority, name, first))
        found.sort(key=lambda each: each[0])
        for _, name, first in found:
            yield name, first

    def take(self, name: str, now: float) -> list[hsc_pb2.ClaimedTask]:
        """Take a batch: best priorities first. What has waited its time and more comes along, whatever its priority."""
        line = self._lines.pop(name)
        self._lines[name] = line
        batch: list[hsc_pb2.ClaimedTask] = []
        size = 0
        late = min((tasks for tasks in line.tasks.values() if tasks), key=lambda tasks: tasks[0][1])
        sources = [late] if late[0][1] + line.terms.wait < now else []
        for source in (*sources, *line.tasks.values()):
            most = 1 if sources and source is late and not batch else line.terms.size
            while source and len(batch) < most:
                weight = source[0][0].ByteSize()
                if batch and size + weight > MOST_BYTES:
                    break
                batch.append(source.popleft()[0])
                size += weight
        if sources:
            batch.sort(key=_priority)
        line.count -= len(batch)
        line.bytes -= size
        line.taken_at, line.ready_since = now, None
        return batch

    def room(self, name: str, free: int, beyond_slots: int, now: float) -> int:
        """Return how many tasks of a lambda may come.

        Args:
            name: the lambda.
            free: slots that are free for it. One batch more may wait while batches of it start.
            beyond_slots: tasks that processes hold beyond their slots.
            now: the time.
        """
        line = self._lines[name]
        batches = free + (now - line.taken_at < self._recall_after)
        return min(line.terms.size * batches - line.count, MOST_HELD - self.waiting() - beyond_slots)

    def next_at(self, now: float) -> float | None:
        """Return when the next batch is ready; None: none waits for its time."""
        later = [at for line in self._lines.values() if line.count and (at := line.ready_at()) > now]
        return min(later, default=None)

    def take_all(self) -> Iterator[hsc_pb2.ClaimedTask]:
        """Take out all that wait."""
        for line in self._lines.values():
            yield from self._take_line(line)

    def take_stuck(self, now: float) -> Iterator[hsc_pb2.ClaimedTask]:
        """Take out what waits in lines of which a batch has been ready for too long, without a slot."""
        for line in self._lines.values():
            if line.ready_since is not None and now - line.ready_since > self._recall_after:
                yield from self._take_line(line)

    @staticmethod
    def _take_line(line: _Line) -> Iterator[hsc_pb2.ClaimedTask]:
        for tasks in line.tasks.values():
            yield from (task for task, _ in tasks)
            tasks.clear()
        line.count = line.bytes = 0
        line.ready_since = None
