"""The references a host holds, by queue: who is served next, and what of a message is still open.

No I/O and no clock of its own. Priorities are served best first, but a share of the picks goes to the
lower ones that wait, in turn; lambdas of one priority take turns. What is picked are runs of a message's
references: how much work a pick is does not grow with the references, nor with the queues that are empty.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from duly_core.lambdas.names import ALL_PRIORITIES, QueueKey
from duly_core.queues.port import Received
from duly_wire.enums import Priority
from duly_wire.ids import TaskId

_LONGEST_TURN = 8
"""So many references of a lambda go one after the other while others of its priority wait."""


@dataclass(slots=True, eq=False)
class Message:
    """A received message: how far it is picked, and how many references have had no definite answer yet."""

    received: Received
    received_at: float
    open: int
    picked: int = 0


class ReferenceSlice(NamedTuple):
    """References of one message, in their order."""

    message: Message
    task_ids: tuple[TaskId, ...]


@dataclass(slots=True, eq=False)
class _Queue:
    """The messages of one queue that have references to be picked, and how many those are."""

    messages: deque[Message] = field(default_factory=deque)
    size: int = 0

    def pick(self, most: int) -> ReferenceSlice:
        """The next references, from one message; there must be one."""
        message = self.messages[0]
        picked = message.received.task_ids[message.picked : message.picked + most]
        message.picked += len(picked)
        self.size -= len(picked)
        if message.picked == len(message.received.task_ids):
            self.messages.popleft()
        return ReferenceSlice(message, picked)

    def drop_stale(self, not_before: float) -> int:
        """Forget what was received before; how many references that were."""
        size = self.size
        while self.messages and self.messages[0].received_at < not_before:
            message = self.messages.popleft()
            self.size -= len(message.received.task_ids) - message.picked
        return size - self.size


@dataclass(slots=True)
class ReferenceBuffer:
    """Queues of references; those that are empty are not in it."""

    low_priority_share: float
    _waiting: dict[Priority, dict[str, _Queue]] = field(
        default_factory=lambda: {priority: {} for priority in Priority}
    )
    """By lambda, whose turn it is next comes first."""
    _credit: float = 0
    _last_lower: Priority = Priority.LOW
    on_stale: Callable[[int], None] | None = None
    """Told how many references were dropped."""

    def add(self, messages: Iterable[Received], now: float) -> None:
        """Take in what was received at `now`."""
        for received in messages:
            number = len(received.task_ids)
            if not number:
                continue
            queues = self._waiting[received.queue.priority]
            queue = queues.setdefault(received.queue.lambda_name, _Queue())
            queue.messages.append(Message(received, now, number))
            queue.size += number

    def size(self, queue: QueueKey) -> int:
        """How many references of this queue wait here."""
        waiting = self._waiting[queue.priority].get(queue.lambda_name)
        return waiting.size if waiting else 0

    def take(
        self,
        lambdas: Collection[str],
        most: int,
        not_before: float,
        priorities: Collection[Priority] = ALL_PRIORITIES,
    ) -> list[ReferenceSlice]:
        """Pick up to `most` references of these lambdas and priorities.

        Those received before `not_before` are dropped: their message is about to be seen by others.
        """
        self._drop_stale(lambdas, not_before)
        taken: list[ReferenceSlice] = []
        while most > 0:
            served = [
                priority
                for priority, queues in self._waiting.items()
                if priority in priorities and any(name in lambdas for name in queues)
            ]
            if not served:
                break
            priority, number = self._next(served, most)
            most -= self._turns(priority, lambdas, number, taken)
        return taken

    def _next(self, served: list[Priority], most: int) -> tuple[Priority, int]:
        """The priority whose turn it is, and how many picks it gets; of these priorities something waits."""
        best, *lower = served
        if not lower or not self.low_priority_share:
            return best, most
        for number in range(most):
            self._credit += self.low_priority_share
            if self._credit >= 1:
                if number:  # these first
                    self._credit -= self.low_priority_share
                    return best, number
                self._credit -= 1
                self._last_lower = next((each for each in lower if each > self._last_lower), lower[0])
                return self._last_lower, 1
        return best, most

    def _turns(
        self, priority: Priority, lambdas: Collection[str], most: int, taken: list[ReferenceSlice]
    ) -> int:
        """Pick so many, if there are, for these lambdas in turn; how many."""
        queues = self._waiting[priority]
        number = most
        names = [name for name in queues if name in lambdas]
        while names and number:
            turn = number if len(names) == 1 else max(1, min(_LONGEST_TURN, number // len(names)))
            for name in names[:number]:
                queue = queues.pop(name)
                left = min(turn, queue.size)
                number -= left
                while left:
                    slice_ = queue.pick(left)
                    left -= len(slice_.task_ids)
                    taken.append(slice_)
                if queue.size:
                    queues[name] = queue  # behind the others
            names = [name for name in names if name in queues]
        return most - number

    def _drop_stale(self, lambdas: Collection[str], not_before: float) -> None:
        stale = 0
        for queues in self._waiting.values():
            for name, queue in list(queues.items()):
                if queue.messages[0].received_at < not_before and name in lambdas:
                    stale += queue.drop_stale(not_before)
                    if not queue.size:
                        del queues[name]
        if stale and self.on_stale:
            self.on_stale(stale)

    def answered(self, slices: Iterable[ReferenceSlice]) -> list[Received]:
        """These had a definite answer; the messages that have nothing open any more, to be deleted."""
        closed = []
        for message, task_ids in slices:
            message.open -= len(task_ids)
            if not message.open:
                closed.append(message.received)
        return closed

    def queues(self) -> list[QueueKey]:
        """The queues of which anything waits here."""
        return [QueueKey(name, priority) for priority, queues in self._waiting.items() for name in queues]

    def withdraw(self, key: QueueKey) -> list[Received]:
        """Take out this queue's messages of which nothing was picked yet, to be given back."""
        queue = self._waiting[key.priority].pop(key.lambda_name, None)
        if queue is None:
            return []
        begun = deque(message for message in queue.messages if message.picked)
        if begun:
            left = sum(len(message.received.task_ids) - message.picked for message in begun)
            self._waiting[key.priority][key.lambda_name] = _Queue(begun, left)
        return [message.received for message in queue.messages if not message.picked]

    def drain(self) -> list[Received]:
        """Empty the buffer; the messages that were in it, to be given back."""
        messages = [
            message.received
            for queues in self._waiting.values()
            for queue in queues.values()
            for message in queue.messages
        ]
        for queues in self._waiting.values():
            queues.clear()
        return messages


def queues_of(lambdas: Iterable[str]) -> list[QueueKey]:
    """All queues of these lambdas."""
    return [QueueKey(name, priority) for name in sorted(lambdas) for priority in Priority]
