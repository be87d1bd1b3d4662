"""Group commit: who is served with whom, and what each is told."""

import asyncio
from datetime import timedelta

import pytest

from duly_core.errors import NotInCellError, OverloadedError, RowLockedError, StoreUnavailableError
from duly_core.traffic.group_commit import GroupCommit


class Served:
    """Records each group; answers the doubles, once the test opens the gate."""

    def __init__(self):
        self.groups = []
        self.open = asyncio.Event()
        self.began = asyncio.Condition()
        self.running = 0
        self.most = 0

    async def __call__(self, items):
        self.groups.append(items)
        self.running += 1
        self.most = max(self.most, self.running)
        async with self.began:
            self.began.notify_all()
        await self.open.wait()
        self.running -= 1
        if "bad" in items:
            raise ValueError("one of them is bad")
        return [item * 2 for item in items]

    async def until(self, groups):
        async with self.began:
            await asyncio.wait_for(self.began.wait_for(lambda: len(self.groups) >= groups), 5)


@pytest.fixture
async def served():
    return Served()


async def begin(group_commit, *calls):
    """Let each call reach the group commit, in order."""
    tasks = [asyncio.ensure_future(group_commit(items)) for items in calls]
    await asyncio.sleep(0)
    return tasks


async def test_a_call_that_comes_alone_is_served_at_once_and_alone(served):
    served.open.set()

    assert await GroupCommit(served)([1, 2]) == [2, 4]
    assert served.groups == [[1, 2]]


async def test_an_empty_call_is_answered_without_being_served(served):
    assert await GroupCommit(served)([]) == []
    assert served.groups == []


async def test_what_comes_while_a_group_is_served_goes_together_into_the_next_one(served):
    calls = await begin(GroupCommit(served), [1], [2, 3], [4], [5, 6, 7])
    served.open.set()

    assert await asyncio.gather(*calls) == [[2], [4, 6], [8], [10, 12, 14]]
    assert served.groups == [[1], [2, 3, 4, 5, 6, 7]]


async def test_a_group_is_no_larger_than_the_most_and_a_larger_call_is_not_split(served):
    calls = await begin(GroupCommit(served, max_items=3), [0], [1, 2], [3], [4], [5, 6, 7, 8], [9])
    served.open.set()

    await asyncio.gather(*calls)

    assert served.groups == [[0], [1, 2, 3], [4], [5, 6, 7, 8], [9]]


async def test_no_more_groups_run_at_a_time_than_allowed_and_as_many_do(served):
    group_commit = GroupCommit(served, max_items=1, concurrency=3)
    calls = await begin(group_commit, *([n] for n in range(10)))
    await served.until(groups=3)
    served.open.set()

    assert await asyncio.gather(*calls) == [[2 * n] for n in range(10)]
    assert served.most == 3


async def test_a_bad_item_fails_its_own_call_and_no_other_of_the_group(served):
    calls = await begin(GroupCommit(served), ["a"], ["bad"], ["b"])
    await served.until(groups=1)
    served.open.set()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert answers[0] == ["aa"]
    assert str(answers[1]) == "one of them is bad"
    assert answers[2] == ["bb"]


async def test_an_outage_goes_to_everybody_in_the_group_and_is_not_asked_again():
    groups = []

    async def away(items):
        groups.append(items)
        await asyncio.sleep(0)
        raise StoreUnavailableError("away")

    group_commit = GroupCommit(away)
    answers = await asyncio.gather(*(group_commit([n]) for n in range(3)), return_exceptions=True)

    assert [type(each) for each in answers] == [StoreUnavailableError] * 3
    assert groups == [[0], [1, 2]]


@pytest.mark.parametrize("refusal", [RowLockedError, NotInCellError])
async def test_what_one_call_causes_fails_that_call_and_no_other(refusal):
    groups = []

    async def one_is_locked(items):
        groups.append(items)
        await asyncio.sleep(0)
        if 2 in items:
            raise refusal("that of one")
        return items

    group_commit = GroupCommit(one_is_locked)
    answers = await asyncio.gather(*(group_commit([n]) for n in range(4)), return_exceptions=True)

    assert [type(each) for each in answers] == [list, list, refusal, list]
    assert groups == [[0], [1, 2, 3], [1], [2], [3]]


async def test_heavy_items_do_not_come_together_in_their_hundreds(served):
    calls = await begin(GroupCommit(served, max_items=10, weigh=sum), [9], [6], [6], [2])
    await served.until(groups=1)
    served.open.set()
    await asyncio.gather(*calls)

    assert served.groups == [[9], [6], [6, 2]]


async def test_more_than_can_be_served_soon_is_refused_at_once(served):
    group_commit = GroupCommit(served, max_items=1)
    calls = await begin(group_commit, *([n] for n in range(51)))

    with pytest.raises(OverloadedError):
        await group_commit([51])
    served.open.set()

    assert await asyncio.gather(*calls) == [[2 * n] for n in range(51)]


async def test_after_an_error_it_goes_on(served):
    served.open.set()
    group_commit = GroupCommit(served)
    with pytest.raises(ValueError, match="bad"):
        await group_commit(["bad"])

    assert await group_commit([1]) == [2]


async def test_a_caller_that_gives_up_hurts_nobody_and_is_served_only_if_its_turn_had_come(served):
    calls = await begin(GroupCommit(served), [1], [2], [3])
    await served.until(groups=1)
    calls[0].cancel()
    calls[1].cancel()
    served.open.set()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(each) for each in answers[:2]] == [asyncio.CancelledError] * 2
    assert answers[2] == [6]
    assert served.groups == [[1], [3]]


async def test_what_nobody_waits_for_any_more_is_dropped_before_it_is_served(served):
    group_commit = GroupCommit(served)
    (first,) = await begin(group_commit, [1])
    late = asyncio.ensure_future(group_commit([2], within=0))
    patient = asyncio.ensure_future(group_commit([3], within=60))
    await asyncio.sleep(0)
    served.open.set()

    with pytest.raises(OverloadedError, match="time was over"):
        await late
    assert [await first, await patient] == [[2], [6]]
    assert served.groups == [[1], [3]]


async def test_those_who_may_wait_less_are_refused_sooner(served):
    group_commit = GroupCommit(served, max_items=1, most_groups_waiting=2)
    calls = await begin(group_commit, [1], [2], [3])

    with pytest.raises(OverloadedError):
        await group_commit([4])
    served.open.set()

    assert await asyncio.gather(*calls) == [[2], [4], [6]]


async def test_callers_that_all_gave_up_leave_no_error_behind(served):
    calls = await begin(GroupCommit(served), ["bad"])
    await served.until(groups=1)
    calls[0].cancel()
    served.open.set()

    with pytest.raises(asyncio.CancelledError):
        await calls[0]
    await asyncio.sleep(0)


async def test_the_size_of_each_group_is_told(served):
    sizes = []
    served.open.set()
    group_commit = GroupCommit(served, observe=sizes.append)

    await asyncio.gather(*await begin(group_commit, [1, 2], [3], [4, 5]))

    assert sizes == [2, 3]


async def test_after_a_rest_what_came_meanwhile_is_one_group(served):
    served.open.set()
    group_commit = GroupCommit(served, rest=0.05)

    first = await group_commit([1])
    rest = await asyncio.gather(group_commit([2]), group_commit([3]), group_commit([4]))

    assert (first, rest) == ([2], [[4], [6], [8]])
    assert served.groups == [[1], [2, 3, 4]]


async def test_a_full_group_does_not_rest(served):
    served.open.set()
    group_commit = GroupCommit(served, max_items=2, rest=3_600)

    await group_commit([1])

    assert await asyncio.wait_for(group_commit([2, 3]), 5) == [4, 6]


async def test_only_after_several_items_the_rest_is_that_of_a_stream(served):
    served.open.set()
    group_commit = GroupCommit(served, max_items=3, stream_rest=3_600)

    alone = [await group_commit([1]), await group_commit([2])]
    together = await group_commit([3, 4])
    waiting = await begin(group_commit, [5])
    full = await asyncio.wait_for(group_commit([6, 7]), 5)

    assert alone == [[2], [4]]
    assert together == [6, 8]
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [[10]]
    assert full == [12, 14]
    assert served.groups == [[1], [2], [3, 4], [5, 6, 7]]


async def test_rests_that_bring_nothing_together_are_left_out_until_items_come_together(served):
    served.open.set()
    group_commit = GroupCommit(served, rest=0.02)
    for number in range(4):  # the first starts at once, and three rests bring nothing together
        await group_commit([number])
    served.groups.clear()

    await asyncio.gather(group_commit([1]), group_commit([2]), group_commit([3]))
    await asyncio.gather(group_commit([4]), group_commit([5]))

    assert served.groups == [[1], [2, 3], [4, 5]]


async def test_one_clients_many_calls_hold_up_anothers_single_one_by_a_group_only(served):
    group_commit = GroupCommit(served, max_items=2)
    flood = [asyncio.ensure_future(group_commit([n], client="busy")) for n in range(20)]
    await served.until(groups=1)
    single = asyncio.ensure_future(group_commit([100], client="quiet"))
    await asyncio.sleep(0)
    served.open.set()
    await asyncio.gather(single, *flood)

    assert served.groups[:3] == [[0], [1, 100], [2, 3]]


async def test_calls_of_one_client_keep_their_order(served):
    group_commit = GroupCommit(served, max_items=3)
    calls = [asyncio.ensure_future(group_commit([n], client=n % 2)) for n in range(9)]
    await served.until(groups=1)
    served.open.set()
    await asyncio.gather(*calls)

    order = [item for group in served.groups for item in group]
    assert [n for n in order if n % 2] == [1, 3, 5, 7]
    assert [n for n in order if not n % 2] == [0, 2, 4, 6, 8]


async def test_when_too_much_waits_it_is_the_client_with_much_that_is_refused(served):
    group_commit = GroupCommit(served, max_items=1, most_groups_waiting=4)
    flood = [asyncio.ensure_future(group_commit([n], client="busy")) for n in range(5)]
    await served.until(groups=1)

    with pytest.raises(OverloadedError):
        await group_commit([5], client="busy")
    few = asyncio.ensure_future(group_commit([6], client="quiet"))
    await asyncio.sleep(0)
    served.open.set()

    assert await few == [12]
    await asyncio.gather(*flood)


async def test_clients_with_little_are_refused_too_when_twice_as_much_waits(served):
    group_commit = GroupCommit(served, max_items=12, most_groups_waiting=1)
    first = asyncio.ensure_future(group_commit([0]))
    await served.until(groups=1)
    shares = [asyncio.ensure_future(group_commit([1] * count, client=count)) for count in (12, 6, 4)]
    await asyncio.sleep(0)

    with pytest.raises(OverloadedError):
        await group_commit([1] * 3, client="late")
    served.open.set()

    await asyncio.gather(first, *shares)


async def test_who_is_refused_is_told_when_to_try_again(served):
    group_commit = GroupCommit(served, max_items=1, most_groups_waiting=1)
    calls = await begin(group_commit, [1], [2])

    with pytest.raises(OverloadedError) as refused:
        await group_commit([3])
    served.open.set()
    await asyncio.gather(*calls)

    assert timedelta() < refused.value.retry_after <= timedelta(seconds=2)


async def test_while_heavy_groups_have_all_places_another_client_gets_one_more_and_they_do_not(served):
    group_commit = GroupCommit(served, max_items=10, concurrency=2)
    heavy = [asyncio.ensure_future(group_commit([n] * 10, client="busy")) for n in range(3)]
    await served.until(groups=2)

    quiet = asyncio.ensure_future(group_commit([100], client="quiet"))
    await served.until(groups=3)
    late = asyncio.ensure_future(group_commit([200], client="late"))
    await asyncio.sleep(0)
    running = list(served.groups)
    served.open.set()
    await asyncio.gather(*heavy, quiet, late)

    assert running == [[0] * 10, [1] * 10, [100]]  # one more, and no third of the busy one


async def test_small_groups_leave_no_place_more(served):
    group_commit = GroupCommit(served, max_items=10, concurrency=2)
    small = [asyncio.ensure_future(group_commit([n], client="busy")) for n in range(2)]
    await served.until(groups=2)

    quiet = asyncio.ensure_future(group_commit([100], client="quiet"))
    await asyncio.sleep(0)
    running = list(served.groups)
    served.open.set()
    await asyncio.gather(*small, quiet)

    assert running == [[0], [1]]
