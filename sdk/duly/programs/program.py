"""A program that runs the tasks of a callback process: an instance for each task that runs, kept for the next ones."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from duly.callbacks.outcomes import Cancelled, RetriableFailure, Snooze
from duly.programs.instance import Instance, OutOfStepError, StartError
from duly.programs.messages import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from duly.callbacks.payload import SentPayload
    from duly.context import TaskContext
    from duly.programs.messages import Form

_log = logging.getLogger("duly.programs")

_STARTS = 5
_FIRST_PAUSE = 0.5
"""Seconds; each later one is twice as long. Meanwhile the slot takes no other task, which could not be run either."""
_AGAIN_AFTER = timedelta(seconds=10)
"""A task goes back for so long, uncharged, if its program cannot be started: another host may do better."""


class Program:
    """All instances of one program in this process; each runs one task at a time."""

    def __init__(self, argv: Sequence[str], form: Callable[[], Form], start_timeout: timedelta) -> None:
        self._argv = tuple(argv)
        self._form = form
        self._start_timeout = start_timeout.total_seconds()
        self._idle: list[Instance] = []
        self._alive: set[Instance] = set()
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> Instance:
        """Start an instance.

        Raises:
            StartError: it cannot be started.
        """
        if self._keeper is None or self._keeper.done():
            self._keeper = asyncio.get_running_loop().create_task(self._end_with_the_loop())
        instance = Instance(self._form(), self._alive.discard)
        self._alive.add(instance)
        await instance.start(self._argv, self._start_timeout)
        return instance

    async def run(self, payload: SentPayload, context: TaskContext) -> Any:
        """Run one task, as the callback of its lambda does."""
        fresh = False
        while True:
            instance = await self._take(context, fresh=fresh)
            try:
                return await instance.run(payload, context)
            except OutOfStepError:
                fresh = True  # one that has run nothing yet is not excused
            except ProtocolError as error:
                return RetriableFailure(f"the program was ended: {error}")
            finally:
                if instance.retired:
                    instance.kill(instance.retired)
                else:
                    self._idle.append(instance)

    async def _end_with_the_loop(self) -> None:
        """End all when the loop ends. That of a callback process never does; that of a test does."""
        try:
            await asyncio.Event().wait()
        finally:
            self._idle.clear()
            await asyncio.gather(*(instance.end() for instance in self._alive))

    async def _take(self, context: TaskContext, *, fresh: bool) -> Instance:
        """Return an instance that waits for a task, or a new one; the one that was used last is the first."""
        while self._idle and not fresh:
            instance = self._idle.pop()
            if not instance.retired:
                return instance
        try:
            return await self._started()
        except asyncio.CancelledError:
            if context.cancelled and not context.interrupted:
                raise Cancelled from None
            raise

    async def _started(self) -> Instance:
        """Start one, after a while if need be: no task is to blame for a program that does not start."""
        for failures in range(_STARTS):
            try:
                return await self.start()
            except StartError as error:
                _log.error("%s", error)
                if failures + 1 < _STARTS:
                    await asyncio.sleep(_FIRST_PAUSE * 2**failures)
        raise Snooze(_AGAIN_AFTER)
