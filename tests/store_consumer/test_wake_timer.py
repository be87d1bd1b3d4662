"""When the next round of the Store Consumer begins, and whether it may find something due."""

import asyncio
from datetime import timedelta

import pytest

from duly_store_consumer.wake_timer import WakeTimer

NOW = timedelta()
SECOND = timedelta(seconds=1)
DEADLINE = 10


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def sleeping() -> WakeTimer:
    """One that made a round, and sleeps for a minute: nothing is due for an hour."""
    timer = WakeTimer()
    timer.begin_round(now())
    timer.pause_until(now() + 3600, 60 * SECOND)
    return timer


async def test_something_may_be_due_in_the_first_round() -> None:
    assert WakeTimer().begin_round(now())


async def test_nothing_is_due_before_the_instant_that_the_last_round_found(sleeping: WakeTimer) -> None:
    due_at = sleeping._due_at

    assert not sleeping.begin_round(due_at - 1)


async def test_something_may_be_due_from_that_instant_on(sleeping: WakeTimer) -> None:
    assert sleeping.begin_round(sleeping._due_at)


async def test_a_notification_of_something_due_begins_a_round_at_once(sleeping: WakeTimer) -> None:
    sleeping.note_due(NOW)

    assert sleeping.wake.is_set()
    assert sleeping.begin_round(now())


async def test_a_notification_of_something_ahead_begins_a_round_then(sleeping: WakeTimer) -> None:
    sleeping.note_due(timedelta(milliseconds=20))

    assert not sleeping.wake.is_set()
    await asyncio.wait_for(sleeping.wake.wait(), DEADLINE)
    assert sleeping.begin_round(now())


async def test_a_notification_of_something_after_the_pause_changes_nothing(sleeping: WakeTimer) -> None:
    wake_at = sleeping._wake_at

    sleeping.note_due(61 * SECOND)

    assert sleeping._wake_at == wake_at


async def test_a_notification_during_a_round_counts_for_the_next(sleeping: WakeTimer) -> None:
    sleeping.begin_round(now())
    sleeping.note_due(NOW)
    sleeping.pause_until(now() + 3600, 60 * SECOND)

    assert sleeping.wake.is_set()
    assert sleeping.begin_round(now())


async def test_after_a_failed_round_something_may_be_due(sleeping: WakeTimer) -> None:
    sleeping.begin_round(now())
    sleeping.fail_round()

    assert sleeping.begin_round(now())


async def test_the_pause_ends_when_something_is_due_in_whole_milliseconds() -> None:
    pause = WakeTimer().pause_until(now() + 5, 60 * SECOND)

    assert 4 * SECOND < pause <= 5 * SECOND
    assert pause.microseconds % 1_000 == 0


@pytest.mark.parametrize("due_in", [60.1, 3600, float("inf")])
async def test_the_pause_is_no_longer_than_allowed(due_in: float) -> None:
    assert WakeTimer().pause_until(now() + due_in, 60 * SECOND) == 60 * SECOND


async def test_there_is_no_pause_before_what_is_overdue() -> None:
    assert WakeTimer().pause_until(now() - 5, 60 * SECOND) == NOW
