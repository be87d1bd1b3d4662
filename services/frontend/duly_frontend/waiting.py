"""Long polls for the ends of tasks: one statement looks for all who wait."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.store.pool import Store
from duly_core.store.tasks import final_of
from duly_core.task import TaskId

_FIRST = timedelta(milliseconds=5)
_LONGEST = timedelta(milliseconds=500)
_GROWTH = 1.3


@dataclass(slots=True, eq=False)
class _Waiter:
    left: set[TaskId]
    pause: timedelta = _FIRST
    next_look: float = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class EndWatch:
    """Looks soon after a wait began and ever more seldom after that (5 ms to 500 ms), for all waits together."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiters: set[_Waiter] = set()
        self._task: asyncio.Task[None] | None = None

    async def wait(self, task_ids: Collection[TaskId], timeout: timedelta) -> None:
        """Return when each of these is final (or not there), at the latest after `timeout`."""
        waiter = _Waiter(set(task_ids))
        self._waiters.add(waiter)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(timeout.total_seconds()):
                    await waiter.done.wait()
        finally:
            self._waiters.discard(waiter)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiters:
            now = loop.time()
            looking = [waiter for waiter in self._waiters if waiter.next_look <= now]
            if looking:
                await self._look(looking)
                for waiter in looking:
                    waiter.next_look = loop.time() + waiter.pause.total_seconds()
                    waiter.pause = min(waiter.pause * _GROWTH, _LONGEST)
            if self._waiters:
                soonest = min(waiter.next_look for waiter in self._waiters)
                # a newcomer must not wait for those who have waited long
                await asyncio.sleep(min(max(0.0, soonest - loop.time()), _FIRST.total_seconds()))

    async def _look(self, waiters: list[_Waiter]) -> None:
        wanted = set().union(*(waiter.left for waiter in waiters))
        try:
            final = await final_of(self._store, wanted)
        except StoreUnavailableError:
            return  # those who wait are answered by their timeout, or when the store is back
        for waiter in waiters:
            waiter.left -= final
            if not waiter.left:
                waiter.done.set()
