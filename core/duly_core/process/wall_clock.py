"""Compares this machine's wall clock with Postgres's. People look at the difference: only Postgres's clock decides."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from duly_core.process.clock import seconds_since_boot
from duly_core.process.telemetry import clock_ahead

LARGEST_SKEW = timedelta(seconds=2)
"""Clocks that differ by more are said to differ."""
_LONGEST_ROUND_TRIP = timedelta(seconds=1)
"""Half of it is the largest error of a comparison; an answer that took longer says too little."""


class Asked(NamedTuple):
    """When Postgres was asked for its time."""

    at: datetime
    """By the wall clock."""
    since_boot: float


class WallClock:
    """Postgres is taken to have read its clock in the middle between question and answer."""

    def __init__(
        self,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        since_boot: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self._now = now
        self._since_boot = since_boot
        self.ahead: timedelta | None = None
        """By how much it is ahead, by the last comparison; negative: behind. None: unknown."""

    def ask(self) -> Asked:
        """Return what `compare` needs; called just before Postgres is asked."""
        return Asked(self._now(), self._since_boot())

    def compare(self, asked: Asked, store_at: datetime) -> None:
        """Note what Postgres's clock was, as soon as the answer is there."""
        round_trip = timedelta(seconds=self._since_boot() - asked.since_boot)
        if round_trip <= _LONGEST_ROUND_TRIP:
            self.ahead = asked.at + round_trip / 2 - store_at
            clock_ahead.set(self.ahead.total_seconds())

    @property
    def is_skewed(self) -> bool:
        """Whether it is known to differ."""
        return self.ahead is not None and abs(self.ahead) > LARGEST_SKEW
