"""Lets one look at a time claim for a call that waits in several stores. No I/O.

Else each store in which something is due would claim for it, and all but one would hand back what they claimed: a statement and a
notification each, for nothing.
"""

import asyncio
from collections.abc import Callable

_LONGEST = 0.1
"""Seconds that a look keeps those of other stores waiting: its store may hang."""


class LookTurn:
    """Of one call. Its waits are told apart by any object each."""

    def __init__(self) -> None:
        self._taken_by: object | None = None
        self._ends: asyncio.TimerHandle | None = None
        self._is_over = False
        self._plans: dict[object, Callable[[], None]] = {}

    def is_open(self) -> bool:
        """Tell whether a look may claim for the call now."""
        return self._taken_by is None and not self._is_over

    def when_open(self, by: object, plan: Callable[[], None]) -> None:
        """Call `plan`, the last one of this wait, once the call is open again; it is not called if a look ends the call."""
        self._plans[by] = plan

    def take(self, by: object) -> None:
        """Begin a look for this wait of the call."""
        self._stop_timer()
        self._taken_by = by
        self._ends = asyncio.get_running_loop().call_later(_LONGEST, self.give, by)

    def give(self, by: object) -> None:
        """End the look of this wait, which has claimed nothing, if it is the one under way."""
        if self._taken_by is not by:
            return
        self._stop_timer()
        self._taken_by = None
        plans, self._plans = self._plans, {}
        for plan in plans.values():
            plan()

    def end(self) -> None:
        """A look has claimed for the call: no other one may."""
        self._stop_timer()
        self._is_over = True
        self._plans.clear()

    def _stop_timer(self) -> None:
        if self._ends is not None:
            self._ends.cancel()
            self._ends = None
