"""Tasks of one namespace that are not answered hold up no tasks of others."""

import asyncio
from datetime import timedelta
from types import SimpleNamespace

import grpc
import pytest

import duly
from duly.errors import ClosedError
from duly.transport.lanes import MOST_LANES, Lanes, NotAnsweredError
from tests.fixtures.waiting import until


class Road:
    """Lanes by the first letter of an item; batches wait until the test answers them."""

    def __init__(self, clock=None, late_after_s=60.0):
        self.clock = clock
        self.common = []
        self.apart = []
        self.told = []
        """Seconds that the next batches must wait, as an overloaded server says."""
        self.lanes = Lanes(
            lambda batch: self._send(self.common, batch),
            lambda batch: self._send(self.apart, batch),
            len,
            lambda item: item[0],
            lambda answer: answer == "away",
            late_after_s,
        )

    async def _send(self, batches, batch):
        answer = asyncio.get_running_loop().create_future()
        batches.append((batch, answer))
        if self.told:
            self.lanes.wait_as_told(self.told.pop(0))
        said = await answer
        return [said.get(item, item) for item in batch]

    async def submit(self, *items):
        """Submit, and return once what can leave has left."""
        tasks = [asyncio.create_task(self.lanes.submit(item)) for item in items]
        await self.come_round()
        return tasks

    async def come_round(self):
        for _ in range(6):
            await asyncio.sleep(0)

    async def pass_time(self, seconds):
        self.clock.now += seconds
        await self.come_round()

    async def fail(self, *items):
        """Let these fail in the common lane."""
        tasks = await self.submit(*items)
        self.common[-1][1].set_exception(NotAnsweredError())
        await self.come_round()
        return tasks


@pytest.fixture
async def loop_clock(monkeypatch):
    """The time of the test's loop: it stands still until the test sets it."""
    loop = asyncio.get_running_loop()
    clock = SimpleNamespace(now=loop.time())
    monkeypatch.setattr(loop, "time", lambda: clock.now)
    return clock


def _items(batches):
    return [batch for batch, _ in batches]


async def test_items_of_all_kinds_leave_together_while_none_gives_trouble():
    road = Road()

    tasks = await road.submit("a1", "b1")
    road.common[0][1].set_result({})

    assert await asyncio.gather(*tasks) == ["a1", "b1"]
    assert _items(road.common) == [["a1", "b1"]]
    assert road.apart == []


async def test_items_that_failed_are_sent_again_by_kind_and_later_ones_go_with_them():
    road = Road()
    await road.fail("a1", "b1")

    await road.submit("a2", "c1")

    assert _items(road.apart) == [["a1"], ["b1"], ["a2"]]
    assert _items(road.common) == [["a1", "b1"], ["c1"]]


async def test_a_kind_that_is_answered_goes_with_the_others_again():
    road = Road()
    (task,) = await road.fail("a1")

    road.apart[0][1].set_result({})
    assert await task == "a1"
    await road.submit("a2", "b1")

    assert _items(road.common) == [["a1"], ["a2", "b1"]]


async def test_a_kind_that_is_answered_as_away_goes_by_a_lane_of_its_own_until_it_is_not():
    road = Road()
    tasks = await road.submit("a1", "b1")
    road.common[0][1].set_result({"a1": "away"})
    assert await asyncio.gather(*tasks) == ["away", "b1"]

    for number, said in enumerate(["away", "a2"]):
        (task,) = await road.submit("a2")
        road.apart[number][1].set_result({"a2": said})
        assert await task == said

    await road.submit("a3")
    assert _items(road.apart) == [["a2"], ["a2"]]
    assert _items(road.common) == [["a1", "b1"], ["a3"]]


async def test_batches_that_are_late_hold_up_no_others_and_their_kinds_go_apart(loop_clock):
    road = Road(loop_clock, late_after_s=0.5)
    await road.submit("a1")
    await road.submit("a2")
    waiting = await road.submit("b1")
    await road.pass_time(0.4)
    assert _items(road.common) == [["a1"], ["a2"]]  # as many as may be under way

    await road.pass_time(0.2)
    assert _items(road.common) == [["a1"], ["a2"], ["b1"]]
    road.common[2][1].set_result({})
    await road.submit("a3")

    assert await waiting[0] == "b1"
    assert _items(road.apart) == [["a3"]]


async def test_batches_that_wait_as_an_overloaded_server_says_keep_their_places(
    frontend, loop_clock, monkeypatch
):
    told = []

    def pause(error):
        told.append(error)
        return 20.0

    monkeypatch.setattr("duly.transport.caller.pause_of", pause)
    frontend.serves_streams = True
    frontend.failures.extend([(grpc.StatusCode.RESOURCE_EXHAUSTED,)] * 2)
    async with duly.AsyncClient(frontend.address) as client:
        first = []
        for number, name in enumerate("ab", start=1):
            first.append(asyncio.create_task(client.schedule(f"{name}/x", timeout=timedelta(minutes=1))))
            await frontend.until_arrived(number)
        last = asyncio.create_task(client.schedule("c/x", timeout=timedelta(minutes=1)))
        while len(told) < 2:  # noqa: ASYNC110 (the loop's clock stands still)
            await asyncio.sleep(0)

        for seconds in (0.6, 19.5):  # later than batches are late, and when they may come again
            loop_clock.now += seconds
            for _ in range(6):
                await asyncio.sleep(0)
        await asyncio.gather(*first, last)

    names = [getattr(task, "lambda") for request in frontend.requests for task in request.tasks]
    assert "c/x" not in names[:3]  # it leaves in the place of one that was answered


async def test_a_batch_that_waited_as_told_is_late_only_after_that(loop_clock):
    road = Road(loop_clock, late_after_s=0.5)
    road.told = [20.0, 20.0]
    await road.submit("a1")
    await road.submit("a2")
    await road.submit("b1")

    await road.pass_time(20.4)
    assert _items(road.common) == [["a1"], ["a2"]]
    await road.pass_time(0.2)
    assert _items(road.common) == [["a1"], ["a2"], ["b1"]]


async def test_kinds_beyond_the_most_share_a_lane_until_another_is_idle():
    road = Road()
    kinds = [chr(0x100 + number) for number in range(MOST_LANES)]
    tasks = await road.fail(*kinds)
    await road.fail("x", "y")
    assert _items(road.apart) == [*([each] for each in kinds), ["x", "y"]]

    road.apart[0][1].set_result({})
    await tasks[0]
    await road.come_round()  # its lane is idle now
    await road.fail("z")

    assert _items(road.apart)[-1] == ["z"]


async def test_closing_answers_what_was_submitted_also_if_it_fails_first_and_refuses_the_rest():
    road = Road()
    tasks = [*await road.fail("a1"), *await road.submit("b1")]
    closing = asyncio.create_task(road.lanes.close())
    await road.come_round()

    for kind in "abc":
        with pytest.raises(ClosedError):
            await road.lanes.submit(f"{kind}2")
    road.common[1][1].set_exception(NotAnsweredError())
    await road.come_round()
    for _, answer in road.apart:
        answer.set_result({})
    await closing

    assert [task.result() for task in tasks] == ["a1", "b1"]


async def test_calls_for_a_namespace_whose_cell_is_away_hold_up_no_calls_for_others(frontend):
    served, away = frontend.Schedule, [True]

    async def schedule(request, context):
        if away and any(getattr(task, "lambda").startswith("lost/") for task in request.tasks):
            frontend.requests.append(request)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "cell b: its Postgres does not answer")
        return await served(request, context)

    frontend.Schedule = schedule
    frontend.serves_streams = True
    async with duly.AsyncClient(frontend.address) as client:
        lost = []
        for tries in range(1, 4):  # more than may be under way in a lane
            lost.append(asyncio.create_task(client.schedule("lost/x", timeout=timedelta(minutes=1))))
            await until(lambda tries=tries: len(frontend.requests) >= tries)
        written = await client.schedule("living/x")

        assert written.created
        assert not any(task.done() for task in lost)
        away.clear()
        assert all(each.created for each in await asyncio.gather(*lost))
