import asyncio
from datetime import timedelta

import pytest

import duly
from duly.errors import ClosedError
from duly.tasks.scheduling import Scheduler
from duly.transport.batching import Batcher
from duly_wire.v1 import frontend_pb2


class Line:
    """What a batcher sends to: batches wait in it until the test answers them."""

    def __init__(self, **limits):
        self.batches = []
        self.answers = []
        self.batcher = Batcher(self._send, len, **limits)

    async def _send(self, batch):
        self.batches.append(batch)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]

    def answer(self, number):
        self.answers[number].set_result([item.upper() for item in self.batches[number]])

    async def submit(self, *items):
        """Submit, and return once what can leave has left."""
        tasks = [asyncio.create_task(self.batcher.submit(item)) for item in items]
        for _ in range(4):
            await asyncio.sleep(0)
        return tasks


async def test_an_item_leaves_at_once_when_nothing_is_under_way():
    line = Line()

    (task,) = await line.submit("a")
    line.answer(0)

    assert await task == "A"


async def test_items_that_come_while_the_line_is_busy_leave_together():
    line = Line(most_in_flight=1)
    await line.submit("a")
    waiting = [*await line.submit("b"), *await line.submit("c")]
    assert line.batches == [["a"]]

    line.answer(0)
    await line.submit()

    assert line.batches == [["a"], ["b", "c"]]
    line.answer(1)
    assert await asyncio.gather(*waiting) == ["B", "C"]


async def test_no_more_batches_are_under_way_than_allowed():
    line = Line(most_in_flight=2)

    await line.submit("a")
    await line.submit("b")
    await line.submit("c")

    assert line.batches == [["a"], ["b"]]


async def test_a_batch_holds_no_more_items_than_allowed():
    line = Line(most_items=2)

    await line.submit("a", "b", "c")

    assert line.batches == [["a", "b"], ["c"]]


async def test_a_batch_holds_no_more_bytes_than_allowed_and_a_giant_travels_alone():
    line = Line(most_bytes=4, most_in_flight=9)

    await line.submit("aa", "bb", "c", "giant", "d")

    assert line.batches == [["aa", "bb"], ["c"], ["giant"], ["d"]]


async def test_an_error_reaches_everyone_in_the_batch_and_nobody_else():
    line = Line(most_items=2)
    tasks = await line.submit("a", "b", "c")

    line.answers[0].set_exception(OSError("cut"))
    line.answer(1)
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(result) for result in results] == [OSError, OSError, str]


async def test_a_cancelled_caller_takes_nobody_with_it():
    line = Line()
    leaver, stayer = await line.submit("a", "b")

    leaver.cancel()
    await line.submit()
    line.answer(0)

    assert await stayer == "B"
    assert leaver.cancelled()


async def test_an_item_whose_caller_left_before_it_did_is_not_sent():
    line = Line(most_in_flight=1)
    await line.submit("a")
    leaver, _ = await line.submit("b", "c")

    leaver.cancel()
    line.answer(0)
    await line.submit()

    assert line.batches == [["a"], ["c"]]


async def test_closing_answers_what_was_submitted_and_refuses_the_rest():
    line = Line(most_in_flight=1)
    tasks = [*await line.submit("a"), *await line.submit("b")]
    closing = asyncio.create_task(line.batcher.close())
    await line.submit()

    with pytest.raises(ClosedError):
        await line.batcher.submit("c")
    line.answer(0)
    await line.submit()
    line.answer(1)
    await closing

    assert [task.result() for task in tasks] == ["A", "B"]


class HeldCaller:
    """Takes calls of Schedule, and answers them when the test says so."""

    schedule = None
    codec = None
    address = ""

    def __init__(self):
        self.held = []

    async def call(self, _method, request, _timeout):
        answer = asyncio.get_running_loop().create_future()
        self.held.append(answer)
        await answer
        results = [frontend_pb2.ScheduleResult(task_id=task.task_id, created=True) for task in request.tasks]
        return frontend_pb2.ScheduleResponse(results=results)


@pytest.mark.parametrize(("sessions", "at_a_time"), [("aa", 1), ("ab", 2)])
async def test_a_call_of_many_waits_for_those_before_it_that_have_its_sessions(sessions, at_a_time):
    caller = HeldCaller()
    tasks = [duly.NewTask("mail.send", n, session=sessions[n // 1000]) for n in range(2000)]
    scheduling = asyncio.create_task(Scheduler(caller).schedule_many(tasks, timedelta(seconds=10)))
    seen = []
    while not scheduling.done():
        for _ in range(10):  # all that can go on without an answer has done so
            await asyncio.sleep(0)
        seen.append(len(caller.held))
        while caller.held:
            caller.held.pop().set_result(None)
    assert max(seen) == at_a_time
    assert len(await scheduling) == 2000
