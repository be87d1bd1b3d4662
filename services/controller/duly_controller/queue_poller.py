"""Keeps the buffer filled as far as Executors ask: one long poll a queue, none where nobody waits for work."""

import asyncio
import math
from collections import deque
from collections.abc import Sequence
from datetime import timedelta

from duly_controller import events
from duly_controller.reference_buffer import ReferenceBuffer, queues_of
from duly_controller.work_requests import WorkRequests
from duly_core.lambdas.names import QueueKey
from duly_core.process import failpoints
from duly_core.process.loop import repeat
from duly_core.queues.port import MAX_REFERENCES, QueueReceiver, Received

_MOST_MESSAGES = 10

_REMEMBERED_RECEIVES = 8
"""The largest message of so many receives says how large the next may be."""

_LOOK_FOR_UNWANTED = timedelta(milliseconds=500)


class QueuePoller:
    """One loop for each queue of the lambdas that this host serves; what nobody here wants goes back to its queue."""

    def __init__(
        self,
        receiver: QueueReceiver,
        buffer: ReferenceBuffer,
        work_requests: WorkRequests,
        poll_timeout: timedelta,
        stop: asyncio.Event,
    ) -> None:
        self._receiver = receiver
        self._buffer = buffer
        self._work_requests = work_requests
        self._longest_poll = poll_timeout
        self._stop = stop
        self._loops: dict[QueueKey, asyncio.Task[None]] = {}
        self._returning: asyncio.Task[None] | None = None

    def serve(self, lambdas: frozenset[str]) -> None:
        """Poll the queues of these lambdas, and no others; without any, keep the loops: nobody asks, so they idle."""
        if not lambdas or self._stop.is_set():
            return
        loop = asyncio.get_running_loop()
        if self._returning is None:
            returning = repeat("give back", self._return_unasked_for, self._stop, asyncio.Event())
            self._returning = loop.create_task(returning)
        wanted = queues_of(lambdas)
        for queue in wanted:
            if queue not in self._loops:
                self._loops[queue] = loop.create_task(self._poll(queue))
        for queue in set(self._loops) - set(wanted):
            self._loops.pop(queue).cancel()

    async def _poll(self, queue: QueueKey) -> None:
        largest = deque([MAX_REFERENCES], maxlen=_REMEMBERED_RECEIVES)

        async def run_once() -> timedelta:
            missing = await self._work_requests.missing(queue)
            messages = max(1, min(_MOST_MESSAGES, math.ceil(missing / max(largest))))
            received = await self._receiver.receive(queue, messages, self._longest_poll)
            if received:
                await failpoints.hit("controller.receive.after")
                if largest[0] == MAX_REFERENCES and len(largest) == 1:
                    largest.clear()  # it was a guess
                largest.append(max(len(each.task_ids) for each in received))
                kept = _first_with(self._work_requests.short_of(queue), received)
                self._buffer.add(received[:kept], asyncio.get_running_loop().time())
                self._work_requests.arrived()
                await self._give_back(received[kept:])
            return timedelta()

        await repeat(f"poll {queue}", run_once, self._stop, asyncio.Event())

    async def _return_unasked_for(self) -> timedelta:
        for queue in self._work_requests.unasked_for():
            await self._give_back(self._buffer.withdraw(queue))
        return _LOOK_FOR_UNWANTED

    async def _give_back(self, messages: Sequence[Received]) -> None:
        if messages:
            events.given_back(len(messages))
            await asyncio.shield(self._receiver.give_back(messages))  # to the end, even if the poll is over

    async def stop(self) -> None:
        """End all polls."""
        tasks = [*self._loops.values(), *([self._returning] if self._returning else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._loops.clear()


def _first_with(wanted: int, messages: Sequence[Received]) -> int:
    """How many of these hold as many references as are wanted; one at least."""
    held = 0
    for number, message in enumerate(messages, start=1):
        held += len(message.task_ids)
        if held >= wanted:
            return number
    return len(messages)
