"""An overloaded Frontend: the clients wait as it says, within the time of the call."""

import asyncio
from datetime import timedelta
from time import monotonic

import grpc
import pytest

import duly
from tests.fixtures.overload import overloaded_trailer

WAIT = timedelta(milliseconds=300)


def overload(frontend, times, wait=WAIT):
    frontend.words = "too much"
    refusal = grpc.StatusCode.RESOURCE_EXHAUSTED, overloaded_trailer(wait)
    frontend.failures.extend([refusal] * times)


async def test_a_call_is_sent_again_after_the_time_that_it_is_told(frontend):
    overload(frontend, 2)
    async with duly.AsyncClient(frontend.address) as client:
        began = monotonic()
        await client.schedule("mail.send")

    assert monotonic() - began >= 2 * WAIT.total_seconds()
    assert len(frontend.requests) == 3


async def test_a_blocking_call_waits_too(frontend):
    overload(frontend, 1)
    client = duly.Client(frontend.address)
    began = monotonic()
    await asyncio.to_thread(client.schedule, "mail.send")

    assert monotonic() - began >= WAIT.total_seconds()
    assert len(frontend.requests) == 2
    await asyncio.to_thread(client.close)


async def test_a_call_that_has_no_time_for_that_says_that_the_frontend_cannot_serve(frontend):
    overload(frontend, 1, timedelta(seconds=60))
    async with duly.AsyncClient(frontend.address) as client:
        with pytest.raises(duly.UnavailableError, match="cannot serve now: too much"):
            await client.schedule("mail.send", timeout=timedelta(seconds=1))

    assert len(frontend.requests) == 1


async def test_a_read_of_many_is_not_divided_because_of_it(frontend):
    ids = ["00000000-0000-7000-8000-000000000001", "00000000-0000-7000-8000-000000000002"]
    overload(frontend, 1, timedelta(milliseconds=10))
    async with duly.AsyncClient(frontend.address) as client:
        assert await client.get_many(ids) == [None, None]

    assert [len(request.task_ids) for request in frontend.requests] == [2, 2]
