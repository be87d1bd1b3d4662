"""Who waits for work, and so how much of each queue the buffer should hold."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from duly_controller.buffer import Buffer
from duly_core.routing import QueueKey

_AHEAD = 2
"""The buffer holds up to this many times what was asked for, so that the next NextWork finds work."""

_RECENT_SECONDS = 0.1


@dataclass(slots=True, eq=False)
class _Asking:
    lambdas: frozenset[str]
    most: int


class Demand:
    """NextWork calls are the credit: without one, nothing is taken from the queues."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._asking: set[_Asking] = set()
        self._recent: dict[str, tuple[float, int]] = {}
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()

    @contextmanager
    def asking(self, lambdas: frozenset[str], most: int) -> Iterator[None]:
        """For as long as this is open, somebody waits for up to `most` tasks of these lambdas."""
        asking = _Asking(lambdas, most)
        self._asking.add(asking)
        self._tell()
        try:
            yield
        finally:
            self._asking.discard(asking)
            now = asyncio.get_running_loop().time()
            self._recent.update(dict.fromkeys(lambdas, (now, most)))

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _wanted(self, lambda_name: str) -> int:
        waiting = sum(asking.most for asking in self._asking if lambda_name in asking.lambdas)
        asked_at, most = self._recent.get(lambda_name, (float("-inf"), 0))
        if not waiting and asyncio.get_running_loop().time() - asked_at < _RECENT_SECONDS:
            waiting = most
        return _AHEAD * waiting

    def taken(self) -> None:
        """What was taken from the buffer came to nothing: whoever asks still wants as much."""
        self._tell()

    async def missing(self, queue: QueueKey) -> int:
        """Wait until somebody wants more of this queue than the buffer holds; how much more."""
        while True:
            changed = self._changed
            missing = self._wanted(queue.lambda_name) - self._buffer.size(queue)
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
