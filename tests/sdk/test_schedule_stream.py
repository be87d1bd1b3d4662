"""Calls of `schedule` that follow each other closely share a stream; what goes wrong on it goes wrong for one call."""

import asyncio
import contextlib
from datetime import timedelta

import grpc
import pytest

import duly
from duly.tasks import blocking_schedule
from duly.transport import schedule_stream
from duly_wire.v1 import task_pb2
from tests.fixtures.waiting import until


@pytest.fixture
async def frontend(frontend):
    frontend.serves_streams = True
    return frontend


@pytest.fixture(params=["blocking", "async"])
async def schedule(request, frontend):
    """`await schedule(lambda, timeout=...)`, by either client."""
    async with contextlib.AsyncExitStack() as stack:
        if request.param == "async":
            client = await stack.enter_async_context(duly.AsyncClient(frontend.address))
            yield client.schedule
        else:
            client = duly.Client(frontend.address)
            stack.push_async_callback(asyncio.to_thread, client.close)

            async def in_thread(*args, **options):
                return await asyncio.to_thread(client.schedule, *args, **options)

            yield in_thread
        frontend.open.set()


async def test_calls_that_follow_each_other_share_one_stream(schedule, frontend):
    receipts = [await schedule("mail.send") for _ in range(5)]

    assert len({str(receipt) for receipt in receipts}) == 5
    assert len(frontend.streams) == 1


async def test_an_item_error_is_raised_and_the_stream_goes_on(schedule, frontend):
    frontend.item_errors["bad"] = task_pb2.ItemError(
        code=task_pb2.ERROR_CODE_UNKNOWN_LAMBDA, message="unknown"
    )
    for _ in range(3):
        await schedule("mail.send")
        with pytest.raises(duly.UnknownLambdaError):
            await schedule("bad")

    assert len(frontend.streams) == 1


async def test_a_refused_request_raises_what_one_that_was_sent_alone_raises(schedule, frontend):
    await schedule("mail.send")
    frontend.failures.append((grpc.StatusCode.INVALID_ARGUMENT,))

    with pytest.raises(duly.InvalidTaskError, match="as the test said"):
        await schedule("mail.send")

    assert (await schedule("mail.send")).created


async def test_a_call_that_cannot_be_served_now_is_sent_again_as_the_same_task(schedule, frontend):
    await schedule("mail.send")
    frontend.failures += [(grpc.StatusCode.UNAVAILABLE,)] * 2

    receipt = await schedule("mail.send")

    sent = [task.task_id for request in frontend.requests[1:] for task in request.tasks]
    assert sent == [str(receipt)] * 3


async def test_a_stream_that_ends_under_a_call_does_not_lose_it(schedule, frontend):
    await schedule("mail.send")
    await schedule("mail.send")
    frontend.open.clear()
    waiting = asyncio.ensure_future(schedule("mail.send"))
    await frontend.until_arrived(3)
    frontend.streams[0].close()
    frontend.open.set()

    receipt = await waiting

    assert {task.task_id for request in frontend.requests[2:] for task in request.tasks} == {str(receipt)}


async def test_a_late_call_ends_in_time(schedule, frontend, monkeypatch):
    monkeypatch.setattr(schedule_stream, "_WATCH_S", 0.01)
    monkeypatch.setattr(blocking_schedule, "SHORTEST_TIMEOUT_S", 0.0)
    await schedule("mail.send")
    await schedule("mail.send")
    frontend.open.clear()

    with pytest.raises(duly.UnavailableError):
        await asyncio.wait_for(schedule("mail.send", timeout=timedelta(seconds=0.3)), 5)

    frontend.open.set()
    assert (await schedule("mail.send")).created


async def test_the_async_clients_streams_make_way_for_others_when_they_are_old(frontend, monkeypatch):
    monkeypatch.setattr("duly.transport.caller._MAX_STREAM_AGE", timedelta(0))
    async with duly.AsyncClient(frontend.address) as client:
        await client.schedule("mail.send")
        await client.schedule("mail.send")

    assert len(frontend.streams) == 2


async def test_the_blocking_clients_streams_make_way_for_others_when_they_are_old(frontend, monkeypatch):
    monkeypatch.setattr(schedule_stream, "_MAX_AGE_S", 0.0)

    def use():
        with duly.Client(frontend.address) as client:
            for _ in range(3):
                client.schedule("mail.send")

    await asyncio.to_thread(use)
    assert len(frontend.streams) == 2


async def test_the_blocking_client_ends_a_stream_that_is_not_used(frontend, monkeypatch):
    monkeypatch.setattr(schedule_stream, "_WATCH_S", 0.01)
    monkeypatch.setattr(schedule_stream, "_MAX_IDLE_S", 0.0)

    def use():
        with duly.Client(frontend.address) as client:
            client.schedule("mail.send")
            client.schedule("mail.send")
            stream = client._direct._stream
            assert stream._ended.wait(5)
            client.schedule("mail.send")
            return client._direct._stream is not stream

    assert await asyncio.to_thread(use)


async def test_an_interrupted_call_leaves_no_response_for_the_next(frontend, monkeypatch):
    with_client = duly.Client(frontend.address)
    await asyncio.to_thread(with_client.schedule, "mail.send")
    await asyncio.to_thread(with_client.schedule, "mail.send")
    stream = with_client._direct._stream

    class Interrupted:
        def __next__(self):
            raise KeyboardInterrupt

        def cancel(self):
            pass

    monkeypatch.setattr(stream, "_responses", Interrupted())

    def interrupted():
        try:
            with_client.schedule("mail.send")
        except KeyboardInterrupt:
            return True

    assert await asyncio.to_thread(interrupted)
    assert not stream.is_usable
    assert (await asyncio.to_thread(with_client.schedule, "mail.send")).created
    await asyncio.to_thread(with_client.close)


async def test_a_timeout_too_short_for_the_watch_is_kept_by_a_call_of_its_own(frontend):
    frontend.open.clear()

    def use():
        with duly.Client(frontend.address) as client:
            for _ in range(2):
                with pytest.raises(duly.UnavailableError):
                    client.schedule("mail.send", timeout=timedelta(seconds=0.2))

    await asyncio.to_thread(use)
    await until(lambda: len(frontend.requests) >= 2)


async def test_where_no_thread_can_be_started_each_call_goes_out_alone(frontend, monkeypatch):
    def refuse(*_args, **_options):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    def use():
        with duly.Client(frontend.address) as client:
            client.schedule("mail.send")
            monkeypatch.setattr(schedule_stream.threading, "Thread", refuse)
            receipts = [client.schedule("mail.send") for _ in range(2)]
            monkeypatch.undo()
        return receipts

    assert all(receipt.created for receipt in await asyncio.to_thread(use))
    assert not frontend.streams


async def test_the_response_of_another_call_is_not_returned(frontend):
    def use():
        with duly.Client(frontend.address) as client:
            client.schedule("mail.send")
            client.schedule("mail.send")
            stream = client._direct._stream
            stream._calls += 1  # as if the response of an interrupted call were still to come
            responses = stream._responses

            class Late:
                def __next__(self):
                    response = next(responses)
                    response.call -= 1
                    return response

                def cancel(self):
                    responses.cancel()

            stream._responses = Late()
            receipt = client.schedule("mail.send")
            return receipt, stream.is_usable

    receipt, is_usable = await asyncio.to_thread(use)

    assert receipt.created
    assert not is_usable


@pytest.mark.parametrize("code", [grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.INTERNAL])
async def test_a_stream_that_is_refused_leaves_each_call_its_own_status(
    schedule, frontend, monkeypatch, code
):
    async def refuse(_requests, context):
        await context.abort(code, "no streams here")

    monkeypatch.setattr(frontend, "serve_stream", refuse)

    receipts = [await asyncio.wait_for(schedule("mail.send"), 5) for _ in range(3)]

    assert all(receipt.created for receipt in receipts)
