"""The receiver of a host that has no queue to receive from: its Executors ask the HSC for work."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import Received


class NoQueue:
    """Receives nothing, ever."""

    async def receive(self, _queue: QueueKey, _max_messages: int, wait: timedelta) -> list[Received]:
        """Wait, and return nothing."""
        await asyncio.sleep(wait.total_seconds())
        return []

    async def delete(self, messages: Sequence[Received]) -> None:
        """There is nothing to delete."""

    async def give_back(self, messages: Sequence[Received]) -> None:
        """There is nothing to give back."""

    async def close(self) -> None:
        """There is nothing to let go of."""
