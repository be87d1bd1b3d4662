"""Shares, error budgets and burn rates of what is promised, and which of them alert. Pure: no I/O."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from duly_core.config.live_sections import LiveSloSettings
from duly_core.slo.objectives import Objectives
from duly_core.trends.rules import (
    ALL,
    KEPT,
    Sum,
    Time,
    day_of,
    hour_of,
    minute_of,
    on_time,
)
from duly_wire.enums import ProblemSeverity as Severity
from duly_wire.enums import ServiceLevelIndicator as Indicator

_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_DAY = timedelta(days=1)
SHORT_SPANS = (5 * _MINUTE, 30 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 3 * _DAY)
"""The times that are looked at beside the window."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A budget burns too fast if it does so in a long and in a short time: the short one ends the alert soon after its cause."""

    burn_rate: float
    """1: at this rate the budget is spent when the window is over."""
    long: timedelta
    short: timedelta
    severity: Severity


ALERTS = (
    Alert(14.4, _HOUR, 5 * _MINUTE, Severity.CRITICAL),
    Alert(6, 6 * _HOUR, 30 * _MINUTE, Severity.CRITICAL),
    Alert(1, 3 * _DAY, 6 * _HOUR, Severity.WARNING),
)
"""As the SRE workbook has them: 2 % of the budget of 30 days in an hour, 5 % in six hours, 10 % in three days."""
LEAST_BAD = 10
"""Fewer late runs, or refused calls, in the long time alert nobody."""


@dataclass(frozen=True, slots=True)
class Span:
    """What a time had."""

    length: timedelta
    good: int
    total: int

    @property
    def share(self) -> float | None:
        """The share that was good; None: there was nothing."""
        return self.good / self.total if self.total else None

    def burn_rate(self, objective: float) -> float | None:
        """Return how many times as fast as allowed the budget was spent; None: there was nothing."""
        return None if self.share is None else (1 - self.share) / (1 - objective)


@dataclass(frozen=True, slots=True)
class Level:
    """How one promise is kept, for one lambda or for all together."""

    indicator: Indicator
    lambda_name: str
    """Empty: all together."""
    objective: float
    """A share, such as 0.95."""
    spans: Sequence[Span]
    """As `spans_of`: SHORT_SPANS, then the window."""
    first_at: datetime | None
    """Since when something was counted; None: nothing was."""
    start_within: timedelta | None = None
    """Of starts."""
    pattern: str = ""
    """Of the objective of lambdas that holds; empty: the settings say what is promised."""

    @property
    def window(self) -> Span:
        """The time for which the objective holds."""
        return self.spans[-1]

    @property
    def budget_left(self) -> float | None:
        """The share of the error budget that is left: 1 is all of it, negative is more than spent. None: nothing was counted."""
        burn = self.window.burn_rate(self.objective)
        return None if burn is None else 1 - burn

    def alert(self) -> Alert | None:
        """Return the first alert that fires; None: none does."""
        spans = {span.length: span for span in self.spans}
        return next(
            (alert for alert in ALERTS if self._fires(alert, spans.get(alert.long), spans.get(alert.short))),
            None,
        )

    def _fires(self, alert: Alert, long: Span | None, short: Span | None) -> bool:
        if long is None or short is None or long.total - long.good < LEAST_BAD:
            return False
        # an objective may be so low that no share is so bad
        least = min(alert.burn_rate * (1 - self.objective), 1.0)
        return all(span.share is not None and 1 - span.share >= least for span in (long, short))


def spans_of(window: timedelta) -> list[timedelta]:
    """Return the times that are looked at, each once, the window last. Alerts need those that are longer than a short window, too."""
    return [*(span for span in SHORT_SPANS if span != window), window]


@dataclass(frozen=True, slots=True)
class Summed:
    """Up to when hours and days are summed: what is newer is in shorter points."""

    hours_until: datetime
    days_until: datetime


def times_of(spans: Iterable[timedelta], now: datetime, summed: Summed) -> dict[Time, set[timedelta]]:
    """Return which points have what the spans had, each with the spans that it belongs to. No point is in two of them.

    A span up to a day begins at a minute, up to 8 days at an hour, else at a day (UTC).
    """
    end = minute_of(now) + _MINUTE
    hours_until = min(summed.hours_until, hour_of(now))
    days_until = min(summed.days_until, day_of(hours_until))
    parts: dict[int, list[tuple[datetime, datetime, timedelta]]] = {1: [], 60: [], 1_440: []}
    for span in spans:
        since = minute_of(now) - span
        if span <= KEPT[1] - _HOUR:
            hours_since = since if since == hour_of(since) else hour_of(since) + _HOUR
            middle = min(hours_since, hours_until)
            parts[1].append((since, middle, span))
            parts[60].append((middle, hours_until, span))
        elif span < KEPT[60]:
            since = hour_of(since)
            parts[60].append((since, hours_until, span))
        else:
            since = day_of(since)
            parts[1_440].append((since, days_until, span))
            parts[60].append((max(since, days_until), hours_until, span))
        parts[1].append((max(hours_until, since), end, span))
    found: dict[Time, set[timedelta]] = {}
    for minutes, ranges in parts.items():
        found |= _apart(minutes, [each for each in ranges if each[0] < each[1]])
    return found


def _apart(
    minutes: int, ranges: Sequence[tuple[datetime, datetime, timedelta]]
) -> dict[Time, set[timedelta]]:
    """Return the parts of ranges that may overlap, each once."""
    bounds = sorted({bound for since, until, _ in ranges for bound in (since, until)})
    found = {}
    for since, until in itertools.pairwise(bounds):
        members = {span for begins, ends, span in ranges if begins <= since and until <= ends}
        if members:
            found[Time(minutes, since, until)] = members
    return found


@dataclass(slots=True)
class _Counts:
    first_at: datetime | None = None
    of_spans: dict[timedelta, list[int]] = field(default_factory=dict)

    def add(self, first_at: datetime | None, spans: Iterable[timedelta], good: int, total: int) -> None:
        if first_at is not None:
            self.first_at = first_at if self.first_at is None else min(self.first_at, first_at)
        for span in spans:
            of_span = self.of_spans.setdefault(span, [0, 0])
            of_span[0] += good
            of_span[1] += total

    @property
    def has_any(self) -> bool:
        return any(total for _, total in self.of_spans.values())


def levels_of(
    sums: Iterable[Sum],
    times: Mapping[Time, set[timedelta]],
    settings: LiveSloSettings,
    names: Iterable[str],
    objectives: Objectives | None = None,
) -> list[Level]:
    """Return the levels of calls, of all lambdas together, then of each lambda that has runs or is named, by name.

    Runs of lambdas with an objective of their own are judged by it, and by nothing else: all together have the others.

    Args:
        sums: what the times had, of all lambdas together among them.
        times: the spans that each time belongs to.
        settings: what is promised of calls, and of lambdas without an objective of their own.
        names: lambdas that may have no runs; those with objectives of their own need not be named.
        objectives: of lambdas; None: there are none.
    """
    promised = objectives or Objectives(settings)
    of_others = promised.of_others
    runs: dict[str, _Counts] = {ALL: _Counts()}
    calls = _Counts()
    for each in sums:
        members = times[each.time]
        in_window = settings.window in members
        of_lambda = promised.of(each.lambda_name) if each.lambda_name else of_others
        total = sum(each.lateness)
        first_run_at = each.first_run_at if in_window else None
        counts = runs.setdefault(each.lambda_name, _Counts())
        counts.add(first_run_at, members, on_time(each.lateness, of_lambda.start_within), total)
        if of_lambda.pattern:
            runs[ALL].add(None, members, -on_time(each.lateness, of_others.start_within), -total)
        if not each.lambda_name:
            first_at = each.first_call_at if in_window else None
            calls.add(first_at, members, each.calls - each.failed_calls, each.calls)
    spans = spans_of(settings.window)

    def spans_with(counts: _Counts) -> list[Span]:
        return [Span(span, *counts.of_spans.get(span, (0, 0))) for span in spans]

    def starts(name: str) -> Level:
        own = promised.of(name) if name else of_others
        counts = runs.get(name, _Counts())
        return Level(
            Indicator.STARTS,
            name,
            own.share,
            spans_with(counts),
            counts.first_at if counts.has_any else None,
            own.start_within,
            own.pattern,
        )

    wanted = {*names, *(name for name, counts in runs.items() if counts.has_any)}
    return [
        Level(Indicator.CALLS, ALL, settings.calls_objective / 100, spans_with(calls), calls.first_at),
        *map(starts, sorted({*wanted, ALL})),
    ]
