"""Objectives of lambdas, and which of them holds for a lambda. Pure: no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.config.live_sections import LiveSloSettings
from duly_core.lambdas.names import NAMESPACE_MARK
from duly_core.lambdas.patterns import EVERYTHING, is_prefix

MOST_OBJECTIVES = 1_000
"""In a store."""


class Objective(NamedTuple):
    """What is promised of the starts of some lambdas."""

    pattern: str
    """A lambda, or a prefix that ends with `*`."""
    share: float
    """Such as 0.999."""
    start_within: timedelta
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Promised:
    """What holds for a lambda."""

    share: float
    start_within: timedelta
    pattern: str = ""
    """Of the objective that says so; empty: the settings do."""


class Objectives:
    """Those of a store, and the settings for all other lambdas."""

    def __init__(self, settings: LiveSloSettings, found: Iterable[Objective] = ()) -> None:
        """Make one."""
        self._of_others = Promised(settings.starts_objective / 100, settings.start_within)
        self._by_pattern = {
            each.pattern: Promised(each.share, each.start_within, each.pattern) for each in found
        }
        lengths = {len(pattern) - len(EVERYTHING) for pattern in self._by_pattern if is_prefix(pattern)}
        self._lengths = sorted(lengths, reverse=True)
        self._known: dict[str, Promised] = {}

    @property
    def of_others(self) -> Promised:
        """What holds for lambdas without an objective of their own."""
        return self._of_others

    def of(self, lambda_name: str) -> Promised:
        """Return what holds for a lambda: its own objective, else that of the longest prefix, else the settings."""
        found = self._known.get(lambda_name)
        if found is None:
            found = self._known[lambda_name] = self._look_up(lambda_name)
        return found

    def _look_up(self, name: str) -> Promised:
        """Look up each beginning of a name, not each prefix that there is: answers for 10,000 lambdas must not hold up the event loop."""
        own = self._by_pattern.get(name)
        if own is not None:
            return own
        within_namespace = range(name.rfind(NAMESPACE_MARK) + 1, len(name) + 1)
        for length in self._lengths:
            if length in within_namespace:
                found = self._by_pattern.get(name[:length] + EVERYTHING)
                if found is not None:
                    return found
        return self._of_others
