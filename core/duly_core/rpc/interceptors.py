"""What every call of a server passes through: it is timed, and errors become statuses with details."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Protocol

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2
from grpc_status import rpc_status

from duly_core.access.audit_entries import AuditLog, outcome_of
from duly_core.access.item_refusals import collect_item_refusals
from duly_core.errors import DulyError, InvalidRequestError
from duly_core.rpc.authentication import Admitter
from duly_core.rpc.call_audit import CallAudit
from duly_core.rpc.call_load import CallLoad, note_caller, reading
from duly_core.rpc.error_status import status_of
from duly_core.rpc.requests.decode_errors import explain
from duly_core.rpc.requests.field_count import SMALL, check_field_count
from duly_core.rpc.slow_requests import HalfSentRequests

log = structlog.get_logger()

Handler = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


_SMALL = 64 * 1024
"""Bytes of a refused request that is read: it must cost those that are served nothing."""


class CallObserver(Protocol):
    """Told of every call that ended: method, status code's name, seconds."""

    def __call__(self, method: str, code: str, seconds: float) -> None: ...


class ServerInterceptor(grpc.aio.ServerInterceptor):
    """The one place where exceptions meet the wire. Payloads and exception texts of ours never cross it."""

    def __init__(
        self,
        observe: CallObserver | None = None,
        *,
        counts_fields: bool = True,
        admitter: Admitter | None = None,
        audit_log: AuditLog | None = None,
        half_sent: HalfSentRequests | None = None,
        load: CallLoad | None = None,
    ) -> None:
        """Make one.

        Args:
            observe: told of each call that ended.
            counts_fields: refuse requests with very many fields before they are read.
            admitter: asks each caller who it is; None: nobody is asked.
            audit_log: keeps who changed what, and who was refused; None: nothing is kept.
            half_sent: ends calls whose requests do not arrive; None: they are waited for.
            load: bounds what one caller has at a time; None: nothing does.
        """
        self._half_sent = half_sent
        self._load = load
        self._audit_log = audit_log
        self._observe = observe
        self._admitter = admitter
        self._counts_fields = counts_fields
        self._wrapped: dict[Any, Any] = {}
        """By what serves the call: a server has one handler a method, and is asked for it at each call."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        path = handler_call_details.method
        if handler is None:
            return None
        if handler.unary_unary is None and handler.stream_stream is None:
            # nobody is admitted to a kind of call that no guarded service has; everybody may call health's Watch
            if self._admitter is not None and not self._admitter.is_open(path):
                return None
            if handler.unary_stream is None:
                return handler
        wrapped = self._wrapped.get(handler)
        if wrapped is None:
            wrapped = self._wrapped[handler] = self._wrap_handler(handler, path)
        return wrapped

    def _wrap_handler(self, handler: Any, path: str) -> Any:
        if handler.stream_stream is not None:
            admitter = self._admitter
            return grpc.stream_stream_rpc_method_handler(
                handler.stream_stream
                if admitter is None
                else admitter.wrap_stream(handler.stream_stream, path, self._audit_log),
                request_deserializer=self._reader(handler.request_deserializer),
                response_serializer=handler.response_serializer,
            )
        method = path.rpartition("/")[2]
        if handler.unary_stream is not None:
            return self._wrap_to_many(handler, method)
        call = self._wrap(handler.unary_unary, handler.request_deserializer, method, path)
        half_sent = self._half_sent
        if half_sent is not None:
            # the wire is the same, and a call whose request is still to be read can be ended
            async def read_and_call(_requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
                return await call(await half_sent.read(context), context)

            return grpc.stream_unary_rpc_method_handler(
                read_and_call, request_deserializer=None, response_serializer=handler.response_serializer
            )
        return grpc.unary_unary_rpc_method_handler(
            call,
            # the request is read by `call`: gRPC would answer UNKNOWN, which clients take for transient
            request_deserializer=None,
            response_serializer=handler.response_serializer,
        )

    def _wrap_to_many(self, handler: Any, method: str) -> Any:
        """Wrap what answers one request many times."""
        read = self._reader(handler.request_deserializer)
        serve = handler.unary_stream
        yields = inspect.isasyncgenfunction(serve)

        async def call(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            try:
                request = read(data)
                if not yields:
                    await serve(request, context)
                    return
                async with aclosing(serve(request, context)) as answers:
                    async for answer in answers:
                        await context.write(answer)
            except DulyError as error:
                await context.abort_with_status(rpc_status.to_status(status_of(error)))
            except (grpc.aio.AbortError, grpc.RpcError):
                raise
            except Exception:
                log.exception("call failed unexpectedly", method=method)
                await context.abort(grpc.StatusCode.INTERNAL, "internal error: the server's log says more")

        half_sent = self._half_sent
        if half_sent is not None:

            async def read_and_call(_requests: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
                await call(await half_sent.read(context), context)

            return grpc.stream_stream_rpc_method_handler(
                read_and_call, request_deserializer=None, response_serializer=handler.response_serializer
            )
        return grpc.unary_stream_rpc_method_handler(
            call, request_deserializer=None, response_serializer=handler.response_serializer
        )

    def _reader(self, read: Callable[[bytes], Message]) -> Callable[[bytes], Message]:
        """Return what reads a request: it raises InvalidRequestError for one that is refused."""
        message = _message_of(read) if self._counts_fields else None

        def checked(data: bytes) -> Message:
            if message is not None:
                check_field_count(data, message)
            return _read(data, read)

        return checked

    def _reader_of_large(
        self, load: CallLoad, read: Callable[[bytes], Message]
    ) -> Callable[[bytes, grpc.aio.ServicerContext[Any, Any]], Awaitable[Message]]:
        """Return what reads a large request when it is its caller's turn."""
        message = _message_of(read) if self._counts_fields else None

        async def read_large(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Message:
            caller = note_caller(context.peer)
            load.large.check(caller)
            return await load.large.run(caller, reading(data, partial(_read, read=read), message))

        return read_large

    def _wrap(
        self, behavior: Handler, deserialize: Callable[[bytes], Message], method: str, path: str
    ) -> Handler:
        read = self._reader(deserialize)
        load = self._load
        read_large = None if load is None else self._reader_of_large(load, deserialize)
        if load is not None:
            behavior = load.wrap(behavior, method)
        admitter = self._admitter
        asks = admitter if admitter is not None and not admitter.is_open(path) else None
        audit = None if self._audit_log is None else CallAudit(self._audit_log, path)

        async def call(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            started = time.perf_counter()
            code = "CANCELLED"
            request: Message | None = None
            try:
                try:
                    if asks is not None:
                        await asks.admit(path, context)
                    request = (
                        read(data)
                        if read_large is None or len(data) <= SMALL
                        else await read_large(data, context)
                    )
                    data = b""
                    refusals = None if asks is None else collect_item_refusals()
                    response = await behavior(request, context)
                    if refusals and audit is not None:
                        await audit.record_items(context, refusals)
                    if audit is not None and audit.keeps_all(request):
                        await audit.record(context, request, response, outcome_of(request, response))
                except DulyError as error:
                    refusal = status_of(error)
                    # its frames and it hold each other, and the request: an outage would pile up thousands of them
                    error.__traceback__ = None
                except (grpc.aio.AbortError, grpc.RpcError):
                    code = "ABORTED"
                    raise
                except asyncio.CancelledError:
                    # the caller hung up: what it asked for may have been done
                    if audit is not None and audit.keeps_all(request):
                        audit.record_apart(context, request, "CANCELLED")
                    raise
                except Exception:
                    # whatever it was: gRPC would tell the caller its text, which may have a payload
                    code = "INTERNAL"
                    log.exception("call failed unexpectedly", method=method)
                    if audit is not None and audit.keeps_all(request):
                        await audit.record_refusal(context, request, code)
                    await context.abort(
                        grpc.StatusCode.INTERNAL, "internal error: the server's log says more"
                    )
                else:
                    code = "OK"
                    return response
                code = grpc.StatusCode[code_pb2.Code.Name(refusal.code)].name
                if audit is not None and audit.keeps(code, request) and not _is_too_much(request, code):
                    if asks and request is None and code == "PERMISSION_DENIED" and audit.has_room:
                        # refused by its method alone; log and refusal are to say what a known caller was after
                        request = _read_if_small(data, read)
                        refusal = asks.naming(path, request, refusal)
                    await audit.record_refusal(context, request, code)
                request = None
                await context.abort_with_status(rpc_status.to_status(refusal))
            finally:
                if self._observe:
                    self._observe(method, code, time.perf_counter() - started)

        return call


def _is_too_much(request: Message | None, code: str) -> bool:
    """Whether a call was refused before it was read, for want of a budget: that is counted, and changed nothing."""
    return request is None and code == "RESOURCE_EXHAUSTED"


def _read(data: bytes, read: Callable[[bytes], Message]) -> Message:
    try:
        return read(data)
    except DecodeError as error:
        raise InvalidRequestError(*explain(data, _message_of(read))) from error


def _read_if_small(data: bytes, read: Callable[[bytes], Message]) -> Message | None:
    """Read a request for the log; None: it is large or invalid."""
    try:
        return read(data) if len(data) <= _SMALL else None
    except InvalidRequestError:
        return None


def _message_of(read: Callable[[bytes], Message]) -> Any:
    """Return the descriptor of what a bound FromString reads; None: it is something else."""
    return getattr(getattr(read, "__self__", None), "DESCRIPTOR", None)
