"""Whether the store's clock has gone on as time has: what removes for good does not believe one that stepped ahead."""

from collections.abc import Callable
from datetime import datetime, timedelta

_STEP = timedelta(minutes=10)
_BELIEVED_AFTER = timedelta(days=1)


class ClockWatch:
    """Asked with the store's time before anything is removed by it."""

    def __init__(self, since_boot: Callable[[], int]) -> None:
        """Args: `since_boot` is this host's nanoseconds that no clock setting moves."""
        self._since_boot = since_boot
        self._last: tuple[datetime, timedelta] | None = None
        self._ahead = timedelta()
        """By how much it is ahead of what was believed last."""
        self._stepped_at = timedelta()

    def doubt(self, now: datetime) -> timedelta | None:
        """By how much the clock stepped ahead, if it did and was not set back; None: it is believed.

        A day later it is believed all the same: then somebody had set a clock right that was slow.
        """
        at = timedelta(microseconds=self._since_boot() // 1000)
        if self._last is not None:
            step = (now - self._last[0]) - (at - self._last[1])
            if abs(step) > _STEP:
                self._ahead += step
                self._stepped_at = at
        self._last = (now, at)
        if self._ahead <= _STEP or at - self._stepped_at > _BELIEVED_AFTER:
            self._ahead = timedelta()
            return None
        return self._ahead
