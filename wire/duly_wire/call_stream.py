"""The caller's side of streams of calls: a call over one costs about half of a call that is made alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from datetime import timedelta
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc.aio import AioRpcError, Metadata
from grpc_status import rpc_status

from duly_wire.open_stream import OpenStream, StreamBrokenError, Unwanted
from duly_wire.retry_info import overloaded
from duly_wire.v1 import task_pb2

log = logging.getLogger("duly")

_UNAVAILABLE = grpc.StatusCode.UNAVAILABLE.value[0]
_UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED.value[0]
_CODES = {status.value[0]: status for status in grpc.StatusCode}

MADE_ALONE = frozenset({grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.RESOURCE_EXHAUSTED})
"""After a stream ended with these, each of its calls is made alone, and so gets a status of its own: the next
stream would end as this one did, if a request is too large or streams are not served."""


class CallStream:
    """Opens a stream with the first call, and anew with the first after it broke.

    A call raises what a stub's method raises; a call whose stream broke fails with UNAVAILABLE. A call that is not
    answered in time breaks its stream if no other is answered either: the peer may be frozen, and the next stream goes
    to another where there are several.
    """

    def __init__(
        self,
        open_stream: Callable[[], Any],
        new_request: Callable[..., Any],
        unwanted: Unwanted | None = None,
        max_age: timedelta | None = None,
        made_alone: Collection[grpc.StatusCode] = MADE_ALONE,
    ) -> None:
        """Make one.

        Args:
            open_stream: the stub's method; where there are several servers, it chooses one.
            new_request: makes an empty request of the stream.
            unwanted: takes the responses that nobody waits for any more.
            max_age: of a stream; the next one may go to another server. None: any.
            made_alone: the statuses of a stream after which its calls are made alone, though they may have been served.
        """
        self._open_stream = open_stream
        self._new_request = new_request
        self._unwanted = unwanted
        self._max_age_s = float("inf") if max_age is None else max_age.total_seconds()
        self._made_alone = made_alone
        self._stream: OpenStream | None = None
        self._opened_at = 0.0
        self._streams_are_served = True
        self._is_closed = False

    async def call(
        self, field: str, request: Any, alone: Callable[..., Awaitable[Any]], timeout: float
    ) -> Any:
        """Return the response to a request, which goes into this field of the stream's request.

        `alone`, a method of the stub, makes a call that streams cannot carry. `timeout` is in seconds, for both ways.
        """
        ends_at = time.monotonic() + timeout
        carried = self._new_request(**{field: request})
        before = self._stream
        response = await self._over_stream(carried, timeout)
        if before and response is not None and _failed_with(response, _UNAUTHENTICATED):
            # nothing was done: the stream shows the token of its beginning, another one shows that of now
            if self._stream is before:
                self._opened_at = float("-inf")
            response = await self._over_stream(carried, max(0.0, ends_at - time.monotonic()))
        if response is not None:
            if response.WhichOneof("response") == "error":
                raise _error_of_call(response.error)
            return getattr(response, field)
        return await alone(request, timeout=max(0.0, ends_at - time.monotonic()))

    async def _over_stream(self, request: Any, timeout: float) -> Any:
        """Return the stream's response; None: streams cannot carry this call."""
        if self._is_closed:
            raise _error(grpc.StatusCode.UNAVAILABLE, "the stream was closed")
        if not self._streams_are_served:
            return None
        stream = await self._usable()
        try:
            response = await stream.call(request, timeout)
        except TimeoutError as error:
            raise _error(grpc.StatusCode.DEADLINE_EXCEEDED, str(error)) from error
        except StreamBrokenError as error:
            if error.code in self._made_alone:
                self._note_status(error)
                return None
            raise _error(grpc.StatusCode.UNAVAILABLE, str(error)) from error
        finally:
            if stream is not self._stream and stream.is_idle:
                await stream.close()
        if _failed_with(response, _UNAVAILABLE) and stream.has_others:
            stream.note_failure()
            if stream is self._stream:
                self._opened_at = float("-inf")  # the next call goes to another server
        return response

    async def _usable(self) -> OpenStream:
        before, now = self._stream, time.monotonic()
        if before is not None and not before.is_broken and now - self._opened_at < self._max_age_s:
            return before
        stream = self._stream = OpenStream(self._open_stream(), self._new_request, self._unwanted)
        self._opened_at = now
        if before is not None and before.is_idle:  # otherwise the last of its calls closes it
            await before.close()
        return stream

    def _note_status(self, error: StreamBrokenError) -> None:
        if error.code is grpc.StatusCode.UNIMPLEMENTED and self._streams_are_served:
            self._streams_are_served = False
            log.info("no streams of calls are served; making each call alone: %s", error)

    async def close(self) -> None:
        """End the stream; calls that wait for it fail, and so do later ones."""
        self._is_closed = True
        if self._stream is not None:
            await self._stream.close()


def _failed_with(response: Any, code: int) -> bool:
    return bool(response.WhichOneof("response") == "error" and response.error.code == code)


def _error_of_call(error: task_pb2.CallError) -> AioRpcError:
    """Return what the stub would raise, the field at fault with it."""
    details = []
    if error.field:
        description = error.message.removeprefix(f"{error.field}: ")
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=description)
        packed = any_pb2.Any()
        packed.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        details = [packed]
    if error.HasField("retry_after"):
        details = [*overloaded(error.message, error.retry_after).details]
    status = status_pb2.Status(code=error.code, message=error.message, details=details)
    trailing = rpc_status.to_status(status).trailing_metadata
    return _error(_CODES.get(error.code, grpc.StatusCode.UNKNOWN), error.message, Metadata(*trailing))


def _error(code: grpc.StatusCode, details: str, trailing: Metadata | None = None) -> AioRpcError:
    return AioRpcError(code, Metadata(), trailing or Metadata(), details=details)
