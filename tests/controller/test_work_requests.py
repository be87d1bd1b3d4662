"""NextWork calls are the credit for taking messages from queues."""

import asyncio

from duly_controller.reference_buffer import ReferenceBuffer
from duly_controller.work_requests import WorkRequests
from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import Received
from duly_wire.enums import Priority

QUEUE = QueueKey("mail", Priority.NORMAL)
MAIL = frozenset({"mail"})


def references(number: int) -> Received:
    return Received(QUEUE, tuple(bytes([place] * 16) for place in range(number)), "receipt")


async def settles(waiting: "asyncio.Future[object]") -> bool:
    """Whether it is done once everything that can run has run."""
    for _ in range(10):
        await asyncio.sleep(0)
    return waiting.done()


async def test_nothing_is_missing_while_nobody_asks() -> None:
    work_requests = WorkRequests(ReferenceBuffer(0.0))
    missing = asyncio.ensure_future(work_requests.missing(QUEUE))

    assert not await settles(missing)
    missing.cancel()


async def test_a_call_makes_twice_as_much_missing_as_it_asks_for() -> None:
    work_requests = WorkRequests(ReferenceBuffer(0.0))
    missing = asyncio.ensure_future(work_requests.missing(QUEUE))
    await settles(missing)

    with work_requests.asking(MAIL, 5):
        assert await missing == 10


async def test_calls_for_other_lambdas_do_not_count() -> None:
    work_requests = WorkRequests(ReferenceBuffer(0.0))

    with (
        work_requests.asking(frozenset({"image"}), 5),
        work_requests.asking(MAIL, 3),
        work_requests.asking(MAIL, 4),
    ):
        assert await work_requests.missing(QUEUE) == 14


async def test_what_the_buffer_holds_is_not_missing() -> None:
    buffer = ReferenceBuffer(0.0)
    work_requests = WorkRequests(buffer)
    buffer.add([references(7)], now=0)

    with work_requests.asking(MAIL, 5):
        assert await work_requests.missing(QUEUE) == 3


async def test_a_full_buffer_waits_until_what_was_taken_came_to_nothing() -> None:
    buffer = ReferenceBuffer(0.0)
    work_requests = WorkRequests(buffer)
    buffer.add([references(10)], now=0)
    with work_requests.asking(MAIL, 5):
        missing = asyncio.ensure_future(work_requests.missing(QUEUE))
        assert not await settles(missing)

        buffer.take(MAIL, 5, not_before=0)
        work_requests.taken()

        assert await missing == 5


async def test_an_executor_between_two_calls_still_counts() -> None:
    work_requests = WorkRequests(ReferenceBuffer(0.0))

    with work_requests.asking(MAIL, 5):
        pass

    assert await work_requests.missing(QUEUE) == 10


async def test_an_arrival_wakes_everybody_who_waits_for_one() -> None:
    work_requests = WorkRequests(ReferenceBuffer(0.0))
    waiting = [asyncio.ensure_future(work_requests.arrival()) for _ in range(2)]
    await settles(waiting[0])

    work_requests.arrived()

    await asyncio.gather(*waiting)
    later = asyncio.ensure_future(work_requests.arrival())
    assert not await settles(later)
    later.cancel()


async def test_a_call_for_one_priority_makes_only_its_queue_wanted() -> None:
    work_requests = WorkRequests(ReferenceBuffer(0.0))

    with work_requests.asking(MAIL, 5, frozenset({Priority.HIGH})):
        assert await work_requests.missing(QueueKey("mail", Priority.HIGH)) == 10
        assert work_requests.short_of(QUEUE) == 0

    assert work_requests.short_of(QUEUE) == 0


async def test_what_is_buffered_of_a_priority_that_nobody_asks_for_is_to_be_given_back() -> None:
    buffer = ReferenceBuffer(0.0)
    work_requests = WorkRequests(buffer)
    buffer.add([references(2)], now=0)

    with work_requests.asking(MAIL, 5, frozenset({Priority.HIGH})):
        assert work_requests.unasked_for() == [QUEUE]
    with work_requests.asking(MAIL, 5):
        assert work_requests.unasked_for() == []
