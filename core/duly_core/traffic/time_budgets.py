"""Budgets in time: how much of what all share one caller may use. Pure, but for a clock."""

import time
from collections.abc import Callable, Hashable
from datetime import timedelta

_MOST_KEPT = 1_000
"""Callers. Beyond that those that owe nothing are forgotten."""


class TimeBudgets:
    """Each caller may use `share` of the time that passes, and `burst` more at once."""

    def __init__(self, share: float, burst: timedelta, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = share
        self._burst = burst.total_seconds()
        self._clock = clock
        self._used: dict[Hashable, tuple[float, float]] = {}
        """By caller: seconds that are not paid back, and when that was so."""
        self._sweep_at = _MOST_KEPT

    def charge(self, caller: Hashable, seconds: float) -> None:
        """Note that a caller used so much."""
        now = self._clock()
        self._used[caller] = (self._owed(caller, now) + seconds, now)
        if len(self._used) > self._sweep_at:
            self._used = {each: used for each, used in self._used.items() if self._owed(each, now)}
            self._sweep_at = max(_MOST_KEPT, 2 * len(self._used))

    def wait_of(self, caller: Hashable) -> timedelta:
        """Return how long a caller must wait before it may use more; zero: it may now."""
        if caller not in self._used:
            return timedelta()
        over = self._owed(caller, self._clock()) - self._burst
        return timedelta(seconds=over / self._share) if over > 0 else timedelta()

    def _owed(self, caller: Hashable, now: float) -> float:
        owed, at = self._used.get(caller, (0.0, now))
        return max(0.0, owed - (now - at) * self._share)
