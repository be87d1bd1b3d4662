"""Limits how fast claims are voided: after an outage thousands of leases end together."""

from collections.abc import Callable

from duly_core.process.clock import seconds_since_boot


class ReclaimLimiter:
    """A token bucket that fills at `rate` claims a second, holds those of one second, and may be overdrawn. No I/O."""

    def __init__(self, rate: float, now: Callable[[], float] = seconds_since_boot) -> None:
        self._rate = rate
        self._now = now
        self._left = rate
        self._at = now()

    def set_rate(self, rate: float) -> None:
        """Fill the bucket at this rate from now on."""
        self.allowance()
        self._rate = rate

    def allowance(self) -> int:
        """Return how many claims may be voided now."""
        now = self._now()
        self._left = min(max(1.0, self._rate), self._left + (now - self._at) * self._rate)
        self._at = now
        return max(0, int(self._left))

    def revoked(self, claims: int) -> None:
        """Deduct `claims` from the bucket."""
        self._left -= claims
