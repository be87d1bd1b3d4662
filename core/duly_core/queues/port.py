"""What Duly asks of a queue: the port that its backends implement.

A message carries references (task ids) and nothing else; the row in the store is the truth, so a
queue may lose, repeat, delay or reorder messages: that costs latency, never correctness.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from duly_core.lambdas.names import QueueKey

TaskId = bytes  # a UUID's 16 bytes

MAX_REFERENCES = 100
"""How many references one message carries at most."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """References on their way to one queue: one message, 1 to MAX_REFERENCES ids."""

    queue: QueueKey
    task_ids: tuple[TaskId, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """A message that was received and is hidden from others until its visibility ends."""

    queue: QueueKey
    task_ids: tuple[TaskId, ...]
    receipt: str
    """What `delete` and `give_back` know it by; opaque."""


FULL = 2**31 - 1
"""The depth of a queue that does not tell it: nothing should be pushed to it blindly."""


class QueueSender(Protocol):
    """The Store Consumer's side."""

    depth_age: timedelta
    """How old an answer of `depth` may be: asked again sooner, it may repeat itself."""

    async def send(self, messages: Sequence[Outgoing]) -> list[Outgoing]:
        """Send; answer those that were not, or perhaps not, sent (empty: all were).

        Raises:
            QueueUnavailableError: nothing could be sent at all.
        """
        ...

    async def depth(self, queues: Sequence[QueueKey]) -> dict[QueueKey, int]:
        """About how many references wait in or are out of each queue (not yet deleted); FULL if it does not tell.

        Raises:
            QueueUnavailableError: the queue did not answer.
        """
        ...

    async def close(self) -> None:
        """Let go of connections; idempotent."""
        ...


class QueueReceiver(Protocol):
    """The Controller's side."""

    async def receive(self, queue: QueueKey, max_messages: int, wait: timedelta) -> list[Received]:
        """Long poll one queue: up to `max_messages`, oldest first as far as the backend can; [] after `wait`.

        A message whose body is not ours is deleted and not answered.

        Raises:
            QueueUnavailableError: the queue did not answer.
        """
        ...

    async def delete(self, messages: Sequence[Received]) -> None:
        """Delete for good; failures are logged and left to the visibility timeout."""
        ...

    async def give_back(self, messages: Sequence[Received]) -> None:
        """Make visible again at once (a Controller that stops); best effort."""
        ...

    async def close(self) -> None:
        """Let go of connections and of waiting receives, within a second; idempotent."""
        ...
