"""What an error of ours is on the wire."""

from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2

from duly_core.errors import (
    BlobsUnavailableError,
    DulyError,
    InvalidRequestError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    QueueUnavailableError,
    StoreUnavailableError,
    TooMuchError,
    UnauthenticatedError,
)
from duly_wire.retry_info import overloaded
from duly_wire.time_conversion import to_duration

_CODES: tuple[tuple[type[DulyError] | tuple[type[DulyError], ...], int], ...] = (
    ((StoreUnavailableError, QueueUnavailableError, BlobsUnavailableError), code_pb2.UNAVAILABLE),
    (NotFoundError, code_pb2.NOT_FOUND),
    (TooMuchError, code_pb2.RESOURCE_EXHAUSTED),
    (UnauthenticatedError, code_pb2.UNAUTHENTICATED),
    (PermissionDeniedError, code_pb2.PERMISSION_DENIED),
)


def status_of(error: DulyError) -> status_pb2.Status:
    """Return the status, with the field at fault in its details."""
    if isinstance(error, InvalidRequestError):
        violation = error_details_pb2.BadRequest.FieldViolation(field=error.field, description=error.message)
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        return status_pb2.Status(code=code_pb2.INVALID_ARGUMENT, message=str(error), details=[detail])
    if isinstance(error, OverloadedError):
        return overloaded(str(error), to_duration(error.retry_after))
    if isinstance(error, NotFoundError) and error.resource_type:
        detail = any_pb2.Any()
        detail.Pack(error_details_pb2.ResourceInfo(resource_type=error.resource_type, description=str(error)))
        return status_pb2.Status(code=code_pb2.NOT_FOUND, message=str(error), details=[detail])
    code = next((code for kinds, code in _CODES if isinstance(error, kinds)), code_pb2.FAILED_PRECONDITION)
    return status_pb2.Status(code=code, message=str(error))


def code_of(error: DulyError) -> str:
    """Return the name of the status's code."""
    return str(code_pb2.Code.Name(status_of(error).code))
