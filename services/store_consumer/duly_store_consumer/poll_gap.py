"""Keeps polls apart: by the batching gap, and by more while tasks come as a stream. No I/O."""

from datetime import timedelta

from duly_core.postgres.rate_detector import STREAM, STREAM_GAP


class PollGap:
    """Times are in seconds on a clock that never goes back."""

    def __init__(self) -> None:
        self._polled_at = float("-inf")
        self._sent = 0
        self._is_stream = False

    def left(self, now: float, batching_gap: timedelta) -> float:
        """Return how many seconds the next poll must wait; zero or less: none."""
        gap = max(batching_gap, STREAM_GAP) if self._is_stream else batching_gap
        return self._polled_at + gap.total_seconds() - now

    def begin(self, now: float) -> None:
        """Note that a poll begins, and whether the last one sent as much as a stream does."""
        self._is_stream = self._sent >= STREAM * (now - self._polled_at)
        self._polled_at, self._sent = now, 0

    def sent(self, references: int) -> None:
        """Note how many references this poll sent."""
        self._sent = references
