"""How fast claims may be voided: after an outage thousands of leases end together, and must not come back as a herd."""


class VoidingPace:
    """A bucket that fills at `rate` claims a second, holds one second's worth, and may be overdrawn. No I/O."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._left = rate
        self._at: float | None = None

    def allowance(self, now: float) -> int:
        """How many claims may be voided at `now` (seconds on a clock that never goes back)."""
        if self._at is not None:
            self._left = min(self._rate, self._left + (now - self._at) * self._rate)
        self._at = now
        return max(0, int(self._left))

    def voided(self, claims: int) -> None:
        """So many were."""
        self._left -= claims
