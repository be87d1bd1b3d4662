"""When single tasks have become a stream: from then on looking seldom costs less and makes nobody wait for long."""

from datetime import timedelta
from typing import Final

STREAM: Final = 1_000
"""Tasks a second; from there on the hosts have work, and what is done for a dozen costs as much as for hundreds."""

STREAM_GAP: Final = timedelta(milliseconds=20)
"""So far apart a Store Consumer looks at a stream, and is told of it."""


class RateDetector:
    """Counts over the last stretch of STREAM_GAP, at least: two tasks in one millisecond are no stream."""

    def __init__(self) -> None:
        self._begun_at = float("-inf")
        self._count = 0
        self.is_high = False
        """Whether tasks came at the rate of a stream, in the last stretch that is over."""

    def count(self, tasks: int, now: float) -> None:
        """So many came; `now` is in seconds, on whichever clock."""
        elapsed = now - self._begun_at
        if elapsed >= STREAM_GAP.total_seconds():
            self.is_high = self._count >= STREAM * elapsed
            self._begun_at = now
            self._count = 0
        self._count += tasks
