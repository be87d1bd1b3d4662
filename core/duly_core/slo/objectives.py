"""Objectives of lambdas, and which of them holds for a lambda. Pure: no I/O."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.config.live_sections import LiveSloSettings
from duly_core.lambdas.patterns import covers, is_prefix

MOST_OBJECTIVES = 1_000


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
        prefixes = [pattern for pattern in self._by_pattern if is_prefix(pattern)]
        self._prefixes = sorted(prefixes, key=len, reverse=True)

    @property
    def of_others(self) -> Promised:
        """What holds for lambdas without an objective of their own."""
        return self._of_others

    def of(self, lambda_name: str) -> Promised:
        """Return what holds for a lambda: its own objective, else that of the longest prefix, else the settings."""
        own = self._by_pattern.get(lambda_name)
        if own is not None:
            return own
        prefix = next((each for each in self._prefixes if covers(each, lambda_name)), None)
        return self._of_others if prefix is None else self._by_pattern[prefix]
