"""How often what looks at a store by itself does so: of many stores most have nothing to do, and each look costs all of them.

A loop that found nothing rests for long as long as a listener would tell it of a change. When something becomes due, or a listener is
lost, all loops go on at once, and look as often as usual for a while. If several stores of a process are lively, their looks
together are as many as those of one: what is due is told, and such looks are for words that were lost.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

QUIET = timedelta(seconds=30)
"""How long loops of a quiet cell rest. A listener that is cut off is known to be lost within half of it (keepalives). What is due
later than the notifications' horizon, of which nobody tells, is found in time."""
_LIVELY_FOR = 10.0
"""Seconds after which a store is taken to be quiet again."""


class Lively:
    """Counts the stores of a process that are not quiet."""

    def __init__(self) -> None:
        self._until: dict[Pace, float] = {}

    def stirred(self, pace: "Pace", until: float) -> None:
        """Note until when a store is lively."""
        self._until[pace] = until

    def count(self, now: float) -> int:
        """Return how many are; one at least."""
        self._until = {pace: until for pace, until in self._until.items() if until > now}
        return max(1, len(self._until))


class Pace:
    """Of one store in one process."""

    def __init__(self, longest: timedelta | None = None, lively: Lively | None = None) -> None:
        """Make one.

        Args:
            longest: how long loops of a quiet store rest. None: never longer than usual.
            lively: counts the stores whose looks together are as many as those of one; None: there is no other.
        """
        self._longest = longest
        self._lively = lively or Lively()
        self._listeners = 0
        self._stirred_at = float("-inf")
        self._resting: set[asyncio.Event] = set()
        """Of loops that what becomes due wakes."""
        self._slow: set[asyncio.Event] = set()
        """Of loops that only the loss of a listener wakes."""

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
            while self._slow:
                self._slow.pop().set()

    @property
    def spares(self) -> bool:
        """Whether connections are spared: nothing was due for a while, or yet."""
        if self._longest is None:
            return False
        return asyncio.get_running_loop().time() - self._stirred_at >= _LIVELY_FOR

    @property
    def is_quiet(self) -> bool:
        """Whether loops rest: somebody listens, and nothing was due for a while."""
        return bool(self._listeners) and self.spares

    def rest(
        self,
        usual: timedelta,
        wake: asyncio.Event | None = None,
        *,
        times: float = 1,
        shares: bool = True,
    ) -> timedelta:
        """Return how long a loop rests whose round found nothing.

        Args:
            usual: how long it rests in a store that is not quiet, if no other one of the process is lively.
            wake: is set when something becomes due in a quiet store, and when a listener is lost; None: the loop's work can wait.
            times: how much longer than `longest` it may rest; below 1: how much less long.
            shares: whether it looks less often in a lively store if other ones are lively, too; not if nobody tells of what it looks for.
        """
        if self._longest is None or not self._listeners:
            return usual
        longest = max(usual, self._longest * times)
        if self.is_quiet:
            if wake is not None:
                self._resting.add(wake)
            return longest
        lively = self._lively.count(asyncio.get_running_loop().time()) if shares else 1
        if lively > 1 and wake is not None:
            self._slow.add(wake)
        return min(longest, usual * lively)

    def stir(self) -> None:
        """Note that something is due, or may be: loops that rest go on."""
        if self._longest is None:
            return
        self._stirred_at = asyncio.get_running_loop().time()
        self._lively.stirred(self, self._stirred_at + _LIVELY_FOR)
        while self._resting:
            self._resting.pop().set()


USUAL = Pace()
"""Of a sole store."""
