"""How far apart polls are: by the batching gap, and by more while tasks come as a stream."""

from datetime import timedelta

import pytest

from duly_core.postgres.rate_detector import STREAM, STREAM_GAP
from duly_store_consumer.poll_gap import PollGap

GAP = timedelta(milliseconds=2)
EVERY = 0.1
"""Seconds between the polls of these tests."""


def after_sending(references: int) -> PollGap:
    """Return a gap after three polls, the last of them at 2 * EVERY; the first two sent so many."""
    gap = PollGap()
    for number in range(2):
        gap.begin(number * EVERY)
        gap.sent(references)
    gap.begin(2 * EVERY)
    return gap


def test_the_first_poll_need_not_wait() -> None:
    assert PollGap().left(0, GAP) <= 0


def test_a_poll_waits_for_the_rest_of_the_batching_gap() -> None:
    gap = after_sending(0)

    assert gap.left(2 * EVERY + 0.0005, GAP) == pytest.approx(0.0015)
    assert gap.left(2 * EVERY + 0.003, GAP) <= 0


def test_polls_of_a_stream_are_further_apart() -> None:
    gap = after_sending(int(STREAM * EVERY) + 1)

    assert gap.left(2 * EVERY, GAP) == pytest.approx(STREAM_GAP.total_seconds())


def test_fewer_tasks_are_no_stream() -> None:
    gap = after_sending(int(STREAM * EVERY) - 1)

    assert gap.left(2 * EVERY, GAP) == pytest.approx(GAP.total_seconds())


def test_a_longer_batching_gap_holds_for_a_stream_too() -> None:
    gap = after_sending(int(STREAM * EVERY) + 1)

    assert gap.left(2 * EVERY, timedelta(seconds=1)) == pytest.approx(1)


def test_a_poll_that_sent_nothing_ends_the_stream() -> None:
    gap = after_sending(int(STREAM * EVERY) + 1)

    gap.begin(3 * EVERY)

    assert gap.left(3 * EVERY, GAP) == pytest.approx(GAP.total_seconds())
