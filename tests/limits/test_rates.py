"""The arithmetic of rates: the store's functions and Python's have the same cases."""

import psycopg
import pytest

from duly_core.limits.rates import rate_ahead, rate_wait

WAITS = [
    # ahead, pace, burst, weight, how long
    (0.0, 1.0, 1, 1, 0.0),
    (1.0, 1.0, 1, 1, 1.0),
    (0.25, 1.0, 1, 1, 0.25),
    (0.0, 0.5, 10, 1, -4.5),
    (4.5, 0.5, 10, 1, 0.0),
    (5.0, 0.5, 10, 1, 0.5),
    (0.0, 0.5, 10, 4, -3.0),
    (3.0, 0.5, 10, 10, 3.0),
    (3.0, 0.5, 10, 1_000, 3.0),  # heavier than the burst: counts as the burst
    (-2.0, 0.5, 10, 10, -2.0),
]
AHEADS = [
    # ahead, start_in, pace, burst, weight, the new ahead
    (0.0, 0.0, 1.0, 1, 1, 1.0),
    (5.0, 0.0, 1.0, 10, 1, 6.0),
    (5.0, 7.0, 1.0, 10, 2, 9.0),
    (-3.0, -1.0, 0.5, 10, 4, 1.0),
    (0.0, 0.0, 0.5, 10, 1_000, 5.0),
]


@pytest.mark.parametrize(("ahead", "pace", "burst", "weight", "expected"), WAITS)
def test_units_wait_until_the_burst_has_room(dsn, ahead, pace, burst, weight, expected):
    with psycopg.connect(dsn) as connection:
        (stored,) = connection.execute(
            "select duly_rate_wait(%s, %s, %s, %s)", [ahead, pace, burst, weight]
        ).fetchone()

    assert stored == rate_wait(ahead, pace, burst, weight) == expected


@pytest.mark.parametrize(("ahead", "start_in", "pace", "burst", "weight", "expected"), AHEADS)
def test_a_start_counts_from_its_start_time_and_not_before_those_given(
    dsn, ahead, start_in, pace, burst, weight, expected
):
    with psycopg.connect(dsn) as connection:
        (stored,) = connection.execute(
            "select duly_rate_ahead(%s, %s, %s, %s, %s)", [ahead, start_in, pace, burst, weight]
        ).fetchone()

    assert stored == rate_ahead(ahead, start_in, pace, burst, weight) == expected


def test_a_resource_without_a_rate_has_no_wait_in_the_store(dsn):
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select duly_rate_wait(null, null, null, 1), duly_rate_ahead(null, 0, null, null, 1)"
        ).fetchone()

    assert row == (None, None)
