"""The caller's side of streams of calls (HscService.Work): looks like a stub, and costs each call about half."""

import asyncio
from typing import TYPE_CHECKING, Protocol

import grpc
import structlog
from grpc.aio import AioRpcError
from grpc_status import rpc_status

from duly.v1 import hsc_pb2
from duly_core.errors import InvalidRequestError
from duly_core.rpc.interceptors import status_of
from duly_core.rpc.open_stream import OpenStream, StreamBrokenError, Unwanted

if TYPE_CHECKING:
    from duly.v1.hsc_pb2_grpc import HscServiceAsyncStub

log = structlog.get_logger()

_CODES = {status.value[0]: status for status in grpc.StatusCode}

_MADE_ALONE = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED)
"""After a stream ended with these, each of its calls is made alone, and so gets a status of its own: the next
stream would end as this one did, if a request is too large or streams are not served."""


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
    """Opens a stream with the first call, and anew with the first after it broke.

    Its methods raise what the stub's raise; a call whose stream broke fails with UNAVAILABLE. A call that is not
    answered in time breaks its stream if no other is answered either: the peer may be frozen, and the next stream goes
    to another where there are several. Where streams are not served, calls are made one by one.
    """

    def __init__(self, hsc: "HscServiceAsyncStub", unwanted: Unwanted | None = None) -> None:
        """Make one; `unwanted` takes the answers to calls of ClaimWork that nobody waits for any more."""
        self._hsc = hsc
        self._unwanted = unwanted
        self._stream: OpenStream | None = None
        self._streams_are_served = True
        self._is_closed = False

    async def ClaimWork(  # noqa: N802 (the wire's name)
        self, request: hsc_pb2.ClaimWorkRequest, timeout: float
    ) -> hsc_pb2.ClaimWorkResponse:
        ends_at = asyncio.get_running_loop().time() + timeout
        answer = await self._call(hsc_pb2.WorkRequest(claim_work=request), timeout)
        if answer is not None:
            return answer.claim_work
        alone: hsc_pb2.ClaimWorkResponse = await self._hsc.ClaimWork(request, timeout=_left(ends_at))
        return alone

    async def SetResults(  # noqa: N802
        self, request: hsc_pb2.SetResultsRequest, timeout: float
    ) -> hsc_pb2.SetResultsResponse:
        ends_at = asyncio.get_running_loop().time() + timeout
        answer = await self._call(hsc_pb2.WorkRequest(set_results=request), timeout)
        if answer is not None:
            return answer.set_results
        alone: hsc_pb2.SetResultsResponse = await self._hsc.SetResults(request, timeout=_left(ends_at))
        return alone

    async def Release(  # noqa: N802
        self, request: hsc_pb2.ReleaseRequest, timeout: float
    ) -> hsc_pb2.ReleaseResponse:
        """Make a call of its own: it is rare."""
        response: hsc_pb2.ReleaseResponse = await self._hsc.Release(request, timeout=timeout)
        return response

    async def _call(self, request: hsc_pb2.WorkRequest, timeout: float) -> hsc_pb2.WorkResponse | None:
        """Return the answer; None: this call is to be made alone."""
        if self._is_closed:
            raise _error(grpc.StatusCode.UNAVAILABLE, "the stream was closed")
        if not self._streams_are_served:
            return None
        if self._stream is None or self._stream.is_broken:
            self._stream = OpenStream(self._hsc.Work(), self._unwanted)
        try:
            response = await self._stream.call(request, timeout)
        except TimeoutError as error:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from error
        except StreamBrokenError as error:
            if error.code in _MADE_ALONE:
                self._note_status(error)
                return None
            raise _error(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        if response.WhichOneof("response") == "error":
            raise _status_of_call(response.error)
        return response

    def _note_status(self, error: StreamBrokenError) -> None:
        if error.code is grpc.StatusCode.UNIMPLEMENTED and self._streams_are_served:
            self._streams_are_served = False
            log.warning("the HSC serves no streams of calls; calling it without them", reason=str(error))

    async def close(self) -> None:
        """End the stream; calls that wait for it fail, and so do later ones."""
        self._is_closed = True
        if self._stream is not None:
            await self._stream.close()


def _left(ends_at: float) -> float:
    return max(0.0, ends_at - asyncio.get_running_loop().time())


def _status_of_call(error: hsc_pb2.CallError) -> AioRpcError:
    """Return what the stub would raise, the field at fault with it."""
    trailing = grpc.aio.Metadata()
    if error.field:
        description = error.message.removeprefix(f"{error.field}: ")
        status = rpc_status.to_status(status_of(InvalidRequestError(error.field, description)))
        trailing = grpc.aio.Metadata(*status.trailing_metadata)
    return _error(_CODES.get(error.code, grpc.StatusCode.UNKNOWN), error.message, trailing)


def _error(code: grpc.StatusCode, details: str, trailing: grpc.aio.Metadata | None = None) -> AioRpcError:
    return AioRpcError(code, grpc.aio.Metadata(), trailing or grpc.aio.Metadata(), details=details)
