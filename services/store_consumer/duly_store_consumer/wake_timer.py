"""Decides when the next round begins, and whether it may find something due."""

import asyncio
from datetime import timedelta
from math import ceil


class WakeTimer:
    """Sets `wake` when a notification asks for a round before the end of the pause. Times are the loop's."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._due_at = float("-inf")
        """When something is due, by the last round and the notifications since; -inf: it may be due now."""
        self._wake_at = float("inf")
        """When the next round begins; inf while one is under way."""

    def note_due(self, ahead: timedelta) -> None:
        """Note that something is due so far ahead; the next round begins then, if not before."""
        loop = asyncio.get_running_loop()
        due_at = loop.time() + ahead.total_seconds()
        if due_at >= self._wake_at:
            return
        if ahead > timedelta():
            self._wake_at = due_at
            loop.call_later(ahead.total_seconds(), self.wake_now)
        else:
            self.wake_now()

    def wake_now(self) -> None:
        """Begin the next round at once; something may be due."""
        self._due_at = float("-inf")
        self.wake.set()

    def begin_round(self, now: float) -> bool:
        """Return whether something may be due; notifications from here on count for the next round."""
        may_be_due = now >= self._due_at
        self._due_at = self._wake_at = float("inf")
        return may_be_due

    def fail_round(self) -> None:
        """Let the next round look for what is due: this one may have missed it."""
        self._due_at = float("-inf")

    def pause_until(self, due_at: float, longest: timedelta) -> timedelta:
        """Return the pause until the next round: until something is due, at most `longest`."""
        now = asyncio.get_running_loop().time()
        self._due_at = min(self._due_at, due_at)
        pause = longest
        if due_at - now < longest.total_seconds():
            # whole milliseconds, as the loop's timers round: a round that comes early finds nothing
            pause = min(longest, timedelta(milliseconds=max(0, ceil((due_at - now) * 1_000))))
        self._wake_at = now + pause.total_seconds()
        return pause
