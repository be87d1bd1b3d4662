"""Deletes settled messages, and gives back those nobody could settle, off the path of the work."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta

from duly_controller.events import log
from duly_core.errors import QueueUnavailableError
from duly_core.process import failpoints
from duly_core.process.loop import wait_for
from duly_core.queues.port import QueueReceiver, Received

_GATHER = timedelta(milliseconds=20)
"""How long a settled message may stay: nobody waits for its end, and those of a while go together."""


class MessageAcks:
    """`delete` returns at once; a message that could not be deleted comes back, and its claims are refused."""

    def __init__(self, receiver: QueueReceiver) -> None:
        self._receiver = receiver
        self._waiting: list[Received] = []
        self._task: asyncio.Task[None] | None = None
        self._giving: set[asyncio.Task[None]] = set()
        self._finishing = asyncio.Event()

    def delete(self, messages: Sequence[Received]) -> None:
        """Delete these soon."""
        self._waiting.extend(messages)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        while self._waiting:
            await wait_for(self._finishing, _GATHER)
            messages, self._waiting = self._waiting, []
            try:
                await failpoints.hit("controller.delete.before")
                await self._receiver.delete(messages)
            except QueueUnavailableError as error:
                log.warning("messages not deleted", messages=len(messages), reason=str(error))
            except Exception:  # noqa: BLE001 (nobody waits for this task, and the next must be deleted)
                log.exception("messages not deleted", messages=len(messages))

    def give_back(self, messages: Collection[Received]) -> None:
        """Let these be received again at once, here or elsewhere, and not only when their visibility ends."""
        if messages:
            giving = asyncio.get_running_loop().create_task(self._give_back(list(messages)))
            self._giving.add(giving)
            giving.add_done_callback(self._giving.discard)

    async def _give_back(self, messages: list[Received]) -> None:
        try:
            await self._receiver.give_back(messages)
        except QueueUnavailableError as error:
            log.warning("messages not given back", messages=len(messages), reason=str(error))

    async def finish(self) -> None:
        """Wait until what was given is deleted or given back, or has failed."""
        self._finishing.set()
        await asyncio.gather(*self._giving, return_exceptions=True)
        if self._task:
            await self._task
