"""How long workers take from the request until they report, learned from those that came. No I/O."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

UNKNOWN = timedelta(seconds=30)
"""Assumed until a worker came."""
_QUANTILE = 0.9
_SAMPLES = 20
_PATIENCE = 3
_SHORTEST_PATIENCE = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class SpinUp:
    """The last spin-ups of a pool, and the workers that were asked for and have not come."""

    samples: tuple[timedelta, ...] = ()
    """The newest last."""
    asked: tuple[datetime, ...] = ()
    """When each worker that is missing was asked for, the oldest first."""
    seen_until: datetime | None = None
    """Workers that reported first by then are known."""
    lost: int = 0
    """Workers that were asked for and never came, in a row."""

    @property
    def is_measured(self) -> bool:
        """Whether a worker came since it was asked for."""
        return bool(self.samples)

    @property
    def expected(self) -> timedelta:
        """How long a worker will take: nine of ten of the last ones took no longer."""
        if not self.samples:
            return UNKNOWN
        ordered = sorted(self.samples)
        return ordered[math.ceil(_QUANTILE * len(ordered)) - 1]

    @property
    def patience(self) -> timedelta:
        """After so long a worker that was asked for is not waited for any more."""
        return max(self.expected * _PATIENCE, _SHORTEST_PATIENCE)

    def arrived(self, first_reports: Iterable[datetime], now: datetime) -> "SpinUp":
        """Return it with workers that reported for the first time at these times; known ones are passed over.

        Each is taken for the worker that was asked for first: workers of one pool are alike.
        """
        asked = list(self.asked)
        samples = list(self.samples)
        seen = self.seen_until
        came = sorted(each for each in first_reports if self.seen_until is None or each > self.seen_until)
        for at in came:
            if asked and asked[0] <= at:
                samples.append(at - asked.pop(0))
            seen = at
        missing = [each for each in asked if now - each < self.patience]
        lost = (0 if came else self.lost) + len(asked) - len(missing)
        return replace(
            self, samples=tuple(samples[-_SAMPLES:]), asked=tuple(missing), seen_until=seen, lost=lost
        )

    def wanted(self, missing: int, now: datetime) -> "SpinUp":
        """Return it with so many workers asked for that have not come: more are asked for now, or the last ones given up."""
        if missing <= len(self.asked):
            return replace(self, asked=self.asked[: max(0, missing)])
        return replace(self, asked=(*self.asked, *(now for _ in range(missing - len(self.asked)))))
