"""Serves calls that come over one stream (HscService.Work, FrontendService.ScheduleStream), each as if it came alone."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn

import grpc
import structlog
from grpc_status import rpc_status

from duly_core.access.current import set_access, stream_admission, stream_refusals
from duly_core.access.item_refusals import collect_item_refusals
from duly_core.errors import DulyError, InvalidRequestError, OverloadedError
from duly_core.rpc.call_load import in_turn
from duly_core.rpc.error_status import status_of
from duly_core.rpc.interceptors import CallObserver
from duly_core.rpc.stubs import Context
from duly_core.traffic.turns import Turns
from duly_wire.v1 import task_pb2

log = structlog.get_logger()

Handler = Callable[[Any, Any], Awaitable[Any]]

_STREAM = "stream"
"""Stands for the method where a request could not be read."""

_WRITTEN_WITHIN = 1.0
"""Seconds that the end of a stream waits for a caller that reads no answers."""

_MOST_CALLS = 1_000
"""On one stream at a time: an Executor has a handful."""


class _AbortedError(Exception):
    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = details


class CallContext:
    """Stands in for gRPC's context: what a call may ask of it."""

    def __init__(self, timeout: timedelta, peer: str) -> None:
        self._ends_at = time.monotonic() + timeout.total_seconds()
        self._peer = peer

    def peer(self) -> str:
        """Return the caller's address."""
        return self._peer

    def time_remaining(self) -> float:
        """Return the seconds until nobody waits for the answer."""
        return max(0.0, self._ends_at - time.monotonic())

    async def abort(self, code: grpc.StatusCode, details: str = "") -> NoReturn:
        """End the call with this status."""
        raise _AbortedError(code, details)


class CallStreams:
    """All streams of a server; `close` ends them, so that a server that stops need not wait for its callers."""

    def __init__(
        self,
        servicer: object,
        methods: Mapping[str, str],
        response: Callable[..., Any],
        timeout: timedelta,
        observe: CallObserver | None,
        most_bytes: int | None = None,
        turns: Turns | None = None,
    ) -> None:
        """Make one.

        Args:
            servicer: has a method for each RPC.
            methods: the RPC that serves a field of the stream's request; its answer goes into the response's field of
                the same name.
            response: makes the stream's response message.
            timeout: how long a call may wait before it is served.
            observe: told of each call that ended.
            most_bytes: how large an answer may be: a larger one would break the whole stream. None, or negative: any.
            turns: of calls of one caller, with those that come alone; None: they take none.
        """
        self._handlers: dict[str, tuple[str, Handler]] = {
            field: (
                method,
                getattr(servicer, method) if turns is None else in_turn(getattr(servicer, method), turns),
            )
            for field, method in methods.items()
        }
        self._response = response
        self._timeout = timeout
        self._observe = observe
        self._most_bytes = None if most_bytes is None or most_bytes < 0 else most_bytes
        self._open: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()
        self._is_closed = False

    async def serve(self, context: Context) -> None:
        """Serve one stream until its caller ends it."""
        if self._is_closed:
            return
        stream = asyncio.current_task()
        running: set[asyncio.Task[None]] = set()
        writing = asyncio.Lock()
        if stream is not None:
            self._open.add(stream)
        try:
            await self._read(context, running, writing)
            if running:  # the caller has said all, and waits for the rest of its answers
                await asyncio.wait(running, timeout=self._timeout.total_seconds())
            await _written(writing)
        except DulyError as error:  # of the read: a request that is refused, as a call made alone is
            refused = status_of(error)
            if self._observe:
                self._observe(_STREAM, _STATUS[refused.code].name, 0)
            await _written(writing)
            await context.abort_with_status(rpc_status.to_status(refused))
        except asyncio.CancelledError:
            if stream is None or stream not in self._ended:
                raise
            # gRPC tells the caller of a cancelled stream nothing until the server has stopped
            await _written(writing)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "this server stops")
        finally:
            if stream is not None:
                self._open.discard(stream)
                self._ended.discard(stream)
            for call in running:
                call.cancel()

    async def _read(self, context: Context, running: set[asyncio.Task[None]], writing: asyncio.Lock) -> None:
        """Start the calls of a stream until its caller has said all."""
        calls: dict[int, asyncio.Task[None]] = {}
        peer = context.peer()
        while (request := await context.read()) is not grpc.aio.EOF:
            field = request.WhichOneof("request")
            if field == "cancel":
                if request.cancel in calls:
                    calls[request.cancel].cancel()
            elif (refusal := _refusal(field, len(running))) is not None:
                # not in a task: who sends without reading the answers is read no further
                await self._answer(self._response(call=request.call, error=refusal), context, writing)
            else:
                call = asyncio.get_running_loop().create_task(
                    self._serve(field, request, context, writing, calls, peer)
                )
                calls[request.call] = call
                running.add(call)
                call.add_done_callback(running.discard)
                call.add_done_callback(partial(_forget, calls, request.call))

    async def _serve(
        self,
        field: str,
        request: Any,
        context: Context,
        writing: asyncio.Lock,
        calls: dict[int, asyncio.Task[None]],
        peer: str,
    ) -> None:
        response = self._response(call=request.call)
        started = time.perf_counter()
        method, handler = self._handlers[field]
        code = "CANCELLED"
        try:
            refusals = None
            if (admit := stream_admission.get()) is not None:
                set_access(await admit(method))
                refusals = collect_item_refusals()
            answer = await handler(getattr(request, field), CallContext(self._timeout, peer))
            if refusals and (record := stream_refusals.get()) is not None:
                await record(method, refusals, grpc.StatusCode.PERMISSION_DENIED.name)
            getattr(response, field).CopyFrom(answer)
            self._check_size(response)
            code = "OK"
        except DulyError as error:
            response.error.CopyFrom(_call_error(error))
            code = _STATUS[response.error.code].name
            if (record := stream_refusals.get()) is not None:
                await record(method, getattr(request, field), code)
        except _AbortedError as error:
            response.error.code, response.error.message = error.code.value[0], error.details
            code = error.code.name
        except Exception:
            # whatever it was: the other calls of the stream go on
            code = "INTERNAL"
            log.exception("call failed unexpectedly", method=method)
            response.error.code = grpc.StatusCode.INTERNAL.value[0]
            response.error.message = "internal error: the server's log says more"
        finally:
            if self._observe:
                self._observe(method, code, time.perf_counter() - started)
        # a write that is cancelled goes on in gRPC, which refuses the next one: a call that is answered cannot be cancelled
        _forget(calls, request.call, asyncio.current_task())
        await self._answer(response, context, writing)

    def _check_size(self, response: Any) -> None:
        if self._most_bytes is not None and (size := response.ByteSize()) > self._most_bytes:
            raise _AbortedError(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"the answer has {size} bytes; rpc.max_message_bytes is {self._most_bytes}",
            )

    @staticmethod
    async def _answer(response: Any, context: Context, writing: asyncio.Lock) -> None:
        async with writing:
            await context.write(response)

    def close(self) -> None:
        """End all streams; one that is opened from now on ends at once."""
        self._is_closed = True
        self._ended |= self._open
        for stream in self._open:
            stream.cancel()


async def _written(writing: asyncio.Lock) -> None:
    """Wait for the write under way, and let no other begin: gRPC takes one at a time, the status of a stream included."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_WRITTEN_WITHIN):
            await writing.acquire()


def _forget(calls: dict[int, asyncio.Task[None]], number: int, ended: asyncio.Task[None] | None) -> None:
    if calls.get(number) is ended:  # and not a newer call, of a caller that uses a number again
        del calls[number]


def _refusal(field: str | None, running: int) -> task_pb2.CallError | None:
    """Return why a call is not served; None: it is."""
    if field is None:
        code, message = grpc.StatusCode.UNIMPLEMENTED, "this call names no method that is known here"
    elif running >= _MOST_CALLS:
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
        message = f"this stream has {_MOST_CALLS} calls under way: wait for one of them"
    else:
        return None
    return task_pb2.CallError(code=code.value[0], message=message)


def _call_error(error: DulyError) -> task_pb2.CallError:
    status = status_of(error)
    field = error.field if isinstance(error, InvalidRequestError) else ""
    call_error = task_pb2.CallError(code=status.code, message=status.message, field=field)
    if isinstance(error, OverloadedError):
        call_error.retry_after.FromTimedelta(error.retry_after)
    return call_error


_STATUS = {status.value[0]: status for status in grpc.StatusCode}
