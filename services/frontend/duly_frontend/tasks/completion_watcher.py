"""Long polls for the ends of tasks, or of graphs: one statement looks for all who wait."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, islice

from duly_core.errors import OverloadedError, StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.process.loop import wait_for
from duly_core.tasks.store import final_of

_FIRST = timedelta(milliseconds=5)
_LONGEST = timedelta(milliseconds=500)
_GROWTH = 1.3
_AT_A_TIME = 2_000
"""Tasks, of all who wait together, that one statement looks for."""
MOST_OF_ONE = 50_000
"""Tasks that one caller waits for at a time; one that is named in two calls counts twice."""
_RETRY_AFTER = timedelta(seconds=1)
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
        self,
        store: Store,
        look: Callable[[Store, Collection[bytes]], Awaitable[set[bytes]]] = final_of,
        refused: Callable[[Hashable], None] = lambda _: None,
    ) -> None:
        """Make one.

        Args:
            store: has the tasks.
            look: tells which of these ids need not be waited for.
            refused: told of each caller that is refused.
        """
        self._refused = refused
        self._waited_for: Counter[Hashable] = Counter()
        """How many ids each caller waits for."""
        self._store = store
        self._look_for = look
        self._waiters: set[_Waiter] = set()
        self._newcomer = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def wait(self, task_ids: Collection[bytes], timeout: timedelta, caller: Hashable = None) -> None:
        """Return when each of these is final (or not there), at the latest after `timeout`, or when it is closed.

        Raises:
            OverloadedError: the caller waits for too many already.
        """
        if self._closed:
            return
        self.check(caller, len(task_ids))
        self._waited_for[caller] += len(task_ids)
        waiter = _Waiter(set(task_ids))
        self._waiters.add(waiter)
        self._newcomer.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._watch())
        try:
            await wait_for(waiter.done, timeout)
        finally:
            self._waiters.discard(waiter)
            self._waited_for[caller] -= len(task_ids)
            if not self._waited_for[caller]:
                del self._waited_for[caller]

    def check(self, caller: Hashable, count: int) -> None:
        """Let a caller wait for so many more.

        Raises:
            OverloadedError: it waits for too many already.
        """
        waited_for = self._waited_for[caller]
        if waited_for + count > MOST_OF_ONE:
            self._refused(caller)
            message = f"this caller waits for {waited_for:,} ends already, and may for {MOST_OF_ONE:,}"
            raise OverloadedError(f"{message}: try again later", _RETRY_AFTER)

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
        for wanted in _portions(waiters):
            try:
                final = await self._look_for(self._store, wanted)
            except StoreUnavailableError:
                return  # those who wait are answered by their timeout, or when the store is back
            for waiter in waiters if final else ():
                waiter.left -= final
                if not waiter.left:
                    waiter.done.set()


def _portions(waiters: Sequence[_Waiter]) -> Iterator[set[bytes]]:
    """Yield the ids that one statement looks for. Those of who waits for few come first: others wait for thousands."""
    if sum(len(waiter.left) for waiter in waiters) <= _AT_A_TIME:
        yield set().union(*(waiter.left for waiter in waiters))
        return
    in_order = sorted(waiters, key=lambda waiter: len(waiter.left))
    ids = iter(dict.fromkeys(chain.from_iterable(waiter.left for waiter in in_order)))
    while portion := set(islice(ids, _AT_A_TIME)):
        yield portion
