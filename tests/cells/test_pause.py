"""When a cell that failed is asked for claims again."""

import pytest

from duly_hsc.cells.pause import Pause


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def pause(clock):
    return Pause(clock)


def test_a_cell_that_never_failed_may_be_asked_by_all(pause):
    assert pause.may_try()
    assert pause.may_try()
    assert pause.left() == 0


def test_a_cell_that_failed_is_passed_over_for_a_while_and_then_one_caller_finds_out_for_all(pause, clock):
    pause.failed()
    assert not pause.may_try()

    clock.now += pause.left()

    assert pause.may_try()
    assert not pause.may_try()


def test_a_cell_that_answered_may_be_asked_by_all_again(pause, clock):
    pause.failed()
    clock.now += pause.left()
    assert pause.may_try()

    pause.answered()

    assert pause.may_try()
    assert pause.may_try()


def test_pauses_grow_with_each_try_that_failed_up_to_a_bound(pause, clock):
    lengths = []
    for _ in range(12):
        pause.failed()
        lengths.append(pause.left())
        clock.now += pause.left()
        assert pause.may_try()

    assert lengths[:4] == [0.25, 0.5, 1.0, 2.0]
    assert max(lengths) == lengths[-1] == 4.0


def test_of_calls_that_fail_together_one_counts(pause):
    for _ in range(50):
        pause.failed()

    assert pause.left() == 0.25


def test_a_cell_that_let_somebody_wait_has_no_head_start_for_a_second(pause, clock):
    pause.was_slow()
    assert pause.is_slow()

    clock.now += 1.0

    assert not pause.is_slow()


def _seconds_slow(pause, clock):
    began = clock.now
    pause.was_slow()
    while pause.is_slow():
        clock.now += 0.25
    return clock.now - began


def test_callers_wait_ever_more_seldom_for_a_cell_that_hangs_up_to_a_bound(pause, clock):
    assert [_seconds_slow(pause, clock) for _ in range(4)] == [1, 2, 4, 4]

    pause.answered()

    assert _seconds_slow(pause, clock) == 1


@pytest.mark.parametrize("what", ["failed", "hung"])
def test_a_cell_is_in_doubt_from_when_it_did_not_answer_until_it_does(pause, clock, what):
    assert not pause.is_in_doubt

    getattr(pause, what)()
    clock.now += 1_000

    assert pause.is_in_doubt
    pause.answered()
    assert not pause.is_in_doubt


def test_a_cell_that_is_only_slow_is_not_in_doubt(pause):
    pause.was_slow()

    assert not pause.is_in_doubt
