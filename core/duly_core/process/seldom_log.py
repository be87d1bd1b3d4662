"""A log line that others can cause as often as they like."""

import time
from collections.abc import Callable
from typing import Any

_EVERY = 1.0


class SeldomLog:
    """Logs at most one line a second, with how many were left out before it."""

    def __init__(self, log: Any, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._event = event
        self._clock = clock
        self._next_at = float("-inf")
        self._left_out = 0

    def warn(self, **fields: object) -> None:
        """Log a warning, unless one was logged just now."""
        now = self._clock()
        if now < self._next_at:
            self._left_out += 1
            return
        self._log.warning(self._event, **fields, left_out=self._left_out)
        self._next_at = now + _EVERY
        self._left_out = 0
