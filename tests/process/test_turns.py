"""Turns, slices and budgets: one caller's many calls do not hold up another's. Steps and clocks are the test's own."""

import asyncio
from datetime import timedelta

import pytest

from duly_core.errors import OverloadedError
from duly_core.traffic.slices import Rests, Slices, each, finish
from duly_core.traffic.time_budgets import TimeBudgets
from duly_core.traffic.turns import Turns


class Clock:
    """Stands still until it is told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def turns(slots=1, of_one=1, waiting=10, **options):
    return Turns("reads", slots, of_one=of_one, waiting_of_one=waiting, **options)


async def enter(these, *callers):
    """Let each begin to wait, in order; return their tasks."""
    waiting = [asyncio.ensure_future(these.enter(caller)) for caller in callers]
    await asyncio.sleep(0)
    return waiting


async def test_callers_that_wait_take_turns_however_many_calls_each_makes():
    these = turns()
    await these.enter("first")
    waiting = await enter(these, "greedy", "greedy", "greedy", "modest")

    order = []
    these.leave("first")
    for _ in range(4):
        await asyncio.sleep(0)
        (at_turn,) = [n for n, each_ in enumerate(waiting) if each_ and each_.done()]
        order.append("modest" if at_turn == 3 else "greedy")
        waiting[at_turn] = None
        these.leave(order[-1])

    assert order == ["greedy", "modest", "greedy", "greedy"]


async def test_one_caller_does_not_get_every_slot():
    these = turns(slots=2, of_one=1)
    await these.enter("greedy")
    (second,) = await enter(these, "greedy")

    assert not second.done()
    assert these.try_enter("modest")
    second.cancel()


@pytest.mark.parametrize(("caller", "times"), [("greedy", 1), ("modest", 0)])
async def test_who_waits_for_other_calls_of_its_own_caller_is_told_how_long(caller, times):
    told = []
    these = turns(slots=1, of_one=1, waited=told.append)
    await these.enter("greedy")
    (second,) = await enter(these, caller)

    these.leave("greedy")
    await second

    assert len(told) == times


async def test_who_gives_up_behind_its_own_calls_is_told_too():
    told = []
    these = turns(slots=2, of_one=1, waited=told.append)
    await these.enter("greedy")
    (second,) = await enter(these, "greedy")

    second.cancel()
    await asyncio.wait([second])

    assert len(told) == 1


async def test_large_work_is_told_how_long_it_was_behind_that_of_its_own_caller():
    clock, told = Clock(), []
    slices = Slices("large requests", waited=told.append, clock=clock, rest=lambda _: asyncio.sleep(0))

    def work():
        yield
        clock.now += 5
        yield

    await asyncio.gather(*(slices.run(caller, work()) for caller in ("greedy", "greedy", "modest")))

    assert told == [10]


@pytest.mark.parametrize("granted", [False, True])
async def test_a_call_that_is_cancelled_keeps_no_slot(granted):
    these = turns()
    await these.enter("first")
    (waiting,) = await enter(these, "second")

    if granted:
        these.leave("first")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    if not granted:
        these.leave("first")

    assert these.try_enter("third")


async def test_what_waits_of_one_caller_is_bounded_and_another_may_still_wait():
    refused = []
    these = turns(waiting=1, refused=refused.append)
    await these.enter("greedy")
    (first,) = await enter(these, "greedy")

    with pytest.raises(OverloadedError, match="too many reads of this caller"):
        await these.enter("greedy")
    (other,) = await enter(these, "modest")

    assert refused == ["greedy"]
    these.leave("greedy")
    await first
    these.leave("greedy")
    await other


async def test_a_budget_is_paid_back_with_time_and_says_when_to_come_again():
    clock = Clock()
    budgets = TimeBudgets(share=0.5, burst=timedelta(seconds=2), clock=clock)
    these = turns(budgets=budgets)

    budgets.charge("greedy", 3)
    with pytest.raises(OverloadedError) as refused:
        await these.enter("greedy")
    await these.enter("modest")
    these.leave("modest")
    clock.now += 2

    assert refused.value.retry_after == timedelta(seconds=2)
    await these.enter("greedy")


async def test_callers_that_paid_back_are_forgotten():
    clock = Clock()
    budgets = TimeBudgets(share=1, burst=timedelta(seconds=1), clock=clock)
    for number in range(3_000):
        budgets.charge(number, 0.5)
        clock.now += 1

    assert len(budgets._used) < 1_500


class Worked:
    """Records whose step was done; each step takes a part of a slice of this clock."""

    def __init__(self, a_step):
        self.steps = []
        self.clock = Clock()
        self.rests = []
        self._a_step = a_step

    async def rest(self, seconds):
        self.rests.append(round(seconds, 6))
        await asyncio.sleep(0)

    def work(self, name, steps):
        for _ in range(steps):
            yield
            self.clock.now += self._a_step
            self.steps.append(name)
        return name


async def test_large_work_is_done_in_slices_and_callers_take_turns():
    worked = Worked(a_step=0.001)
    slices = Slices("checks", clock=worked.clock, rest=worked.rest)

    done = await asyncio.gather(
        slices.run("greedy", worked.work("g1", 6)),
        slices.run("greedy", worked.work("g2", 2)),
        slices.run("modest", worked.work("m", 2)),
    )

    assert done == ["g1", "g2", "m"]
    assert worked.steps == ["g1", "g1", "m", "m", "g1", "g1", "g1", "g1", "g2", "g2"]
    assert set(worked.rests) <= {0.002, 0.0}  # as long as the slice before


async def test_large_work_rests_only_while_others_have_work():
    clock, rested, neighbours = Clock(), [], []

    async def sleep(seconds):
        if seconds:
            rested.append(seconds)
        elif neighbours:
            clock.now += neighbours.pop()

    rests = Rests(clock, sleep)
    each_rested = []
    for work_of_others, since in (([], 0.002), ([0.001], 0.002), ([], 0.002), ([], 0.03)):
        rested.clear()
        neighbours.extend(work_of_others)
        clock.now += since
        await rests(0.002)
        each_rested.append(bool(rested))

    # others had work; they may come back from their store; they did not
    assert each_rested == [False, True, True, False]


async def test_small_work_waits_for_nobody():
    worked = Worked(a_step=0.001)
    slices = Slices("checks", clock=worked.clock, rest=worked.rest)
    large = asyncio.ensure_future(slices.run("greedy", worked.work("large", 100)))
    await asyncio.sleep(0)

    small = await slices.run("greedy", each(str, [1, 2, 3]))

    assert (small, large.done()) == (["1", "2", "3"], False)
    await large


async def test_work_is_charged_and_refused_beyond_the_budget():
    worked = Worked(a_step=0.5)
    budgets = TimeBudgets(share=0.5, burst=timedelta(seconds=1), clock=worked.clock)
    slices = Slices("checks", budgets, clock=worked.clock, rest=worked.rest)

    await slices.run("greedy", worked.work("g", 8))
    with pytest.raises(OverloadedError, match="take too much time") as refused:
        await slices.run("greedy", worked.work("g", 8))

    assert refused.value.retry_after > timedelta()
    assert await slices.run("modest", worked.work("m", 2)) == "m"


async def test_an_error_of_one_piece_of_work_and_a_caller_that_left_disturb_nobody():
    worked = Worked(a_step=0.001)
    slices = Slices("checks", clock=worked.clock, rest=worked.rest)

    def bad():
        yield
        raise ValueError("bad")

    left = asyncio.ensure_future(slices.run("left", worked.work("left", 1_000)))
    await asyncio.sleep(0)
    left.cancel()
    answers = await asyncio.gather(
        slices.run("a", bad()), slices.run("a", worked.work("after", 3)), return_exceptions=True
    )

    assert (str(answers[0]), answers[1]) == ("bad", "after")
    assert worked.steps.count("left") < 10


async def test_more_work_than_may_wait_is_refused():
    worked = Worked(a_step=0.001)
    slices = Slices("checks", most_waiting=1, clock=worked.clock, rest=worked.rest)
    first = asyncio.ensure_future(slices.run("greedy", worked.work("g", 5)))
    await asyncio.sleep(0)

    with pytest.raises(OverloadedError, match="too many checks of this caller"):
        await slices.run("greedy", worked.work("g", 5))
    assert await slices.run("modest", worked.work("m", 5)) == "m"
    await first


def test_steps_may_be_taken_at_once():
    assert finish(each(str, range(250), a_step=100)) == [*map(str, range(250))]
    assert len(list(each(str, range(250), a_step=100))) == 2
