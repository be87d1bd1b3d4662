"""Counts how runs begin and end, in memory: what one process adds to the trends once a minute."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from duly_core.trends.rules import ALL, PLACES, base_name

MOST_LAMBDAS = 200
"""Lambdas with points of their own in a minute: those with the most runs. The others count for all lambdas only."""


@dataclass(slots=True)
class Runs:
    """How runs of a lambda began and ended in a minute."""

    lateness: list[int] = field(default_factory=lambda: [0] * PLACES)
    """By `place_of`."""
    ended: int = 0
    failed: int = 0

    def add(self, other: "Runs") -> None:
        """Add another lambda's, or another minute's."""
        for place, number in enumerate(other.lateness):
            self.lateness[place] += number
        self.ended += other.ended
        self.failed += other.failed

    @property
    def size(self) -> int:
        """How much there was of it."""
        return sum(self.lateness) + self.ended + self.failed


class RunCounts:
    """The counts of the minutes that were not taken yet."""

    def __init__(self) -> None:
        self._minutes: dict[datetime, dict[str, Runs]] = {}
        self._minute: dict[str, Runs] = {}
        self._at: datetime | None = None

    def begin(self, minute: datetime) -> None:
        """Count for this minute from now on."""
        if minute != self._at:
            self._at = minute
            self._minute = self._minutes.setdefault(minute, {})

    def runs(self, lambda_name: str) -> Runs:
        """Return the counts of a lambda in this minute, to add to them."""
        found = self._minute.get(lambda_name)
        if found is None:
            found = self._minute[lambda_name] = Runs()
        return found

    def started(self, starts: Iterable[tuple[str, int]]) -> None:
        """Count runs that began, by lambda and by `place_of` their lateness."""
        for name, place in starts:
            self.runs(name).lateness[place] += 1

    def did_not_start(self, lambda_name: str, place: int) -> None:
        """Take back a run that did not begin: one of this lambda and place of this minute. If there is none, it was counted before, and stays."""
        lateness = self.runs(lambda_name).lateness
        lateness[place] = max(0, lateness[place] - 1)

    def take(self) -> list[dict[str, Any]]:
        """Return what was counted, as rows of the statement `add_runs`, and forget it."""
        minutes, self._minutes = self._minutes, {}
        self._minute, at, self._at = {}, self._at, None
        if at is not None:
            self.begin(at)
        return [row for minute, counted in minutes.items() for row in _rows(minute, counted)]


def _rows(minute: datetime, counted: dict[str, Runs]) -> Iterable[dict[str, Any]]:
    by_lambda: dict[str, Runs] = {}
    together = Runs()
    for name, runs in counted.items():
        together.add(runs)
        by_lambda.setdefault(base_name(name), Runs()).add(runs)
    by_lambda.pop(ALL, None)
    largest = sorted(by_lambda, key=lambda name: (-by_lambda[name].size, name))[:MOST_LAMBDAS]
    for name, runs in [(ALL, together), *((name, by_lambda[name]) for name in largest)]:
        if runs.size:
            yield {
                "lambda": name,
                "at": minute.isoformat(),
                "lateness": runs.lateness,
                "ended": runs.ended,
                "failed_runs": runs.failed,
            }
