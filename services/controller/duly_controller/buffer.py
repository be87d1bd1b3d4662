"""The references a host holds, by queue: who is served next, and what of a message is still open.

No I/O and no clock of its own. Priorities are served best first, but a share of the picks goes to the
lower ones that wait, in turn; lambdas of one priority take turns.
"""

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from duly_core.queues.port import Received
from duly_core.routing import Priority, QueueKey
from duly_core.task import TaskId

Ordered = TypeVar("Ordered", str, Priority)


@dataclass(slots=True, eq=False)
class Message:
    """A received message, and how many of its references have had no definite answer yet."""

    received: Received
    received_at: float
    open: int


@dataclass(frozen=True, slots=True)
class Reference:
    """One task id of a message."""

    task_id: TaskId
    lambda_name: str
    message: Message


@dataclass(slots=True)
class Buffer:
    """Deques of references, one a queue."""

    low_priority_share: float
    _queues: dict[QueueKey, deque[Reference]] = field(default_factory=dict)
    _credit: float = 0
    _last_lower: Priority = Priority.LOW
    _last_served: dict[Priority, str] = field(default_factory=dict)
    on_stale: Callable[[int], None] | None = None
    """Told how many references were dropped."""

    def add(self, messages: Iterable[Received], now: float) -> None:
        """Take in what was received at `now`."""
        for received in messages:
            message = Message(received, now, len(received.task_ids))
            waiting = self._queues.setdefault(received.queue, deque())
            waiting.extend(
                Reference(task_id, received.queue.lambda_name, message) for task_id in received.task_ids
            )

    def size(self, queue: QueueKey) -> int:
        """How many references of this queue wait here."""
        return len(self._queues.get(queue, ()))

    def has_any(self, lambdas: Collection[str]) -> bool:
        """Whether anything of these lambdas waits here."""
        return any(waiting and key.lambda_name in lambdas for key, waiting in self._queues.items())

    def take(self, lambdas: Collection[str], most: int, not_before: float) -> list[Reference]:
        """Pick up to `most` references of these lambdas.

        Those received before `not_before` are dropped: their message is about to be seen by others.
        """
        taken: list[Reference] = []
        stale = 0
        while len(taken) < most:
            waiting = self._next(lambdas)
            if waiting is None:
                break
            reference = waiting.popleft()
            if reference.message.received_at >= not_before:
                taken.append(reference)
            else:
                stale += 1
        if stale and self.on_stale:
            self.on_stale(stale)
        return taken

    def _next(self, lambdas: Collection[str]) -> deque[Reference] | None:
        served = [key for key, waiting in self._queues.items() if waiting and key.lambda_name in lambdas]
        if not served:
            return None
        best, *lower = sorted({key.priority for key in served})
        chosen = best
        if lower:
            self._credit += self.low_priority_share
            if self._credit >= 1:
                self._credit -= 1
                chosen = self._last_lower = _after(self._last_lower, lower)
        names = sorted(key.lambda_name for key in served if key.priority is chosen)
        name = self._last_served[chosen] = _after(self._last_served.get(chosen, ""), names)
        return self._queues[QueueKey(name, chosen)]

    def answered(self, references: Iterable[Reference]) -> list[Received]:
        """These had a definite answer; the messages that have nothing open any more, to be deleted."""
        closed = []
        for reference in references:
            reference.message.open -= 1
            if not reference.message.open:
                closed.append(reference.message.received)
        return closed

    def lambdas(self) -> set[str]:
        """The lambdas of which anything waits here."""
        return {queue.lambda_name for queue, waiting in self._queues.items() if waiting}

    def withdraw(self, lambda_name: str) -> list[Received]:
        """Take out this lambda's messages of which nothing was picked yet, to be given back."""
        untouched = []
        for queue, waiting in self._queues.items():
            if queue.lambda_name != lambda_name:
                continue
            here = Counter(reference.message for reference in waiting)
            whole = {message for message, number in here.items() if number == len(message.received.task_ids)}
            untouched += [message.received for message in here if message in whole]
            self._queues[queue] = deque(reference for reference in waiting if reference.message not in whole)
        return untouched

    def drain(self) -> list[Received]:
        """Empty the buffer; the messages that were in it, to be given back."""
        messages = {
            id(reference.message): reference.message
            for waiting in self._queues.values()
            for reference in waiting
        }
        self._queues.clear()
        return [message.received for message in messages.values()]


def _after(last: Ordered, candidates: Sequence[Ordered]) -> Ordered:
    """Whose turn it is when `last` was served last; candidates are in order."""
    return next((each for each in candidates if each > last), candidates[0])


def queues_of(lambdas: Iterable[str]) -> list[QueueKey]:
    """All queues of these lambdas."""
    return [QueueKey(name, priority) for name in sorted(lambdas) for priority in Priority]
