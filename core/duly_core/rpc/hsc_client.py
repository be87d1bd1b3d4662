"""The calls of HscService.Work: looks like a stub to the Executor, and costs each call about half."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from duly_wire.call_stream import CallStream
from duly_wire.v1 import hsc_pb2

if TYPE_CHECKING:
    from duly_wire.v1.hsc_pb2_grpc import HscServiceAsyncStub


class HscCallStream:
    """Its methods raise what the stub's raise; where streams are not served, calls are made one by one."""

    def __init__(
        self,
        hsc: "HscServiceAsyncStub",
        unwanted: Callable[[hsc_pb2.ClaimWorkResponse], None] | None = None,
        max_stream_age: timedelta | None = None,
    ) -> None:
        """Make one.

        Args:
            hsc: the HSC, or several behind one channel.
            unwanted: takes the answers to calls of ClaimWork that nobody waits for any more.
            max_stream_age: after this the next call may go to another HSC. None: after a stream broke only.
        """
        self._hsc = hsc

        def pass_on(response: Any) -> None:
            if unwanted is not None and response.claim_work.tasks:
                unwanted(response.claim_work)

        self._calls = CallStream(hsc.Work, hsc_pb2.WorkRequest, pass_on, max_stream_age)

    async def ClaimWork(  # noqa: N802 (the wire's name)
        self, request: hsc_pb2.ClaimWorkRequest, timeout: float
    ) -> hsc_pb2.ClaimWorkResponse:
        response: hsc_pb2.ClaimWorkResponse = await self._calls.call(
            "claim_work", request, self._hsc.ClaimWork, timeout
        )
        return response

    async def SetResults(  # noqa: N802
        self, request: hsc_pb2.SetResultsRequest, timeout: float
    ) -> hsc_pb2.SetResultsResponse:
        response: hsc_pb2.SetResultsResponse = await self._calls.call(
            "set_results", request, self._hsc.SetResults, timeout
        )
        return response

    async def Release(  # noqa: N802
        self, request: hsc_pb2.ReleaseRequest, timeout: float
    ) -> hsc_pb2.ReleaseResponse:
        """Make a call of its own: it is rare."""
        response: hsc_pb2.ReleaseResponse = await self._hsc.Release(request, timeout=timeout)
        return response

    async def close(self) -> None:
        """End the stream; calls that wait for it fail, and so do later ones."""
        await self._calls.close()
