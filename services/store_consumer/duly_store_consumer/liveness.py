"""Reports a loop that completes no round any more: liveness is progress."""

import asyncio
import time
from datetime import timedelta

from duly_store_consumer import events

_ROUNDS_MISSED = 2
_LONGEST_ROUND = 10.0
"""Seconds that a round may take when Postgres is busy: longer than one statement may."""


class Liveness:
    """Remembers when the last round was completed."""

    def __init__(self) -> None:
        self._completed_at: float | None = None

    def completed(self) -> None:
        """Note that a round was completed now."""
        self._completed_at = asyncio.get_running_loop().time()
        events.last_round.set(time.time())

    def unhealthy_reason(self, interval: timedelta) -> str | None:
        """Return why health checks fail: no round was completed for long. None: all is well."""
        now = asyncio.get_running_loop().time()
        if self._completed_at is None:
            self._completed_at = now  # asked for the first time: the first round may take as long as any
        without = now - self._completed_at
        if without <= _ROUNDS_MISSED * interval.total_seconds() + _LONGEST_ROUND:
            return None
        return f"no round was completed for {without:.1f} s"
