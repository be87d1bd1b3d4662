"""One look at a time claims for a call that waits in several stores."""

import asyncio

from duly_hsc.work.look_turn import LookTurn


def _planned(turn, by="b"):
    plans = []
    turn.when_open(by, lambda: plans.append(by))
    return plans


async def test_a_look_keeps_others_of_the_same_call_waiting_until_it_has_found_nothing():
    turn = LookTurn()
    turn.take("a")
    plans = _planned(turn)

    assert not turn.is_open()
    turn.give("a")

    assert turn.is_open()
    assert plans == ["b"]


async def test_a_look_that_claimed_ends_the_call_for_all_others():
    turn = LookTurn()
    turn.take("a")
    plans = _planned(turn)

    turn.end()
    turn.give("a")

    assert not turn.is_open()
    assert plans == []


async def test_a_look_whose_store_hangs_keeps_others_waiting_for_a_moment_only():
    turn, opened = LookTurn(), asyncio.Event()
    turn.take("a")
    turn.when_open("b", opened.set)

    await asyncio.wait_for(opened.wait(), 10)

    assert turn.is_open()


async def test_only_the_look_under_way_gives_the_turn_away():
    turn = LookTurn()
    turn.take("a")

    turn.give("b")

    assert not turn.is_open()
    turn.end()
