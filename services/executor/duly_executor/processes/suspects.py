"""Which lambdas crashed a process or overran lately: their tasks are not put beside those of other lambdas."""

from dataclasses import dataclass
from datetime import timedelta

_MOST_TIMES = 16
"""A lambda that misbehaves again and again is kept apart for so many times as long, at most."""


@dataclass(slots=True)
class _Record:
    period: float
    """In seconds: how long it is kept apart after its last misbehaviour."""
    until: float


class IsolatedLambdas:
    """Decisions only: the caller says what time it is (the loop's time, in seconds)."""

    def __init__(self, isolate_for: timedelta) -> None:
        """Args: `isolate_for` is how long a lambda is kept apart after it has misbehaved for the first time."""
        self._first = isolate_for.total_seconds()
        self._records: dict[str, _Record] = {}
        self.separate: set[str] = set()
        """The lambdas that are kept apart now, as of the last call."""

    def misbehaved(self, name: str, now: float) -> bool:
        """Keep this lambda apart; whether it was not already."""
        if not self._first:
            return False
        record = self._records.get(name)
        if record is None:
            record = self._records[name] = _Record(self._first, now)
        elif now >= record.until:  # it was given another chance
            record.period = min(2 * record.period, _MOST_TIMES * self._first)
        record.until = now + record.period
        is_new = name not in self.separate
        self.separate.add(name)
        return is_new

    def look(self, now: float) -> list[str]:
        """Forgive those whose time is over, and answer them; forget those that behaved well for as long again."""
        isolation_ended = [name for name in self.separate if now >= self._records[name].until]
        self.separate.difference_update(isolation_ended)
        for name in [name for name, each in self._records.items() if now >= each.until + each.period]:
            del self._records[name]
        return isolation_ended
