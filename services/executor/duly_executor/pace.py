"""How many tasks to hold ahead: as many as end soon. Pure arithmetic, no I/O."""

from datetime import timedelta

_WINDOW = 0.05
_SMOOTHING = 0.5


class Pace:
    """The rate at which tasks end, smoothed over windows of 50 ms; it fades while nothing ends."""

    def __init__(self, ahead: timedelta, most: int) -> None:
        self._ahead = ahead.total_seconds()
        self._most = most
        self._rate = 0.0
        self._count = 0
        self._since: float | None = None

    def ended(self, tasks: int, now: float) -> None:
        """So many ended by `now` (seconds on a clock that never goes back)."""
        self._roll(now)
        self._count += tasks

    def ahead(self, now: float) -> int:
        """How many tasks will end within the time ahead, going by the rate."""
        self._roll(now)
        return min(self._most, int(self._rate * self._ahead))

    def _roll(self, now: float) -> None:
        if self._since is None:
            self._since = now
            return
        elapsed = now - self._since
        if elapsed >= _WINDOW:
            self._rate += (1 - (1 - _SMOOTHING) ** (elapsed / _WINDOW)) * (self._count / elapsed - self._rate)
            self._count, self._since = 0, now
