"""Turns: calls of one kind have so many slots together, of which one caller has some at most.

A caller that has had its turn goes behind the others that wait, however many calls it makes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from datetime import timedelta
from types import TracebackType
from typing import NoReturn

from duly_core.errors import OverloadedError
from duly_core.traffic.time_budgets import TimeBudgets

_RETRY_AFTER = timedelta(milliseconds=500)


class Turns:
    """Who may go on, and who waits or is refused."""

    def __init__(
        self,
        what: str,
        slots: int,
        *,
        of_one: int,
        waiting_of_one: int,
        budgets: TimeBudgets | None = None,
        refused: Callable[[Hashable], None] = lambda _: None,
        waited: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Make one.

        Args:
            what: names the calls in a refusal.
            slots: calls under way, of all callers.
            of_one: the same, of one caller.
            waiting_of_one: calls of one caller that wait for a slot. Further ones are refused.
            budgets: in time under way; None: they do not count.
            refused: told of each caller that is refused.
            waited: told in a call for how many seconds it waited because its caller had all that one may have.
        """
        self._what = what
        self._free = slots
        self._of_one = min(slots, of_one)
        self._waiting_of_one = waiting_of_one
        self._budgets = budgets
        self._refused = refused
        self._waited = waited
        self._under_way: dict[Hashable, int] = {}
        """By caller; nobody has none."""
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        """By caller, the next one first; nobody has none."""

    def turn(self, caller: Hashable) -> "_Turn":
        """Return what a call of this caller holds while it is under way, for an `async with`.

        Raises:
            OverloadedError: too many calls of the caller wait, or it has used up its budget.
        """
        return _Turn(self, caller, self._budgets)

    def try_enter(self, caller: Hashable) -> bool:
        """Take a slot if there is one at once; then `leave` must follow."""
        under_way = self._under_way.get(caller, 0)
        if self._free <= 0 or under_way >= self._of_one:
            return False
        self._free -= 1
        self._under_way[caller] = under_way + 1
        return True

    async def enter(self, caller: Hashable) -> None:
        """Wait for a slot; then `leave` must follow.

        Raises:
            OverloadedError: as `turn`.
        """
        if self._budgets is not None and (wait := self._budgets.wait_of(caller)):
            self._refuse(caller, f"{self._what} of this caller take too much time", wait)
        if self.try_enter(caller):
            return
        if len(self._waiting.get(caller, ())) >= self._waiting_of_one:
            self._refuse(caller, f"too many {self._what} of this caller are under way", _RETRY_AFTER)
        waiting = self._waiting.setdefault(caller, deque())
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        for_own = self._under_way.get(caller, 0) >= self._of_one
        turn: asyncio.Future[None] = loop.create_future()
        waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(caller)
            else:
                self._forget(caller, turn)
            raise
        finally:
            if for_own:
                self._waited(loop.time() - began_at)

    def leave(self, caller: Hashable) -> None:
        """End what `enter` began: the next one has its turn."""
        self._free += 1
        left = self._under_way[caller] - 1
        if left:
            self._under_way[caller] = left
        else:
            del self._under_way[caller]
        if self._waiting:
            self._go_on()

    def _go_on(self) -> None:
        while self._free > 0:
            may = (each for each in self._waiting if self._under_way.get(each, 0) < self._of_one)
            caller = next(may, None)
            if caller is None:
                return
            waiting = self._waiting.pop(caller)
            turn = waiting.popleft()
            if waiting:
                self._waiting[caller] = waiting  # behind the others
            if not turn.done():
                self._free -= 1
                self._under_way[caller] = self._under_way.get(caller, 0) + 1
                turn.set_result(None)

    def _forget(self, caller: Hashable, turn: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(caller)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            if not waiting:
                del self._waiting[caller]

    def _refuse(self, caller: Hashable, reason: str, wait: timedelta) -> NoReturn:
        self._refused(caller)
        raise OverloadedError(f"{reason}: try again later", wait)


class _Turn:
    def __init__(self, turns: Turns, caller: Hashable, budgets: TimeBudgets | None) -> None:
        self._turns = turns
        self._caller = caller
        self._budgets = budgets

    async def __aenter__(self) -> None:
        await self._turns.enter(self._caller)
        self._began_at = asyncio.get_running_loop().time()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._budgets is not None:
            self._budgets.charge(self._caller, asyncio.get_running_loop().time() - self._began_at)
        self._turns.leave(self._caller)
