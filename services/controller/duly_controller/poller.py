"""Keeps the buffer filled as far as Executors ask: one long poll a queue, none where nobody waits for work."""

import asyncio
import math
from datetime import timedelta

from duly_controller.buffer import Buffer, queues_of
from duly_controller.demand import Demand
from duly_core.loop import repeat
from duly_core.queues.port import QueueReceiver
from duly_core.routing import QueueKey

_MOST_MESSAGES = 10


class Poller:
    """One loop for each queue of the lambdas that this host serves."""

    def __init__(
        self,
        receiver: QueueReceiver,
        buffer: Buffer,
        demand: Demand,
        longest_poll: timedelta,
        stop: asyncio.Event,
    ) -> None:
        self._receiver = receiver
        self._buffer = buffer
        self._demand = demand
        self._longest_poll = longest_poll
        self._stop = stop
        self._loops: dict[QueueKey, asyncio.Task[None]] = {}

    def serve(self, lambdas: frozenset[str]) -> None:
        """Poll the queues of these lambdas, and no others."""
        wanted = queues_of(lambdas)
        for queue in wanted:
            if queue not in self._loops:
                self._loops[queue] = asyncio.get_running_loop().create_task(self._poll(queue))
        for queue in set(self._loops) - set(wanted):
            self._loops.pop(queue).cancel()

    async def _poll(self, queue: QueueKey) -> None:
        references_a_message = 1.0

        async def run_once() -> timedelta:
            nonlocal references_a_message
            missing = await self._demand.missing(queue)
            messages = max(1, min(_MOST_MESSAGES, math.ceil(missing / references_a_message)))
            received = await self._receiver.receive(queue, messages, self._longest_poll)
            if received:
                loop = asyncio.get_running_loop()
                self._buffer.add(received, loop.time())
                references_a_message = sum(len(each.task_ids) for each in received) / len(received)
                self._demand.arrived()
            return timedelta()

        await repeat(f"poll {queue}", run_once, self._stop, asyncio.Event())

    async def stop(self) -> None:
        """End all polls."""
        for loop in self._loops.values():
            loop.cancel()
        await asyncio.gather(*self._loops.values(), return_exceptions=True)
        self._loops.clear()
