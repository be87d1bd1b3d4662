"""Calls over one stream (HscService.Work), between two real ends: a call's trouble is its own, and a stream's no call's."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from duly_core.errors import InvalidRequestError
from duly_core.rpc.call_streams import CallStreams
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.rpc.stubs import hsc_stub
from duly_wire.v1 import hsc_pb2, hsc_pb2_grpc
from tests.fixtures.scripted_hsc import DEADLINE, WORK_METHODS
from tests.fixtures.waiting import until

SOON = 0.5
"""The timeout of calls that are to have no answer in time."""
LONG = DEADLINE.total_seconds()
MEBIBYTE = 1024 * 1024
MOST_BYTES = 2 * MEBIBYTE
POLL = hsc_pb2.ClaimWorkRequest()


class Hsc(hsc_pb2_grpc.HscServiceServicer):
    """Answers results at once, and polls when `due` is set; a test changes what it likes."""

    def __init__(self) -> None:
        self.due = asyncio.Event()
        self.polled = 0
        self.cancelled = 0
        self.streams = CallStreams(
            self, WORK_METHODS, hsc_pb2.WorkResponse, timedelta(seconds=10), None, MOST_BYTES
        )
        self.work: Callable[[Any], Any] = self.streams.serve
        self.set_results: Callable[[Any], Any] = self._applied
        self.opened = 0

    async def ClaimWork(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        self.polled += 1
        try:
            await self.due.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return hsc_pb2.ClaimWorkResponse(tasks=[hsc_pb2.ClaimedTask(attempt=1)])

    async def SetResults(self, request: Any, _context: Any) -> Any:  # noqa: N802
        return await self.set_results(request)

    async def Work(self, _requests: Any, context: Any) -> None:  # noqa: N802
        self.opened += 1
        await self.work(context)

    async def _applied(self, request: Any) -> Any:
        verdicts = [hsc_pb2.RESULT_VERDICT_APPLIED] * len(request.results)
        return hsc_pb2.SetResultsResponse(verdicts=verdicts)


@asynccontextmanager
async def stub_of(hsc: hsc_pb2_grpc.HscServiceServicer) -> AsyncIterator[Any]:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", MOST_BYTES)])
    hsc_pb2_grpc.add_HscServiceServicer_to_server(hsc, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield hsc_stub(channel)
    finally:
        await server.stop(None)


@asynccontextmanager
async def calls_of(hsc: hsc_pb2_grpc.HscServiceServicer) -> AsyncIterator[HscCallStream]:
    async with stub_of(hsc) as stub:
        calls = HscCallStream(stub)
        try:
            yield calls
        finally:
            await calls.close()


@pytest.fixture(autouse=True)
def _no_exception_is_left_alone(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail if asyncio logs an exception that nobody retrieved."""
    with caplog.at_level(logging.ERROR, logger="asyncio"):
        yield
        assert not [each.message for each in caplog.records if each.name == "asyncio"]


def results(size: int = 0, count: int = 1) -> hsc_pb2.SetResultsRequest:
    return hsc_pb2.SetResultsRequest(results=[hsc_pb2.TaskResult(result=bytes(size))] * count)


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asyncio.wait_for(call, LONG)
    return refused.value


def code_of(call: "asyncio.Future[Any]") -> grpc.StatusCode:
    error = call.exception()
    assert isinstance(error, grpc.aio.AioRpcError)
    return error.code()


# ---- the caller's side ---------------------------------------------------------------------------------------


async def test_calls_whose_write_is_stuck_end_in_time_and_the_next_go_through() -> None:
    hsc, thawed = Hsc(), asyncio.Event()

    async def frozen(_context: Any) -> None:
        await thawed.wait()

    hsc.work = frozen
    async with calls_of(hsc) as calls:
        big = results(MEBIBYTE)  # more than a stream takes that nobody reads
        stuck = [asyncio.ensure_future(calls.SetResults(big, SOON)) for _ in range(4)]
        poll = asyncio.ensure_future(calls.ClaimWork(POLL, LONG))
        await asyncio.wait_for(asyncio.wait([*stuck, poll]), LONG / 2)

        assert {code_of(call) for call in (*stuck, poll)} <= {
            grpc.StatusCode.DEADLINE_EXCEEDED,
            grpc.StatusCode.UNAVAILABLE,
        }
        hsc.work = hsc.streams.serve
        assert (await calls.SetResults(results(), LONG)).verdicts == [hsc_pb2.RESULT_VERDICT_APPLIED]
        thawed.set()


async def test_calls_to_a_host_that_takes_connections_and_says_nothing_end_in_time(
    silent_server: str,
) -> None:
    async with grpc.aio.insecure_channel(silent_server) as channel:
        calls = HscCallStream(hsc_stub(channel))
        for _ in range(2):
            error = await refusal(calls.SetResults(results(MEBIBYTE), SOON))
            assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await calls.close()


@pytest.mark.parametrize(
    "status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN, grpc.StatusCode.INVALID_ARGUMENT]
)
async def test_the_status_of_a_stream_is_not_that_of_its_calls(status: grpc.StatusCode) -> None:
    hsc = Hsc()

    async def broken(context: Any) -> None:
        await context.read()
        await context.abort(status, "the proxy is tired")

    hsc.work = broken
    async with calls_of(hsc) as calls:
        error = await refusal(calls.SetResults(results(), LONG))

    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert f"{status.name}: the proxy is tired" in (error.details() or "")


async def test_where_streams_are_not_served_calls_are_made_one_by_one_and_the_log_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hsc = Hsc()
    hsc.due.set()

    async def unknown(context: Any) -> None:
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")

    hsc.work = unknown
    caplog.set_level(logging.INFO, logger="duly")
    async with calls_of(hsc) as calls:
        for _ in range(3):
            assert len((await calls.SetResults(results(), LONG)).verdicts) == 1
            assert len((await calls.ClaimWork(POLL, LONG)).tasks) == 1

    assert hsc.opened == 1
    assert sum("no streams of calls are served" in each.message for each in caplog.records) == 1


async def test_a_request_too_large_for_the_hsc_is_refused_and_its_neighbours_are_not() -> None:
    hsc = Hsc()
    async with calls_of(hsc) as calls:
        large = asyncio.ensure_future(calls.SetResults(results(MOST_BYTES), LONG))
        small = asyncio.ensure_future(calls.SetResults(results(), LONG))

        error = await refusal(large)

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len((await small).verdicts) == 1


async def test_a_late_call_fails_alone_while_others_are_answered() -> None:
    hsc, came, never = Hsc(), asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        if len(request.results) > 1:
            came.set()
            await never.wait()
        return hsc_pb2.SetResultsResponse()

    hsc.set_results = slow
    async with calls_of(hsc) as calls:
        poll = asyncio.ensure_future(calls.ClaimWork(POLL, LONG))
        late = asyncio.ensure_future(calls.SetResults(results(count=2), SOON))
        await came.wait()
        await calls.SetResults(results(), LONG)

        assert (await refusal(late)).code() is grpc.StatusCode.DEADLINE_EXCEEDED
        hsc.due.set()
        assert len((await poll).tasks) == 1
    assert hsc.opened == 1


async def test_a_call_that_is_cancelled_is_cancelled_at_the_hsc() -> None:
    hsc = Hsc()
    async with calls_of(hsc) as calls:
        poll = asyncio.ensure_future(calls.ClaimWork(POLL, LONG))
        await until(lambda: hsc.polled)
        poll.cancel()

        await until(lambda: hsc.cancelled)

        assert len((await calls.SetResults(results(), LONG)).verdicts) == 1
    assert hsc.opened == 1


async def test_a_refused_call_names_the_field_at_fault_as_one_made_alone_does() -> None:
    hsc = Hsc()

    async def refuse(_request: Any) -> Any:
        raise InvalidRequestError("results[0].outcome", "must be set")

    hsc.set_results = refuse
    async with calls_of(hsc) as calls:
        error = await refusal(calls.SetResults(results(), LONG))

    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details() == "results[0].outcome: must be set"
    status = rpc_status.from_call(error)
    bad = error_details_pb2.BadRequest()
    assert status is not None
    assert status.details[0].Unpack(bad)
    assert bad.field_violations[0].field == "results[0].outcome"


async def test_after_close_no_call_opens_a_stream() -> None:
    hsc = Hsc()
    async with calls_of(hsc) as calls:
        await calls.SetResults(results(), LONG)
        await calls.close()

        assert (await refusal(calls.SetResults(results(), LONG))).code() is grpc.StatusCode.UNAVAILABLE
    assert hsc.opened == 1


# ---- the server's side ---------------------------------------------------------------------------------------


def poll(number: int) -> hsc_pb2.WorkRequest:
    return hsc_pb2.WorkRequest(call=number, claim_work=POLL)


async def read(stream: Any) -> Any:
    return await asyncio.wait_for(stream.read(), LONG)


async def test_a_call_of_a_method_that_is_not_known_is_answered() -> None:
    async with stub_of(Hsc()) as stub:
        stream = stub.Work()
        await stream.write(hsc_pb2.WorkRequest(call=7))

        answer = await read(stream)

        assert (answer.call, answer.error.code) == (7, grpc.StatusCode.UNIMPLEMENTED.value[0])


async def test_a_call_beyond_the_most_of_one_stream_is_answered() -> None:
    async with stub_of(Hsc()) as stub:
        stream = stub.Work()
        for number in range(1, 1_002):
            await stream.write(poll(number))

        answer = await read(stream)

        assert (answer.call, answer.error.code) == (1_001, grpc.StatusCode.RESOURCE_EXHAUSTED.value[0])


async def test_a_number_that_is_used_again_names_the_newer_call() -> None:
    hsc, came, free = Hsc(), asyncio.Event(), asyncio.Event()

    async def when_free(_request: Any) -> Any:
        came.set()
        await free.wait()
        return hsc_pb2.SetResultsResponse()

    hsc.set_results = when_free
    async with stub_of(hsc) as stub:
        stream = stub.Work()
        await stream.write(hsc_pb2.WorkRequest(call=1, set_results=results()))
        await came.wait()
        await stream.write(poll(1))
        await until(lambda: hsc.polled)
        free.set()
        assert (await read(stream)).HasField("set_results")

        await stream.write(hsc_pb2.WorkRequest(call=2, cancel=1))

        await until(lambda: hsc.cancelled)


async def test_an_answer_that_is_too_large_fails_its_call_only() -> None:
    hsc = Hsc()

    async def much(_request: Any) -> Any:
        return hsc_pb2.SetResultsResponse(verdicts=[hsc_pb2.RESULT_VERDICT_APPLIED] * (MOST_BYTES + 1))

    hsc.set_results = much
    async with calls_of(hsc) as calls:
        poll = asyncio.ensure_future(calls.ClaimWork(POLL, LONG))
        error = await refusal(calls.SetResults(results(), LONG))
        hsc.due.set()

        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert len((await poll).tasks) == 1
    assert hsc.opened == 1


async def test_a_stream_that_is_opened_after_the_end_ends_at_once() -> None:
    hsc = Hsc()
    hsc.streams.close()
    async with stub_of(hsc) as stub:
        assert await read(stub.Work()) is grpc.aio.EOF


async def test_a_caller_that_has_said_all_gets_the_rest_of_its_answers() -> None:
    hsc = Hsc()
    async with stub_of(hsc) as stub:
        stream = stub.Work()
        await stream.write(poll(1))
        await stream.done_writing()
        await until(lambda: hsc.polled)
        hsc.due.set()

        assert (await read(stream)).call == 1
        assert await read(stream) is grpc.aio.EOF
    assert hsc.cancelled == 0


async def test_a_request_that_is_refused_as_it_is_read_ends_the_stream_with_its_status() -> None:
    hsc = Hsc()

    class Refusing:
        def peer(self) -> str:
            return "ipv4:127.0.0.1:1"

        async def read(self) -> Any:
            raise InvalidRequestError("request", "has too many fields")

        async def abort_with_status(self, status: Any) -> None:
            self.status = status

    context = Refusing()
    await hsc.streams.serve(context)  # type: ignore[arg-type]

    assert context.status.code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_call_that_is_cancelled_while_its_answer_is_written_breaks_no_other() -> None:
    hsc = Hsc()

    async def much(request: Any) -> Any:
        verdicts = [hsc_pb2.RESULT_VERDICT_APPLIED] * (MEBIBYTE if len(request.results) > 1 else 1)
        return hsc_pb2.SetResultsResponse(verdicts=verdicts)

    hsc.set_results = much
    async with stub_of(hsc) as stub:
        stream = stub.Work()
        for number in range(1, 5):
            await stream.write(hsc_pb2.WorkRequest(call=number, set_results=results(count=2)))
        for number in range(1, 5):
            await stream.write(hsc_pb2.WorkRequest(call=4 + number, cancel=number))
        await stream.write(hsc_pb2.WorkRequest(call=9, set_results=results()))

        answered = [(await read(stream)).call for _ in range(5)]

    assert sorted(answered) == [1, 2, 3, 4, 9]
