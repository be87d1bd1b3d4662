"""What happens, read once for all who watch at this server."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NamedTuple

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.watches import store as store_watches
from duly_core.watches.rules import Cursor, Event

LOOK_EVERY = timedelta(milliseconds=250)
"""While somebody waits."""
_PAGE = 1_000
_REMEMBERED = 20_000
"""Events in memory. Who is further behind reads the store."""
_A_STEP = 2_000
"""Events that one watch compares before others have their turn."""


class Found(NamedTuple):
    """What a reader gets."""

    events: Sequence[Event]
    end: Cursor
    """Where it goes on."""
    has_gap: bool = False
    """Some of what came next was removed."""
    is_ahead: bool = False
    """It asked for what comes behind a transaction that is not there yet."""


class EventFeed:
    """Looks at the store while somebody waits, with one statement for all; remembers the last events."""

    def __init__(self, store: Store, look_every: timedelta = LOOK_EVERY) -> None:
        """Make one."""
        self._store = store
        self._look_every_s = look_every.total_seconds()
        self._events: list[Event] = []
        self._start: Cursor | None = None
        """All that happened behind it, up to `_end`, is in `_events`; None: nothing is remembered."""
        self._end = Cursor(0)
        self._waiting = 0
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.looks = 0
        """Statements, since the start."""

    async def after(self, cursor: Cursor, fits: Callable[[Event], bool], most: int, wait: timedelta) -> Found:
        """Return what happened after a position and fits; wait if that is nothing yet.

        Raises:
            StoreUnavailableError: ask again.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + wait.total_seconds()
        with self._waiter():
            while True:
                changed = self._changed
                if self._start is not None and cursor >= self._start:
                    events, cursor = await self._remembered(cursor, fits, most)
                    is_last = not events
                else:
                    page = await self._read(cursor)
                    if page.has_gap or cursor.xid > page.ahead:
                        return Found((), cursor, page.has_gap, cursor.xid > page.ahead)
                    events = [event for event in page.events if fits(event)]
                    cursor, is_last = page.end, page.is_last
                if events or self._closing.is_set() or loop.time() >= end:
                    return Found(events, cursor)
                if is_last:
                    with suppress(TimeoutError):
                        async with asyncio.timeout_at(end):
                            await changed.wait()

    def close(self) -> None:
        """Answer all who wait: the server is about to stop."""
        self._closing.set()
        self._wake()

    async def _read(self, cursor: Cursor) -> store_watches.Page:
        self.looks += 1
        return await store_watches.read(self._store, cursor, _PAGE)

    async def _remembered(
        self, cursor: Cursor, fits: Callable[[Event], bool], most: int
    ) -> tuple[list[Event], Cursor]:
        found: list[Event] = []
        while self._start is not None and cursor >= self._start:
            place = bisect_right(self._events, cursor, key=lambda event: event.cursor)
            step = self._events[place : place + _A_STEP]
            if not step:
                return found, max(cursor, self._end)
            for event in step:
                cursor = event.cursor
                if fits(event):
                    found.append(event)
                    if len(found) >= most:
                        return found, cursor
            await asyncio.sleep(0)
        return found, cursor  # it was overtaken: what is missing is in the store

    @contextmanager
    def _waiter(self) -> Iterator[None]:
        self._waiting += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            self._waiting -= 1

    async def _look(self) -> None:
        """Look while somebody waits, and for one pause after that: who has an answer asks again soon."""
        self._start = None
        idle = False
        while not self._closing.is_set() and not (idle and not self._waiting):
            idle = not self._waiting
            is_last = True
            with suppress(StoreUnavailableError):  # who reads the store by itself is told
                is_last = await self._look_once()
            if is_last:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._look_every_s):
                        await self._closing.wait()
        self._start = None

    async def _look_once(self) -> bool:
        if self._start is None:
            self.looks += 1
            head = await store_watches.read(self._store, Cursor(_LATEST), 1)
            self._events, self._start, self._end = [], Cursor(head.head), Cursor(head.head)
            self._wake()
            return True
        page = await self._read(self._end)
        self._events += page.events
        self._end = page.end
        if len(self._events) > _REMEMBERED:
            left_out = len(self._events) - _REMEMBERED // 2
            self._start = self._events[left_out - 1].cursor
            del self._events[:left_out]
        if page.events:
            self._wake()
        return page.is_last

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


_LATEST = (1 << 63) - 1
"""No transaction has this number."""
