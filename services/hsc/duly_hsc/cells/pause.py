"""When a cell that failed is asked for claims again, so that one which is away costs those who ask for others little. No I/O."""

from collections.abc import Callable

_FIRST = 0.25
_LONGEST = 4.0
_SLOW = 1.0


class Pause:
    """Of one cell. After a failure it is passed over, ever longer; then one caller finds out for all."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Make one; `now` tells seconds on a clock that never goes back."""
        self._now = now
        self._failures = 0
        self._until = float("-inf")
        self._slow_until = float("-inf")
        self._slow_for = _SLOW
        self._is_tried = False
        self.is_in_doubt = False
        """It failed, or kept a caller waiting to the end, and has answered nothing since."""

    def may_try(self) -> bool:
        """Tell whether the caller may ask the cell; after a failure this lets one caller through at a time."""
        if not self._failures:
            return True
        now = self._now()
        if now < self._until:
            return False
        self._until = now + self._length()
        self._is_tried = True
        return True

    def left(self) -> float:
        """Return the seconds until somebody may ask; 0: now."""
        return max(0.0, self._until - self._now()) if self._failures else 0.0

    def failed(self) -> None:
        """The cell did not do what it was asked. Of many calls that fail together, one counts."""
        if self._failures and not self._is_tried and self._now() < self._until:
            return
        self._is_tried = False
        self.is_in_doubt = True
        self._failures += 1
        self._until = self._now() + self._length()

    def answered(self) -> None:
        """The cell did it."""
        self._failures = 0
        self._slow_for = _SLOW
        self._is_tried = False
        self.is_in_doubt = False

    def is_slow(self) -> bool:
        """Tell whether nobody is to wait for it before others are asked."""
        return self._now() < self._slow_until

    def was_slow(self) -> None:
        """It let a caller of other cells wait. If it does so again and again, ever fewer callers wait for it."""
        if self.is_slow():
            return
        self._slow_until = self._now() + self._slow_for
        self._slow_for = min(_LONGEST, 2 * self._slow_for)

    def hung(self) -> None:
        """It did not answer a caller that waited as long as it would."""
        self.is_in_doubt = True
        self.was_slow()

    def _length(self) -> float:
        return float(min(_LONGEST, _FIRST * 2 ** min(self._failures - 1, 10)))
