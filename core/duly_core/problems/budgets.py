"""Finds error budgets that are spent too fast: one problem for all late starts of a severity, and one for calls."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta

from duly_core.config.live_sections import LiveSloSettings
from duly_core.config.settings import format_duration
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import FoundProblem, found
from duly_core.slo.rules import Alert, Level
from duly_core.slo.store import read_levels
from duly_core.trends.rules import ALL, minute_of
from duly_wire.enums import ServiceLevelIndicator as Indicator

CALLS = "calls"
"""The key of the problem about calls. That of starts is the severity: lambdas come and go while it lasts."""


class Budgets:
    """Looks once a minute: there are no newer counts."""

    def __init__(self, settings: Callable[[], LiveSloSettings]) -> None:
        """Make one; `settings` tells what is promised now."""
        self._settings = settings
        self._looked_at: datetime | None = None
        self._judged_by: LiveSloSettings | None = None
        self._found: Sequence[FoundProblem] = ()

    async def find(self, store: Store, now: datetime) -> Sequence[FoundProblem]:
        """Return what burns.

        Raises:
            StoreUnavailableError: ask again.
        """
        settings, minute = self._settings(), minute_of(now)
        if (minute, settings) != (self._looked_at, self._judged_by):
            levels = await read_levels(store, settings, now)
            self._found = burning(levels, settings, now)
            self._looked_at, self._judged_by = minute, settings
        return self._found


def burning(levels: Iterable[Level], settings: LiveSloSettings, now: datetime) -> list[FoundProblem]:
    """Return a problem for each severity with which starts alert, and one for calls that do."""
    problems = []
    starts: dict[Severity, list[tuple[Level, Alert]]] = {}
    for level in levels:
        alert = level.alert()
        if alert is None:
            continue
        if level.indicator is Indicator.CALLS:
            problems.append(_found(alert, [(level, alert)], CALLS, settings, now))
        else:
            starts.setdefault(alert.severity, []).append((level, alert))
    for severity, of_severity in starts.items():
        named = [each for each in of_severity if each[0].lambda_name != ALL]
        if named or not any(other > severity for other in starts):
            # all together say nothing that their lambdas do not
            problems.append(
                _found(of_severity[0][1], named or of_severity, severity.name.lower(), settings, now)
            )
    return problems


def _found(
    first: Alert,
    alerting: Sequence[tuple[Level, Alert]],
    key: str,
    settings: LiveSloSettings,
    now: datetime,
) -> FoundProblem:
    long = max(alert.long for _, alert in alerting)
    bad = {level.lambda_name: _bad(level, long) for level, _ in alerting}
    # the least of what holds for all: what is shown of one must hold for it
    alert = min((alert for _, alert in alerting), key=lambda each: each.burn_rate)
    within = {level.start_within for level, _ in alerting}
    return found(
        Kind.BUDGET_BURNS,
        first.severity,
        now,
        key=key,
        lambdas={name: number for name, number in bad.items() if name != ALL},
        tasks=0 if key == CALLS else sum(bad.values()),
        calls=sum(bad.values()) if key == CALLS else 0,
        burn_rate=f"{alert.burn_rate:g}",
        # empty: their objectives differ
        within=format_duration(within.pop() or settings.start_within) if len(within) == 1 else "",
        long=format_duration(long),
        window=format_duration(settings.window),
    )


def _bad(level: Level, length: timedelta) -> int:
    span = next(each for each in level.spans if each.length == length)
    return span.total - span.good
