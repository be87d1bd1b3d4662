"""The clock of a test: it stands still until the test steps it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duly_local.testing.errors import DulyTestError, check_type
from duly_local.testing.worker import MOST_RUNS, Run

if TYPE_CHECKING:
    from duly_local.testing.stack import TestStack


class DulyClock:
    """Time by which tasks are due, claims run out and time tables tick. The time of Python (`datetime.now()`) is not moved."""

    def __init__(self, stack: TestStack) -> None:
        self._stack = stack

    @property
    def now(self) -> datetime:
        """The instant at which the clock stands (aware, UTC)."""
        return self._stack.now

    def advance(self, duration: timedelta, *, most: int = MOST_RUNS) -> list[Run]:
        """Step to what is due within `duration`, one instant after the other, and run it there; return the runs.

        The workers of the test run what is due now, too. Time in which nothing is due costs nothing.

        Raises:
            DulyTestError: after `most` runs there is still something due.
        """
        check_type("duration", duration, timedelta, "timedelta(days=7)")
        if duration < timedelta():
            raise DulyTestError(f"the clock does not go back: {duration}")
        return self.advance_to(self.now + duration, most=most)

    def advance_to(self, instant: datetime, *, most: int = MOST_RUNS) -> list[Run]:
        """Do the same until an instant, which is aware."""
        check_type("instant", instant, datetime, "datetime(2038, 3, 27, tzinfo=UTC)")
        if instant.tzinfo is None:
            raise DulyTestError(f"{instant!r} has no time zone: write datetime(..., tzinfo=UTC)")
        if instant < self.now:
            raise DulyTestError(
                f"the clock stands at {self.now.isoformat()}, and does not go back to {instant.isoformat()}"
            )
        return self._stack.advance_to(instant, most)

    def run_until_idle(self, *, within: timedelta = timedelta(days=30), most: int = MOST_RUNS) -> list[Run]:
        """Step until no task waits for a time any more: all have ended, or wait for something else; return the runs.

        Ticks of time tables are written on the way, but are not waited for.

        Raises:
            DulyTestError: there are still tasks that wait after `within`, or after `most` runs.
        """
        check_type("within", within, timedelta, "timedelta(days=7)")
        return self._stack.run_until_idle(within, most)
