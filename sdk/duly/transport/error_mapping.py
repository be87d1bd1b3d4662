"""Turns what the Frontend says went wrong into the SDK's errors."""

import enum
from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import any_pb2
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from duly.errors import (
    AttachmentMissingError,
    AttachmentQuotaError,
    CalendarConflictError,
    CalendarInUseError,
    CalendarNotFoundError,
    DulyError,
    GraphNotFoundError,
    InvalidTaskError,
    KeyConflictError,
    LambdaConflictError,
    LambdaInUseError,
    NotADeadLetterError,
    NotPendingError,
    PayloadTooLargeError,
    PermissionDeniedError,
    PoolConflictError,
    QuotaExceededError,
    RequestError,
    ResourceConflictError,
    ResourceInUseError,
    SessionNotBlockedError,
    TaskFinalError,
    TaskNotFoundError,
    TimeTableConflictError,
    TimeTableNotFoundError,
    TokenNotCurrentError,
    TokenTooEarlyError,
    UnauthenticatedError,
    UnavailableError,
    UniqueKeyTakenError,
    UnknownCellError,
    UnknownGateError,
    UnknownLambdaError,
    UnknownObjectiveError,
    UnknownPoolError,
    UnknownResourceError,
    UnknownSettingError,
    WatchLostError,
)
from duly_wire.connection_advice import advice
from duly_wire.retry_info import pause_of
from duly_wire.v1 import task_pb2

_BY_CODE: dict[int, type[DulyError]] = {
    task_pb2.ERROR_CODE_UNKNOWN_LAMBDA: UnknownLambdaError,
    task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE: PayloadTooLargeError,
    task_pb2.ERROR_CODE_KEY_CONFLICT: KeyConflictError,
    task_pb2.ERROR_CODE_NOT_FOUND: TaskNotFoundError,
    task_pb2.ERROR_CODE_ALREADY_FINAL: TaskFinalError,
    task_pb2.ERROR_CODE_NOT_A_DEAD_LETTER: NotADeadLetterError,
    task_pb2.ERROR_CODE_UNKNOWN_SETTING: UnknownSettingError,
    task_pb2.ERROR_CODE_NOT_PENDING: NotPendingError,
    task_pb2.ERROR_CODE_NOT_BLOCKED: SessionNotBlockedError,
    task_pb2.ERROR_CODE_UNKNOWN_TIME_TABLE: TimeTableNotFoundError,
    task_pb2.ERROR_CODE_TIME_TABLE_CONFLICT: TimeTableConflictError,
    task_pb2.ERROR_CODE_UNKNOWN_CALENDAR: CalendarNotFoundError,
    task_pb2.ERROR_CODE_CALENDAR_IN_USE: CalendarInUseError,
    task_pb2.ERROR_CODE_CALENDAR_CONFLICT: CalendarConflictError,
    task_pb2.ERROR_CODE_UNKNOWN_RESOURCE: UnknownResourceError,
    task_pb2.ERROR_CODE_UNKNOWN_GATE: UnknownGateError,
    task_pb2.ERROR_CODE_RESOURCE_IN_USE: ResourceInUseError,
    task_pb2.ERROR_CODE_RESOURCE_CONFLICT: ResourceConflictError,
    task_pb2.ERROR_CODE_UNKNOWN_OBJECTIVE: UnknownObjectiveError,
    task_pb2.ERROR_CODE_UNKNOWN_POOL: UnknownPoolError,
    task_pb2.ERROR_CODE_POOL_CONFLICT: PoolConflictError,
    task_pb2.ERROR_CODE_WATCH_LOST: WatchLostError,
    task_pb2.ERROR_CODE_QUOTA_EXCEEDED: QuotaExceededError,
    task_pb2.ERROR_CODE_PERMISSION_DENIED: PermissionDeniedError,
    task_pb2.ERROR_CODE_LAMBDA_IN_USE: LambdaInUseError,
    task_pb2.ERROR_CODE_LAMBDA_CONFLICT: LambdaConflictError,
    task_pb2.ERROR_CODE_ATTACHMENT_MISSING: AttachmentMissingError,
    task_pb2.ERROR_CODE_ATTACHMENT_QUOTA_EXCEEDED: AttachmentQuotaError,
    task_pb2.ERROR_CODE_TOKEN_NOT_CURRENT: TokenNotCurrentError,
    task_pb2.ERROR_CODE_TOKEN_TOO_EARLY: TokenTooEarlyError,
    task_pb2.ERROR_CODE_UNIQUE_KEY_TAKEN: UniqueKeyTakenError,
    task_pb2.ERROR_CODE_CELL_UNAVAILABLE: UnavailableError,
}

_CODES = {status.value[0]: status for status in grpc.StatusCode}


def from_item(error: task_pb2.ItemError) -> DulyError:
    """Return the error of one item of a request."""
    message = f"{error.field}: {error.message}" if error.field else error.message
    if error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT:
        return InvalidTaskError(message, error.field)
    if error.code == task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE:
        return PayloadTooLargeError(message)
    return _BY_CODE.get(error.code, RequestError)(error.message)


def check(result: Any) -> None:
    """Raise the error of one item's result, if it has one."""
    if result.HasField("error"):
        raise from_item(result.error)


def of_graph(error: task_pb2.ItemError) -> DulyError:
    """Return the error of an answer about a graph."""
    if error.code == task_pb2.ERROR_CODE_NOT_FOUND:
        return GraphNotFoundError(error.message)
    found = from_item(error)
    named = isinstance(found, InvalidTaskError | PayloadTooLargeError)
    return found if named else type(found)(f"{error.field}: {error.message}")


def from_status(error: grpc.aio.AioRpcError, address: str) -> DulyError:
    """Return the error of a whole request; `address` is where it was sent."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.UNAVAILABLE and not is_answer(error):
        remedy = advice(details) or (
            "start one with `duly up`, or say where it is with DULY_ADDRESS, --address or Client(address=...)"
        )
        return UnavailableError(f"no Duly Frontend answers at {address}: {remedy} ({details})")
    if pause_of(error) is not None:
        return _not_serving(address, details)
    if code is grpc.StatusCode.NOT_FOUND and _is_a_cell(error):
        return UnknownCellError(details)
    field = _first_bad_field(error) if code is grpc.StatusCode.INVALID_ARGUMENT else ""
    return _of_answer(code, details, field, address)


def from_call(error: task_pb2.CallError, address: str) -> DulyError:
    """Return the error of a request that went over a stream."""
    if error.HasField("retry_after"):
        return _not_serving(address, error.message)
    return _of_answer(_CODES.get(error.code, grpc.StatusCode.UNKNOWN), error.message, error.field, address)


def _of_answer(code: grpc.StatusCode, details: str, field: str, address: str) -> DulyError:
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        # CANCELLED is gRPC's own: our cancels are no statuses
        cancelled = code is grpc.StatusCode.CANCELLED
        return _not_serving(address, "it has too many calls, or stops (CANCELLED)" if cancelled else details)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return late(address)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        # what names the field already, as Duly's own Frontend does, need not name it twice
        named = not field or details.startswith(f"{field}: ")
        return InvalidTaskError(details if named else f"{field}: {details}", field)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return UnauthenticatedError(details)
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return PermissionDeniedError(details)
    if code is grpc.StatusCode.NOT_FOUND:
        return TaskNotFoundError(details)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return RequestError(
            f"what answers at {address} is not a Duly Frontend, or one older than this SDK: {details}"
        )
    return RequestError(f"the Duly Frontend at {address} answered {code.name}: {details}")


def _not_serving(address: str, details: str) -> UnavailableError:
    """Return the error for a Frontend that is there and says that it cannot serve: its store is away, or it is overloaded."""
    return UnavailableError(f"the Duly Frontend at {address} cannot serve now: {details}")


def is_answer(error: grpc.RpcError) -> bool:
    """Return whether a Duly Frontend gave this status: gRPC's own, of a connection that failed, has no details."""
    return any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata() or ())


class Health(enum.Enum):
    """What a Frontend that was late says of itself."""

    SERVING = (
        "it says that it serves: it may be overloaded, or what was asked takes longer; allow a longer timeout"
    )
    NOT_SERVING = (
        "it says that it cannot serve now: its Postgres does not answer, or it stops (its log says which)"
    )
    SILENT = "nor did it answer a health check: it is stopped or overloaded, or something else listens there"
    UNKNOWN = "see its health and load, or allow a longer timeout"


def late(address: str, health: Health = Health.UNKNOWN) -> UnavailableError:
    """Return the error for a Frontend that did not answer while the caller was ready to wait."""
    return UnavailableError(f"the Duly Frontend at {address} did not answer in time: {health.value}")


def _details(error: grpc.aio.AioRpcError) -> Iterable[any_pb2.Any]:
    try:
        status = rpc_status.from_call(error)
    except ValueError:  # details that contradict the status they came with
        return ()
    return status.details if status is not None else ()


def _is_a_cell(error: grpc.aio.AioRpcError) -> bool:
    """Return whether what was not found is a cell."""
    missing = error_details_pb2.ResourceInfo()
    return any(detail.Unpack(missing) and missing.resource_type == "cell" for detail in _details(error))


def _first_bad_field(error: grpc.aio.AioRpcError) -> str:
    for detail in _details(error):
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad) and bad.field_violations:
            return str(bad.field_violations[0].field)
    return ""
