"""How often what looks at a store by itself does so: of many stores most have nothing to do, and each look costs all of them.

A loop that found nothing rests for long as long as a listener would tell it of a change. When something becomes due, or a listener is
lost, all loops go on at once, and look as often as usual for a while.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

QUIET = timedelta(seconds=10)
"""How long loops of a quiet cell rest: less than any lease or timeout by which a look must come."""
_LIVELY_FOR = 10.0
"""Seconds after which a store is taken to be quiet again."""


class Pace:
    """Of one store in one process."""

    def __init__(self, longest: timedelta | None = None) -> None:
        """Make one; `longest` is how long loops of a quiet store rest. None: never longer than usual."""
        self._longest = longest
        self._listeners = 0
        self._stirred_at = float("-inf")
        self._resting: set[asyncio.Event] = set()

    @property
    def gives_back(self) -> bool:
        """Whether connections that nobody needs are closed."""
        return self._longest is not None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Note that somebody listens to the store's notifications, for a `with`."""
        self._listeners += 1
        try:
            yield
        finally:
            self._listeners -= 1
            self.stir()

    def rest(self, usual: timedelta, wake: asyncio.Event | None = None, *, times: float = 1) -> timedelta:
        """Return how long a loop rests whose round found nothing.

        Args:
            usual: how long it rests in a store that is not quiet.
            wake: is set when something becomes due; None: the loop's work can wait.
            times: how much longer than `longest` it may rest.
        """
        if self._longest is None or not self._listeners:
            return usual
        if asyncio.get_running_loop().time() - self._stirred_at < _LIVELY_FOR:
            return usual
        if wake is not None:
            self._resting.add(wake)
        return max(usual, self._longest * times)

    def stir(self) -> None:
        """Note that something is due, or may be: loops that rest go on."""
        if self._longest is None:
            return
        self._stirred_at = asyncio.get_running_loop().time()
        while self._resting:
            self._resting.pop().set()


USUAL = Pace()
"""Of a sole store."""
