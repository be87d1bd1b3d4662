"""Shares, error budgets and burn rates follow from counts, each point is read once, and alerts need a long and a short time."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_core.config.live_sections import LiveSloSettings
from duly_core.errors import SettingsError
from duly_core.live_settings import definitions
from duly_core.slo.rules import ALERTS, LEAST_BAD, Level, Span, Summed, levels_of, spans_of, times_of
from duly_core.trends.rules import Sum, Time, day_of, hour_of, minute_of
from duly_frontend.slo.verdicts import Verdict, verdict_of
from duly_wire.enums import ProblemSeverity, ServiceLevelIndicator

NOW = datetime(2026, 11, 27, 15, 25, 40, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
UP_TO_DATE = Summed(hour_of(NOW), day_of(NOW))
WINDOW = 28 * DAY
MOMENTS = st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 (hypothesis wants it so)


def level(bad_shares, objective=0.95, total=1_000):
    """A level in which each span has such a share of bad runs, the window the last one."""
    spans = [
        Span(length, total - round(bad * total), total)
        for length, bad in zip(spans_of(WINDOW), bad_shares, strict=True)
    ]
    return Level(ServiceLevelIndicator.STARTS, "mail", objective, spans, NOW)


def test_without_counts_there_is_no_share_no_burn_rate_and_no_budget():
    found = level([0] * 7, total=0)

    assert (found.window.share, found.window.burn_rate(0.95), found.budget_left, found.alert()) == (None,) * 4


def test_a_budget_is_spent_by_what_is_bad():
    assert level([0] * 7).budget_left == 1
    assert level([0] * 6 + [0.025]).budget_left == pytest.approx(0.5)
    assert level([0] * 6 + [0.1]).budget_left == pytest.approx(-1)


@pytest.mark.parametrize(
    ("bad_shares", "severity"),
    [
        ([0.8, 0, 0.8, 0, 0, 0, 0], ProblemSeverity.CRITICAL),  # 5 min and 1 h
        ([0.8, 0, 0.5, 0, 0, 0, 0], None),  # the long one is not yet
        ([0, 0, 0.8, 0, 0, 0, 0], None),  # it has ended
        ([0, 0.31, 0, 0.31, 0, 0, 0], ProblemSeverity.CRITICAL),  # 30 min and 6 h
        ([0, 0, 0, 0.06, 0, 0.06, 0], ProblemSeverity.WARNING),  # 6 h and 3 d
        ([0.04] * 7, None),
    ],
)
def test_an_alert_needs_its_long_and_its_short_time(bad_shares, severity):
    alert = level(bad_shares).alert()

    assert (alert and alert.severity) == severity


def test_few_bad_runs_alert_nobody():
    all_bad = [1.0] * 7

    assert level(all_bad, total=LEAST_BAD - 1).alert() is None
    assert level(all_bad, total=LEAST_BAD).alert() is ALERTS[0]


def test_a_low_objective_can_alert():
    assert level([1.0] * 7, objective=0.5).alert() is ALERTS[0]


@pytest.mark.parametrize("days", [1, 2, 3, 28])
def test_each_alert_has_its_times_whatever_the_window_is(days):
    spans = spans_of(days * DAY)

    assert {span for alert in ALERTS for span in (alert.long, alert.short)} <= {*spans}
    assert spans[-1] == days * DAY
    assert len(spans) == len({*spans})


def test_a_short_window_counts_since_its_own_begin_and_warns_by_three_days():
    settings = LiveSloSettings(window=DAY)
    times = {
        Time(60, NOW - 3 * DAY, NOW - DAY): {3 * DAY},
        Time(60, NOW - DAY, NOW): {6 * HOUR, DAY, 3 * DAY},
    }
    sums = [Sum("", time, time.since, None, [900, *[0] * 15, 100], 0, 0) for time in times]

    _, starts = levels_of(sums, times, settings, ())

    assert (starts.first_at, starts.window.total) == (NOW - DAY, 1_000)
    assert starts.alert() is ALERTS[2]


@given(MOMENTS, st.sampled_from([1, 2, 3, 7, 8, 28, 90]), st.integers(0, 30), st.integers(0, 5))
def test_no_point_is_counted_twice_and_each_span_is_covered_to_its_begin(
    now, window, hours_behind, days_behind
):
    """Minutes are in hours, and hours in days: a span that read a minute twice would count its runs twice."""
    spans = spans_of(window * DAY)
    summed = Summed(hour_of(now) - hours_behind * HOUR, day_of(now) - days_behind * DAY)

    times = times_of(spans, now, summed)

    for span in spans:
        own = sorted((time.since, time.until) for time, members in times.items() if span in members)
        begin = minute_of(now) - span
        assert all(before[1] == after[0] for before, after in itertools.pairwise(own))
        assert own[-1][1] == minute_of(now) + MINUTE
        assert begin - DAY < own[0][0] <= begin
        if span <= DAY:
            assert own[0][0] == begin


def test_a_window_of_weeks_is_read_from_days():
    times = times_of([WINDOW], NOW, UP_TO_DATE)

    assert [(time.minutes, time.until - time.since) for time in times] == [
        (1, 26 * MINUTE),
        (60, 15 * HOUR),
        (1_440, WINDOW),
    ]


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("slo.starts_objective", "100", "less than 100"),
        ("slo.starts_objective", "0", "more than 0"),
        ("slo.calls_objective", "-1", "more than 0"),
        ("slo.calls_objective", "nan", "less than 100"),
        ("slo.start_within", "3s", "one of 100ms"),
        ("slo.window", "91d", "1d to 90d"),
        ("slo.window", "36h", "whole days"),
        ("slo.window", "0s", "1d to 90d"),
    ],
)
def test_an_objective_that_cannot_be_kept_or_counted_is_refused(name, text, why):
    with pytest.raises(SettingsError, match=why):
        definitions.read(name, text)


def test_defaults_are_what_atf_promises():
    assert LiveSloSettings() == LiveSloSettings(
        starts_objective=95, start_within=timedelta(seconds=5), calls_objective=99.9, window=WINDOW
    )


@pytest.mark.parametrize(
    ("method", "code", "seconds", "was_limited", "verdict"),
    [
        ("Schedule", "OK", 0.01, False, Verdict.ACCEPTED),
        ("ScheduleGraph", "OK", 0.01, False, Verdict.ACCEPTED),
        ("GetTask", "UNAVAILABLE", 0.01, False, None),
        ("Schedule", "INVALID_ARGUMENT", 0.01, False, Verdict.REFUSED),
        ("Schedule", "PERMISSION_DENIED", 0.01, False, Verdict.REFUSED),
        ("Schedule", "UNAUTHENTICATED", 0.01, False, Verdict.REFUSED),
        ("Schedule", "RESOURCE_EXHAUSTED", 0.01, True, Verdict.REFUSED),
        ("Schedule", "RESOURCE_EXHAUSTED", 0.01, False, Verdict.FAILED),
        ("Schedule", "UNAVAILABLE", 0.01, False, Verdict.FAILED),
        ("Schedule", "INTERNAL", 0.01, False, Verdict.FAILED),
        ("Schedule", "CANCELLED", 0.2, False, Verdict.REFUSED),
        ("Schedule", "CANCELLED", 20, False, Verdict.FAILED),
    ],
)
def test_a_call_counts_against_the_promise_only_if_it_had_to_be_accepted(
    method, code, seconds, was_limited, verdict
):
    assert verdict_of(method, code, seconds, was_limited=was_limited) is verdict


def test_a_call_with_tasks_of_a_cell_that_is_away_has_failed():
    assert verdict_of("Schedule", "OK", 0.01, was_limited=False, had_items_away=True) is Verdict.FAILED
