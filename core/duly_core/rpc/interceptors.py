"""What every call of a server passes through: it is timed, and errors become statuses with details."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import grpc
import structlog
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from duly.retry_info import overloaded
from duly.time_conversion import to_duration
from duly_core.errors import (
    DulyError,
    InvalidRequestError,
    OverloadedError,
    QueueUnavailableError,
    StoreUnavailableError,
    TooMuchError,
)
from duly_core.rpc.decode_errors import explain
from duly_core.rpc.field_count import check_field_count

log = structlog.get_logger()

Handler = Callable[[Any, grpc.aio.ServicerContext[Any, Any]], Awaitable[Any]]


class CallObserver(Protocol):
    """Told of every call that ended: method, status code's name, seconds."""

    def __call__(self, method: str, code: str, seconds: float) -> None: ...


class ServerInterceptor(grpc.aio.ServerInterceptor):
    """The one place where exceptions meet the wire. Payloads and exception texts of ours never cross it."""

    def __init__(self, observe: CallObserver | None = None, *, counts_fields: bool = True) -> None:
        """Make one; with `counts_fields` requests with very many fields are refused before they are read."""
        self._observe = observe
        self._counts_fields = counts_fields
        self._wrapped: dict[Any, Any] = {}
        """By what serves the call: a server has one handler a method, and is asked for it at each call."""

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or (handler.unary_unary is None and handler.stream_stream is None):
            return handler
        wrapped = self._wrapped.get(handler)
        if wrapped is None:
            wrapped = self._wrapped[handler] = self._wrap_handler(handler, handler_call_details.method)
        return wrapped

    def _wrap_handler(self, handler: Any, path: str) -> Any:
        if handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(
                handler.stream_stream,
                request_deserializer=self._reader(handler.request_deserializer),
                response_serializer=handler.response_serializer,
            )
        method = path.rpartition("/")[2]
        return grpc.unary_unary_rpc_method_handler(
            self._wrap(handler.unary_unary, handler.request_deserializer, method),
            # the request is read by `call`: gRPC would answer UNKNOWN, which clients take for transient
            request_deserializer=None,
            response_serializer=handler.response_serializer,
        )

    def _reader(self, read: Callable[[bytes], Message]) -> Callable[[bytes], Message]:
        """Return what reads a request: raises InvalidRequestError for one that is refused."""
        message = _message_of(read) if self._counts_fields else None

        def checked(data: bytes) -> Message:
            if message is not None:
                check_field_count(data, message)
            return _read(data, read)

        return checked

    def _wrap(self, behavior: Handler, deserialize: Callable[[bytes], Message], method: str) -> Handler:
        read = self._reader(deserialize)

        async def call(data: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            started = time.perf_counter()
            code = "CANCELLED"
            request: Message | None = None
            try:
                try:
                    request = read(data)
                    del data
                    response = await behavior(request, context)
                except DulyError as error:
                    refusal = status_of(error)
                    # its frames and it hold each other, and the request: an outage would pile up thousands of them
                    error.__traceback__ = None
                except (grpc.aio.AbortError, grpc.RpcError):
                    code = "ABORTED"
                    raise
                except Exception:
                    code = "INTERNAL"
                    log.exception("call failed unexpectedly", method=method)
                    await context.abort(
                        grpc.StatusCode.INTERNAL, "internal error: the server's log says more"
                    )
                else:
                    code = "OK"
                    return response
                request = None
                code = grpc.StatusCode[code_pb2.Code.Name(refusal.code)].name
                await context.abort_with_status(rpc_status.to_status(refusal))
            finally:
                if self._observe:
                    self._observe(method, code, time.perf_counter() - started)

        return call


def _read(data: bytes, read: Callable[[bytes], Message]) -> Message:
    try:
        return read(data)
    except DecodeError as error:
        raise InvalidRequestError(*explain(data, _message_of(read))) from error


def _message_of(read: Callable[[bytes], Message]) -> Any:
    """Return the descriptor of what a bound FromString reads; None: it is something else."""
    return getattr(getattr(read, "__self__", None), "DESCRIPTOR", None)


def status_of(error: DulyError) -> status_pb2.Status:
    """Return what an error of ours is on the wire."""
    if isinstance(error, InvalidRequestError):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.message)
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        return status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=str(error), details=[detail])
    if isinstance(error, StoreUnavailableError | QueueUnavailableError):
        return status_pb2.Status(code=code_pb2.UNAVAILABLE, message=str(error))
    if isinstance(error, OverloadedError):
        return overloaded(str(error), to_duration(error.retry_after))
    if isinstance(error, TooMuchError):
        return status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, message=str(error))
    return status_pb2.Status(code=code_pb2.FAILED_PRECONDITION, message=str(error))
