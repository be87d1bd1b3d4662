"""Remembers of which lambdas something may be due: what needs no look costs no statement. No I/O."""

from collections.abc import Collection, Mapping
from datetime import timedelta

from duly_core.lambdas.names import QueueKey

_FORGET_AFTER = 120.0
"""Seconds without a look after which a lambda is forgotten: names come from callers."""


class DueTimes:
    """Times are those of the loop, in seconds. A lambda that is not known may have something due."""

    def __init__(self) -> None:
        self._due_at: dict[str, float] = {}
        self._looked_at: dict[str, float] = {}
        self._seen_until: dict[str, float] = {}
        """What is due later the last look or check did not see."""

    def note_due(self, lambdas: Collection[str], due_at: float) -> None:
        """Note that something of these lambdas is due then; of no lambda: nothing is noted."""
        for name in lambdas:
            known = self._due_at.get(name)
            if known is not None and due_at < known:
                self._due_at[name] = due_at

    def note_any_due(self, due_at: float) -> None:
        """Note that something is due then, and that nobody said of which lambda."""
        self.note_due(self._due_at, due_at)

    def polling(self, lambdas: Collection[str], now: float, within: float) -> None:
        """A look or check begins that sees whatever is due within so many seconds; notifications that come from here on count for the next."""
        for name in lambdas:
            self._due_at[name] = float("inf")
            self._looked_at[name] = now
            self._seen_until[name] = now + within

    def polled(self, ahead: Mapping[QueueKey, timedelta], now: float) -> None:
        """Note how long until each queue has something due, as the look or check found."""
        for queue, due_in in ahead.items():
            self.note_due((queue.lambda_name,), now + due_in.total_seconds())

    def unsure(self, lambdas: Collection[str], now: float) -> None:
        """Note that there may be more of these: the look took as much as it was to, or failed."""
        self.note_due(lambdas, now)

    def due_at(self, name: str, poll_interval: float, *, exact: bool) -> float:
        """When to look at this lambda next; no later than the poll interval after the last look."""
        looked_at = self._looked_at.get(name)
        if looked_at is None:
            return float("-inf")
        latest = min(looked_at + poll_interval, self._seen_until[name])
        return min(self._due_at[name], latest) if exact else latest

    def may_have_due(self, name: str, now: float) -> bool:
        """Tell whether a look or a notification said that something of this lambda is due by now."""
        return self._due_at.get(name, float("inf")) <= now

    def is_quiet(self, name: str, now: float) -> bool:
        """Tell whether nobody has said that something of this lambda is due by now since the last look or check began."""
        return self._due_at.get(name, float("-inf")) > now

    def looked_before(self, name: str, instant: float) -> bool:
        """Tell whether the last look or check of this lambda began before then."""
        return self._looked_at.get(name, float("-inf")) < instant

    def forget_unused(self, now: float) -> None:
        """Forget lambdas that nobody has asked for lately."""
        for name in [name for name, at in self._looked_at.items() if now - at > _FORGET_AFTER]:
            del self._looked_at[name], self._seen_until[name], self._due_at[name]
