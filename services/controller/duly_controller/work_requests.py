"""Who waits for work, and so how much of each queue the buffer should hold."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from duly_controller.reference_buffer import ReferenceBuffer
from duly_core.lambdas.names import ALL_PRIORITIES, QueueKey
from duly_wire.enums import Priority

_AHEAD = 2
"""The buffer holds up to this many times what was asked for, so that the next NextWork finds work."""

_RECENT_SECONDS = 0.1

_FORGOTTEN_SECONDS = 1.0
"""What nobody has asked for in this time is for other hosts."""


@dataclass(slots=True, eq=False)
class _Asking:
    lambdas: frozenset[str]
    most: int
    priorities: frozenset[Priority]

    def asks_for(self, queue: QueueKey) -> bool:
        return queue.lambda_name in self.lambdas and queue.priority in self.priorities


class WorkRequests:
    """NextWork calls are the credit: without one, nothing is taken from the queues."""

    def __init__(self, buffer: ReferenceBuffer) -> None:
        self._buffer = buffer
        self._asking: set[_Asking] = set()
        self._recent: dict[str, tuple[float, int]] = {}
        """When calls for all priorities of a lambda ended, and for how many tasks the last was."""
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self.closed = asyncio.Event()
        """Set once nobody is to get any more work."""

    @contextmanager
    def asking(
        self, lambdas: frozenset[str], most: int, priorities: frozenset[Priority] = ALL_PRIORITIES
    ) -> Iterator[None]:
        """For as long as this is open, somebody waits for up to `most` tasks of these lambdas and priorities."""
        asking = _Asking(lambdas, most, priorities)
        self._asking.add(asking)
        self._tell()
        try:
            yield
        finally:
            self._asking.discard(asking)
            if priorities == ALL_PRIORITIES:
                now = asyncio.get_running_loop().time()
                self._recent.update(dict.fromkeys(lambdas, (now, most)))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _wanted(self, queue: QueueKey) -> int:
        waiting = sum(asking.most for asking in self._asking if asking.asks_for(queue))
        asked_at, most = self._recent.get(queue.lambda_name, (float("-inf"), 0))
        if not waiting and asyncio.get_running_loop().time() - asked_at < _RECENT_SECONDS:
            waiting = most
        return _AHEAD * waiting

    def short_of(self, queue: QueueKey) -> int:
        """How much more of this queue is wanted than the buffer holds; not above 0: nothing is missing."""
        return self._wanted(queue) - self._buffer.size(queue)

    def unasked_for(self) -> list[QueueKey]:
        """Queues of which something waits in the buffer though nobody has asked for them for a while."""
        before = asyncio.get_running_loop().time() - _FORGOTTEN_SECONDS
        return [
            queue
            for queue in sorted(self._buffer.queues())
            if self._recent.get(queue.lambda_name, (float("-inf"), 0))[0] < before
            and not any(asking.asks_for(queue) for asking in self._asking)
        ]

    def close(self) -> None:
        """From now on nobody gets work: who waits is told at once."""
        self.closed.set()
        self.arrived()

    def taken(self) -> None:
        """What was taken from the buffer came to nothing: whoever asks still wants as much."""
        self._tell()

    async def missing(self, queue: QueueKey) -> int:
        """Wait until somebody wants more of this queue than the buffer holds; how much more."""
        while True:
            changed = self._changed
            missing = self.short_of(queue)
            if missing > 0:
                return missing
            await changed.wait()

    def arrived(self) -> None:
        """The buffer got something."""
        self._arrived.set()
        self._arrived = asyncio.Event()

    async def arrival(self) -> None:
        """Wait until the buffer gets something."""
        await self._arrived.wait()
