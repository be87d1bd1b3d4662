"""How many tasks to hold ahead: as many as end soon. Pure arithmetic, no I/O."""

from datetime import timedelta

_WINDOW = 0.05
_SMOOTHING = 0.5
_GROWTH = 2
"""So many times what has ended within a window, if that is more than there are slots: a burst doubles with each call,
as TCP begins, and does not wait for the rate to be known."""


class Prefetch:
    """The rate at which tasks end, over windows of 50 ms; it rises at once with short ones, and fades while fewer end."""

    def __init__(self, ahead: timedelta, most: int, slots: int) -> None:
        """Args: as much as ends within `ahead`, at most so many; `slots` is how many run at a time."""
        self._slots = slots
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
        burst = _GROWTH * self._count if self._ahead and self._count > self._slots else 0
        return min(self._most, max(burst, int(self._rate * self._ahead)))

    def _roll(self, now: float) -> None:
        if self._since is None:
            self._since = now
            return
        elapsed = now - self._since
        if elapsed >= _WINDOW:
            seen = self._count / elapsed
            if seen > self._rate and self._count > self._slots:
                self._rate = seen  # they were short, for slots were used more than once
            else:
                self._rate += (1 - (1 - _SMOOTHING) ** (elapsed / _WINDOW)) * (seen - self._rate)
            self._count, self._since = 0, now
