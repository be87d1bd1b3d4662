"""Large work on the event loop, done a slice at a time: other calls have their turn between two slices.

A thread would not help: it holds the interpreter's lock for milliseconds at a time, and as many threads wait for each
other and for the loop. Here one piece of work is under way for each caller, and callers take turns, slice by slice.
"""

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Hashable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from duly_core.errors import OverloadedError
from duly_core.traffic.time_budgets import TimeBudgets

Item = TypeVar("Item")
Result = TypeVar("Result")
Steps = Generator[None, None, Result]
"""Work that yields after each short step, and returns its result."""

_SLICE = 0.002
"""Seconds. A step that is begun is not cut."""
_REST = 1.0
"""Seconds between two slices, for each second that the last one took, while others have work."""
_IDLE = 0.000_2
"""Seconds in which the loop comes back if nobody else has anything to do."""
_REMEMBERED = 0.02
"""Seconds for which others count as having work: a call waits for its store more than once."""
_MOST_WAITING = 64
"""Pieces of work of one caller."""
_RETRY_AFTER = timedelta(milliseconds=500)


@dataclass(slots=True, eq=False)
class _Work:
    steps: Generator[None, None, Any]
    context: contextvars.Context
    done: "asyncio.Future[Any]"
    first_at: float | None
    """When it was the next one of its caller; None: it is not yet."""


class Rests:
    """Rests between slices, but only while others have work: an idle loop is free for what comes all the same."""

    def __init__(
        self,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Make one; `sleep(0)` lets others have their turn."""
        self._clock = clock
        self._sleep = sleep
        self._busy_until = float("-inf")

    async def __call__(self, seconds: float) -> None:
        """Let others have their turn; if one had work a moment ago, rest for so long."""
        began_at = self._clock()
        for _ in range(2):  # one for what is ready, one for what came over the network meanwhile
            await self._sleep(0)
        now = self._clock()
        if now - began_at > _IDLE:
            self._busy_until = now + _REMEMBERED
        if now < self._busy_until:
            await self._sleep(seconds)


class Slices:
    """Does work of many callers by turns."""

    def __init__(
        self,
        what: str,
        budgets: TimeBudgets | None = None,
        *,
        most_waiting: int = _MOST_WAITING,
        refused: Callable[[Hashable], None] = lambda _: None,
        waited: Callable[[float], None] = lambda _: None,
        clock: Callable[[], float] = time.perf_counter,
        rest: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """Make one.

        Args:
            what: names the work in a refusal.
            budgets: in time of slices and of the rests that follow them; None: they do not count.
            most_waiting: pieces of work of one caller. Further ones are refused.
            refused: told of each caller that is refused.
            waited: told by who waits for work for how many seconds it was behind other work of its caller.
            clock: measures slices.
            rest: waits between two slices; None: as long as others have work (Rests).
        """
        self._what = what
        self._budgets = budgets
        self._most_waiting = most_waiting
        self._refused = refused
        self._waited = waited
        self._clock = clock
        self._rest = rest or Rests()
        self._callers: dict[Hashable, deque[_Work]] = {}
        self._worker: asyncio.Task[None] | None = None

    def check(self, caller: Hashable) -> None:
        """Let a caller begin large work.

        Raises:
            OverloadedError: it has used up its budget, or has too much that waits.
        """
        wait = self._budgets.wait_of(caller) if self._budgets is not None else timedelta()
        if wait:
            self._refuse(caller, f"{self._what} of this caller take too much time", wait)
        if len(self._callers.get(caller, ())) >= self._most_waiting:
            self._refuse(caller, f"too many {self._what} of this caller wait", _RETRY_AFTER)

    def _refuse(self, caller: Hashable, reason: str, wait: timedelta) -> NoReturn:
        self._refused(caller)
        raise OverloadedError(f"{reason}: try again later", wait)

    async def run(self, caller: Hashable, steps: Steps[Result]) -> Result:
        """Do work; what ends with its first step does not wait for a turn.

        Raises:
            OverloadedError: as `check`.
        """
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        self.check(caller)
        done: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        waiting = self._callers.setdefault(caller, deque())
        began_at = self._clock()
        work = _Work(steps, contextvars.copy_context(), done, None if waiting else began_at)
        waiting.append(work)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
        try:
            return await done
        finally:
            first_at = self._clock() if work.first_at is None else work.first_at
            if first_at > began_at:
                self._waited(first_at - began_at)

    async def _work(self) -> None:
        while self._callers:
            caller, waiting = next(iter(self._callers.items()))
            del self._callers[caller]
            took = self._slice(waiting)
            if waiting:
                self._callers[caller] = waiting  # behind the others
            if self._budgets is not None:
                self._budgets.charge(caller, took * (1 + _REST))
            await self._rest(took * _REST)

    def _slice(self, waiting: deque[_Work]) -> float:
        """Go on with the first piece of work of a caller; return how long that took."""
        began_at = self._clock()
        work = waiting[0]
        try:
            while not work.done.done():
                work.context.run(next, work.steps)
                if self._clock() - began_at >= _SLICE:
                    return self._clock() - began_at
            work.steps.close()  # nobody waits for it any more
        except StopIteration as end:
            if not work.done.done():
                work.done.set_result(end.value)
        except Exception as error:  # noqa: BLE001 (whatever it was, its caller is told)
            if not work.done.done():
                work.done.set_exception(error)
        waiting.popleft()
        now = self._clock()
        if waiting:
            waiting[0].first_at = now
        return now - began_at


def finish(steps: Steps[Result]) -> Result:
    """Take all steps at once, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def each(make: Callable[[Item], Result], items: Iterable[Item], a_step: int = 100) -> Steps[list[Result]]:
    """Return what `make` makes of each item; a step is so many of them."""
    made: list[Result] = []
    for place, item in enumerate(items, start=1):
        made.append(make(item))
        if not place % a_step:
            yield
    return made
