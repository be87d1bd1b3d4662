"""How late runs began, kept as numbers for bounds: percentiles lie beside the true ones, and the share on time is exact."""

from bisect import bisect_left
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly_core.config.live_sections import START_WITHIN
from duly_core.trends.rules import (
    LATENESS_BOUNDS,
    PLACES,
    base_name,
    hour_of,
    minute_of,
    on_time,
    percentile,
    place_of,
    step_of,
)
from duly_core.trends.run_counts import MOST_LAMBDAS, RunCounts

LATENESS = st.lists(st.floats(min_value=-10, max_value=100_000), min_size=1, max_size=200)
MINUTE = datetime(2026, 11, 27, 1, 5, tzinfo=UTC)


def numbers_of(lateness):
    numbers = [0] * PLACES
    for late in lateness:
        numbers[place_of(late)] += 1
    return numbers


@given(LATENESS, st.sampled_from(START_WITHIN))
def test_the_share_that_began_on_time_is_exact(lateness, within):
    assert on_time(numbers_of(lateness), within) == sum(late <= within.total_seconds() for late in lateness)


@given(LATENESS, st.floats(min_value=0.01, max_value=1))
def test_a_percentile_lies_within_the_bounds_of_the_true_one(lateness, share):
    ranked = sorted(lateness)
    true = ranked[max(0, -(-share * len(ranked) // 1).__int__() - 1)]
    place = bisect_left(LATENESS_BOUNDS, true)
    low = LATENESS_BOUNDS[place - 1] if place else 0.0
    high = LATENESS_BOUNDS[min(place, len(LATENESS_BOUNDS) - 1)]

    found = percentile(numbers_of(lateness), share).total_seconds()

    assert min(low, LATENESS_BOUNDS[-1]) - 1e-6 <= found <= high + 1e-6


def test_without_runs_there_is_no_percentile():
    assert percentile([], 0.5) is None
    assert percentile([0] * PLACES, 0.5) is None


def test_instants_have_a_minute_an_hour_and_charts_a_step():
    assert minute_of(MINUTE + timedelta(seconds=59.9)) == MINUTE
    assert hour_of(MINUTE) == MINUTE.replace(minute=0)
    assert step_of(timedelta(hours=24)) == timedelta(minutes=1)
    assert step_of(timedelta(days=7)) == timedelta(hours=1)


@pytest.mark.parametrize("queue", ["a", "a@2.0", "a@~east", "a@:gpu=1"])
def test_queues_of_versions_domains_and_labels_count_for_their_lambda(queue):
    assert base_name(queue) == "a"


def test_runs_are_taken_once_with_a_row_for_all_lambdas_and_rows_for_the_largest():
    counts = RunCounts()
    counts.begin(MINUTE)
    counts.started(
        [("a", 0), ("a@2.0", place_of(7.0)), *((f"l{number}", 0) for number in range(MOST_LAMBDAS))]
    )
    counts.runs("a").failed += 1

    rows = {row["lambda"]: row for row in counts.take()}

    assert len(rows) == MOST_LAMBDAS + 1
    assert sum(rows[""]["lateness"]) == MOST_LAMBDAS + 2
    assert rows["a"]["lateness"][place_of(7.0)] == 1
    assert (rows["a"]["failed_runs"], rows[""]["failed_runs"]) == (1, 1)
    assert counts.take() == []


def test_counts_go_to_the_minute_in_which_they_came_even_after_a_take():
    counts = RunCounts()
    counts.begin(MINUTE)
    counts.take()
    counts.started([("a", 0)])
    counts.begin(MINUTE + timedelta(minutes=1))
    counts.started([("a", 0)])

    assert [row["at"] for row in counts.take() if row["lambda"] == "a"] == [
        MINUTE.isoformat(),
        (MINUTE + timedelta(minutes=1)).isoformat(),
    ]
