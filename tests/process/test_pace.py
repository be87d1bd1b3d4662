"""Loops of a quiet cell rest for long while somebody listens, and go on when something becomes due; a sole store's never rest longer."""

import asyncio
from datetime import timedelta

from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.process import pace as paces
from duly_core.process.pace import USUAL, Pace

SECOND = timedelta(seconds=1)
LONG = timedelta(seconds=10)


async def test_a_sole_store_is_looked_at_as_usual():
    with USUAL.listening():
        assert USUAL.rest(SECOND) == SECOND
    assert LocalNotifications().pace is USUAL


async def test_a_quiet_cell_is_looked_at_seldom_as_long_as_somebody_listens():
    pace = Pace(LONG)
    assert pace.rest(SECOND) == SECOND, "nobody would tell of a change"

    with pace.listening(), pace.listening():
        assert pace.rest(SECOND) == LONG
        assert pace.rest(SECOND, times=3) == 3 * LONG
        assert pace.rest(60 * SECOND) == 60 * SECOND, "never sooner than usual"
    assert pace.rest(SECOND) == SECOND


async def test_what_becomes_due_ends_the_rest_and_the_cell_is_lively_for_a_while(monkeypatch):
    notifications = LocalNotifications().of_store("b")
    pace, wake = notifications.pace, asyncio.Event()
    with pace.listening():
        assert pace.rest(SECOND, wake) == LONG

        notifications.send(timedelta(), ["mail.send"])

        assert wake.is_set()
        assert pace.rest(SECOND, wake) == SECOND
        monkeypatch.setattr(paces, "_LIVELY_FOR", 0.0)
        assert pace.rest(SECOND, wake) == LONG


async def test_a_listener_that_is_lost_ends_the_rest():
    pace, wake = Pace(LONG), asyncio.Event()
    with pace.listening():
        pace.rest(SECOND, wake)

    assert wake.is_set()


async def test_notifications_of_one_store_are_not_those_of_another():
    notifications = LocalNotifications()
    one = notifications.of_store(("a", "dsn"))

    assert notifications.of_store(("a", "dsn")) is one
    assert notifications.of_store(("b", "dsn")) is not one
    with one.pace.listening():
        one.send(timedelta(), ["mail.send"])
        assert notifications.of_store(("b", "dsn")).pace is not one.pace
