"""How many tasks are held ahead: as many as end soon."""

from datetime import timedelta

import pytest

from duly_executor.work.prefetch import Prefetch

AHEAD = timedelta(milliseconds=100)
SLOTS = 8


def after_ending(rate: int, seconds: float, most: int = 1_000) -> Prefetch:
    """A pace that saw `rate` tasks a second end, evenly, from 0 on."""
    pace = Prefetch(AHEAD, most, SLOTS)
    pace.ended(0, 0.0)
    steps = int(seconds * 100)
    for step in range(1, steps + 1):
        pace.ended(rate // 100, step / 100)
    return pace


def test_nothing_is_held_ahead_before_anything_has_ended() -> None:
    assert Prefetch(AHEAD, 1_000, SLOTS).ahead(0.0) == 0


@pytest.mark.parametrize("rate", [100, 1_000, 5_000])
def test_what_ends_within_the_time_ahead_is_held_ahead(rate: int) -> None:
    pace = after_ending(rate, seconds=2)

    assert pace.ahead(2.0) == pytest.approx(rate / 10, rel=0.05, abs=1)


def test_slow_callbacks_hold_nothing_ahead() -> None:
    pace = Prefetch(AHEAD, 1_000, SLOTS)
    for second in range(10):
        pace.ended(1, float(second))

    assert pace.ahead(10.0) == 0


def test_no_more_is_held_ahead_than_is_allowed() -> None:
    pace = after_ending(5_000, seconds=2, most=30)

    assert pace.ahead(2.0) == 30


def test_it_follows_a_change_of_rate_within_a_second() -> None:
    pace = after_ending(5_000, seconds=2)
    for step in range(1, 101):
        pace.ended(5, 2 + step / 100)

    assert pace.ahead(3.0) == pytest.approx(50, rel=0.05, abs=1)


def test_it_fades_while_nothing_ends() -> None:
    pace = after_ending(1_000, seconds=2)

    assert pace.ahead(2.1) < 100
    assert pace.ahead(3.0) == 0


def test_as_many_as_run_at_a_time_say_nothing_of_how_long_they_took() -> None:
    pace = Prefetch(AHEAD, 1_000, SLOTS)
    pace.ended(0, 0.0)

    pace.ended(SLOTS, 0.001)

    assert pace.ahead(0.002) == 0


def test_a_burst_doubles_before_its_rate_is_known() -> None:
    pace = Prefetch(AHEAD, 1_000, SLOTS)
    pace.ended(0, 0.0)

    pace.ended(2 * SLOTS, 0.010)
    first = pace.ahead(0.011)
    pace.ended(first, 0.020)

    assert (first, pace.ahead(0.021)) == (4 * SLOTS, 12 * SLOTS)


def test_where_nothing_may_be_held_ahead_a_burst_changes_nothing() -> None:
    pace = Prefetch(timedelta(), 1_000, SLOTS)
    pace.ended(0, 0.0)

    pace.ended(100, 0.001)

    assert pace.ahead(0.002) == 0


def test_a_rate_that_rises_is_believed_at_once() -> None:
    pace = after_ending(100, seconds=2)

    pace.ended(0, 2.001)
    pace.ended(500, 2.051)
    pace.ended(0, 2.102)

    assert pace.ahead(2.103) > 400
