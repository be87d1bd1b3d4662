"""The streams that are open: bounds, and who ends them. No I/O."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum

from duly_console import events
from duly_console.errors import PageError

MOST_OF_ONE = 4
"""Streams of one session. Browsers have six connections to a console: the others are for its pages."""


class Signal(StrEnum):
    """What a stream tells. It has no values: the page asks for those as ever."""

    BEGUN = "begun"
    CHANGED = "changed"
    AWAY = "away"
    """The Frontend does not answer: the page is to find out, and to say so."""
    BEAT = "beat"
    """The stream is alive."""
    DONE = "done"
    """Nothing will change any more, or nobody can tell: the page is not to open another stream."""


class Stream:
    """One that is open: what it is to tell next."""

    def __init__(self) -> None:
        self.over = asyncio.Event()
        """It is to end: its session did, or the console stops."""
        self._due: set[Signal] = set()
        self._bell = asyncio.Event()

    def tell(self, signal: Signal) -> None:
        """Send a signal soon; several of a kind become one."""
        self._due.add(signal)
        self._bell.set()

    def end(self) -> None:
        """End it."""
        self.over.set()
        self._bell.set()

    async def next(self, seconds: float) -> list[Signal]:
        """Return what is due; wait for it so long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        self._bell.clear()
        due = [signal for signal in Signal if signal in self._due]
        self._due.clear()
        return due


class Streams:
    """All streams of a console."""

    def __init__(self, most: int, most_of_one: int = MOST_OF_ONE) -> None:
        """Make one, with the bounds of all and of one session."""
        self._most = most
        self._most_of_one = most_of_one
        self._open: dict[Stream, str] = {}
        self._of_session: Counter[str] = Counter()
        self._is_closed = False

    @contextmanager
    def opened(self, session: str) -> Iterator[Stream]:
        """Open a stream of a session.

        Raises:
            PageError: too many are open, or the console stops.
        """
        if self._is_closed:
            raise PageError(503, "The console stops.")
        if len(self._open) >= self._most or self._of_session[session] >= self._most_of_one:
            events.stream_refused()
            raise PageError(429, "Too many pages of this console follow changes. This one looks by itself.")
        stream = Stream()
        self._open[stream] = session
        self._of_session[session] += 1
        events.streams_are_open(len(self._open))
        try:
            yield stream
        finally:
            del self._open[stream]
            self._of_session[session] -= 1
            if not self._of_session[session]:
                del self._of_session[session]
            events.streams_are_open(len(self._open))

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def end(self, session: str) -> None:
        """End the streams of a session that has ended."""
        for stream in [each for each, whose in self._open.items() if whose == session]:
            stream.end()

    def close(self) -> None:
        """End all, and open no others: the console stops."""
        self._is_closed = True
        for stream in list(self._open):
            stream.end()
