"""Loops of a quiet cell rest for long while somebody listens, and go on when something becomes due; a sole store's never rest longer."""

import asyncio
from contextlib import ExitStack
from datetime import timedelta

from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.process import pace as paces
from duly_core.process.pace import USUAL, Lively, Pace

SECOND = timedelta(seconds=1)
LONG = timedelta(seconds=30)


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


async def test_a_cell_is_quiet_while_somebody_listens_and_nothing_was_due_lately():
    pace = Pace(LONG)
    assert not pace.is_quiet
    assert pace.spares, "what begins opens one connection"

    with pace.listening(), USUAL.listening():
        assert pace.is_quiet
        assert not USUAL.is_quiet
        assert not USUAL.spares
        pace.stir()
        assert not pace.is_quiet
        assert not pace.spares


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


async def test_lively_cells_of_one_process_share_the_looks_of_one():
    notifications = LocalNotifications()
    paces_of_cells = [notifications.of_store(name).pace for name in "abcd"]
    with ExitStack() as listening:
        for pace in paces_of_cells:
            listening.enter_context(pace.listening())
        one, two, *others = paces_of_cells

        one.stir()
        assert one.rest(SECOND) == SECOND, "the others are quiet"
        two.stir()
        assert [pace.rest(SECOND) for pace in (one, two)] == [2 * SECOND] * 2
        for pace in others:
            pace.stir()
        assert [pace.rest(SECOND) for pace in paces_of_cells] == [4 * SECOND] * 4
        assert one.rest(SECOND, shares=False) == SECOND, "nobody tells of what it looks for"
        assert one.rest(10 * SECOND) == LONG, "no longer than in a quiet cell"
        assert one.rest(5 * SECOND, times=1 / 6) == 5 * SECOND
        assert one.rest(60 * SECOND) == 60 * SECOND, "never sooner than usual"


async def test_a_cell_that_is_quiet_again_slows_no_other(monkeypatch):
    lively = Lively()
    one, two = Pace(LONG, lively), Pace(LONG, lively)
    with one.listening(), two.listening():
        one.stir()
        monkeypatch.setattr(paces, "_LIVELY_FOR", 0.0)
        two.stir()
        monkeypatch.undo()

        assert one.rest(SECOND) == SECOND


async def test_what_becomes_due_does_not_wake_the_loops_of_a_lively_cell_and_the_loss_of_a_listener_does():
    lively = Lively()
    one, two, wake = Pace(LONG, lively), Pace(LONG, lively), asyncio.Event()
    with two.listening():
        two.stir()
        with one.listening():
            one.stir()
            assert one.rest(SECOND, wake) == 2 * SECOND
            one.stir()
            assert not wake.is_set()
        assert wake.is_set()
        assert one.rest(SECOND, wake) == SECOND, "nobody would tell of a change"


async def test_notifications_of_one_store_are_not_those_of_another():
    notifications = LocalNotifications()
    one = notifications.of_store(("a", "dsn"))

    assert notifications.of_store(("a", "dsn")) is one
    assert notifications.of_store(("b", "dsn")) is not one
    with one.pace.listening():
        one.send(timedelta(), ["mail.send"])
        assert notifications.of_store(("b", "dsn")).pace is not one.pace
