"""The caller's side of a stream of calls (HscService.Work): looks like a stub, and costs each call about half."""

import asyncio
import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import structlog
from grpc.aio import AioRpcError

from duly.v1 import hsc_pb2

if TYPE_CHECKING:
    from duly.v1.hsc_pb2_grpc import HscServiceAsyncStub

log = structlog.get_logger()

_CODES = {status.value[0]: status for status in grpc.StatusCode}


class HscCalls(Protocol):
    """What Executors ask of the HSC, heartbeats aside: the stub, or a stream of calls."""

    async def ClaimWork(  # noqa: N802 (the wire's name)
        self, request: hsc_pb2.ClaimWorkRequest, timeout: float
    ) -> hsc_pb2.ClaimWorkResponse: ...

    async def SetResults(  # noqa: N802
        self, request: hsc_pb2.SetResultsRequest, timeout: float
    ) -> hsc_pb2.SetResultsResponse: ...

    async def Release(  # noqa: N802
        self, request: hsc_pb2.ReleaseRequest, timeout: float
    ) -> hsc_pb2.ReleaseResponse: ...


class CallStream:
    """Opens the stream with the first call, and anew with the first after it broke.

    Its methods raise what the stub's raise. A call that is not answered in time breaks the stream: its peer may be
    frozen, and the next stream goes to another where there are several.
    """

    def __init__(
        self, hsc: "HscServiceAsyncStub", unwanted: Callable[[hsc_pb2.ClaimWorkResponse], None] | None = None
    ) -> None:
        """Make one; `unwanted` takes the answers to calls of ClaimWork that nobody waits for any more."""
        self._hsc = hsc
        self._unwanted = unwanted
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[hsc_pb2.WorkResponse]] = {}
        self._stream: Any = None
        self._reading: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()

    async def ClaimWork(  # noqa: N802 (the wire's name)
        self, request: hsc_pb2.ClaimWorkRequest, timeout: float
    ) -> hsc_pb2.ClaimWorkResponse:
        return (await self._call(hsc_pb2.WorkRequest(claim_work=request), timeout)).claim_work

    async def SetResults(  # noqa: N802
        self, request: hsc_pb2.SetResultsRequest, timeout: float
    ) -> hsc_pb2.SetResultsResponse:
        return (await self._call(hsc_pb2.WorkRequest(set_results=request), timeout)).set_results

    async def Release(  # noqa: N802
        self, request: hsc_pb2.ReleaseRequest, timeout: float
    ) -> hsc_pb2.ReleaseResponse:
        """Make a call of its own: it is rare."""
        response: hsc_pb2.ReleaseResponse = await self._hsc.Release(request, timeout=timeout)
        return response

    async def _call(self, request: hsc_pb2.WorkRequest, timeout: float) -> hsc_pb2.WorkResponse:
        loop = asyncio.get_running_loop()
        number = request.call = next(self._numbers)
        answer: asyncio.Future[hsc_pb2.WorkResponse] = loop.create_future()
        self._waiting[number] = answer
        timer = loop.call_later(timeout, self._late, answer)
        try:
            await self._write(request)
            response = await answer
        except asyncio.CancelledError:
            self._forget(number)
            raise
        finally:
            timer.cancel()
            self._waiting.pop(number, None)
        if response.WhichOneof("response") == "error":
            code = _CODES.get(response.error.code, grpc.StatusCode.UNKNOWN)
            raise _error(code, response.error.message)
        return response

    async def _write(self, request: hsc_pb2.WorkRequest) -> None:
        async with self._writing:
            if self._stream is None:
                self._stream = self._hsc.Work()
                self._reading = asyncio.get_running_loop().create_task(self._read(self._stream))
            stream = self._stream
            try:
                await stream.write(request)
            except (AioRpcError, asyncio.InvalidStateError) as error:
                self._break(stream, error)
                raise _as_rpc_error(error) from error

    async def _read(self, stream: Any) -> None:
        error: BaseException
        try:
            while (response := await stream.read()) is not grpc.aio.EOF:
                self._take(response)
            error = _error(grpc.StatusCode.UNAVAILABLE, "the HSC ended the stream")
        except AioRpcError as failure:
            error = failure
        except asyncio.CancelledError:
            error = _error(grpc.StatusCode.CANCELLED, "the stream was closed")
        except Exception as failure:
            log.exception("a stream of calls failed unexpectedly")
            error = failure
        self._break(stream, error)

    def _take(self, response: hsc_pb2.WorkResponse) -> None:
        answer = self._waiting.get(response.call)
        if answer is not None and not answer.done():
            answer.set_result(response)
        elif self._unwanted is not None and response.claim_work.tasks:
            self._unwanted(response.claim_work)

    def _late(self, answer: "asyncio.Future[hsc_pb2.WorkResponse]") -> None:
        if not answer.done():
            answer.set_exception(_error(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in time"))
            if self._stream is not None:
                self._break(
                    self._stream, _error(grpc.StatusCode.UNAVAILABLE, "another call had no answer in time")
                )

    def _break(self, stream: Any, error: BaseException) -> None:
        """End a stream, and the calls that wait for it, unless another is open by now."""
        if stream is not self._stream:
            return
        self._stream = None
        stream.cancel()
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(_as_rpc_error(error))

    def _forget(self, number: int) -> None:
        """Tell the HSC that nobody waits for this call any more."""
        if self._stream is not None and not self._writing.locked():
            cancelling = asyncio.get_running_loop().create_task(self._cancel(number))
            cancelling.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _cancel(self, number: int) -> None:
        if self._stream is not None:
            async with self._writing:
                await self._stream.write(hsc_pb2.WorkRequest(call=next(self._numbers), cancel=number))

    async def close(self) -> None:
        """End the stream; calls that wait for it fail."""
        if self._stream is not None:
            self._break(self._stream, _error(grpc.StatusCode.CANCELLED, "the stream was closed"))
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)


def _as_rpc_error(error: BaseException) -> AioRpcError:
    if isinstance(error, AioRpcError):
        return error
    return _error(grpc.StatusCode.UNAVAILABLE, f"the stream broke: {error}")


def _error(code: grpc.StatusCode, details: str) -> AioRpcError:
    return AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)
