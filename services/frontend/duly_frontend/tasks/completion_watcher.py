"""Long polls for the ends of tasks, or of graphs: one statement looks for all who wait."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.process.loop import wait_for
from duly_core.tasks.store import final_of

_FIRST = timedelta(milliseconds=5)
_LONGEST = timedelta(milliseconds=500)
_GROWTH = 1.3
_AT_A_TIME = 2_000
"""Tasks, of all who wait together, that one statement looks for."""
_COMPANY = 0.5
"""Who would look after this part of his pause looks now, with the others: many waits come to look together."""


@dataclass(slots=True, eq=False)
class _Waiter:
    left: set[bytes]
    pause: timedelta = _FIRST
    next_look: float = 0
    done: asyncio.Event = field(default_factory=asyncio.Event)


class CompletionWatcher:
    """Looks soon after a wait began and ever more seldom after that (5 ms to 500 ms), for all waits together.

    Nothing runs while nobody waits, and between two looks it sleeps.
    """

    def __init__(
        self, store: Store, look: Callable[[Store, Collection[bytes]], Awaitable[set[bytes]]] = final_of
    ) -> None:
        """Make one; `look` tells which of these ids need not be waited for."""
        self._store = store
        self._look_for = look
        self._waiters: set[_Waiter] = set()
        self._newcomer = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, task_ids: Collection[bytes], timeout: timedelta) -> None:
        """Return when each of these is final (or not there), at the latest after `timeout`, or when it is closed."""
        if self._closed:
            return
        waiter = _Waiter(set(task_ids))
        self._waiters.add(waiter)
        self._newcomer.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            await wait_for(waiter.done, timeout)
        finally:
            self._waiters.discard(waiter)

    def close(self) -> None:
        """Who waits is answered at once, and asks again elsewhere: long polls would use up the grace of a shutdown."""
        self._closed = True
        for waiter in self._waiters:
            waiter.done.set()

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiters:
            self._newcomer.clear()
            now = loop.time()
            looking = [
                waiter
                for waiter in self._waiters
                if waiter.next_look - now <= waiter.pause.total_seconds() * _COMPANY
            ]
            if looking:
                await self._look(looking)
                for waiter in looking:
                    waiter.next_look = loop.time() + waiter.pause.total_seconds()
                    waiter.pause = min(waiter.pause * _GROWTH, _LONGEST)
                await asyncio.sleep(_FIRST.total_seconds())  # those who come meanwhile look together
            if self._waiters:
                soonest = min(waiter.next_look for waiter in self._waiters)
                await wait_for(self._newcomer, timedelta(seconds=max(0.0, soonest - loop.time())))

    async def _look(self, waiters: list[_Waiter]) -> None:
        for some in _portions(waiters):
            wanted = set().union(*(waiter.left for waiter in some))
            try:
                final = await self._look_for(self._store, wanted)
            except StoreUnavailableError:
                return  # those who wait are answered by their timeout, or when the store is back
            for waiter in some:
                waiter.left -= final
                if not waiter.left:
                    waiter.done.set()


def _portions(waiters: Iterable[_Waiter]) -> Iterator[list[_Waiter]]:
    """Yield those for whom one statement looks. Who waits for little comes first: others wait for thousands of tasks."""
    portion: list[_Waiter] = []
    size = 0
    for waiter in sorted(waiters, key=lambda each: len(each.left)):
        if portion and size + len(waiter.left) > _AT_A_TIME:
            yield portion
            portion, size = [], 0
        portion.append(waiter)
        size += len(waiter.left)
    if portion:
        yield portion
