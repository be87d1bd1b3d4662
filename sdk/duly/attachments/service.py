"""The calls of AttachmentService, as uploads and fetches make them: blocking, from any thread, and repeated by whoever brings them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from duly.errors import (
    AttachmentMissingError,
    AttachmentQuotaError,
    AttachmentsOffError,
    DulyError,
    InvalidTaskError,
    PermissionDeniedError,
    QuotaExceededError,
    RequestError,
    TaskNotFoundError,
    UnavailableError,
    UnknownLambdaError,
)
from duly_wire.v1 import attachments_pb2, task_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.message import Message

Response = TypeVar("Response", bound="Message")


@dataclass(frozen=True, slots=True)
class Method(Generic[Response]):
    """One RPC."""

    name: str
    response: type[Response]


BEGIN = Method("BeginUploads", attachments_pb2.BeginUploadsResponse)
UPLOAD = Method("UploadParts", attachments_pb2.UploadPartsResponse)
"""Its request is serialized: see `upload_request`."""
FINISH = Method("FinishUploads", attachments_pb2.FinishUploadsResponse)
FETCH = Method("FetchParts", attachments_pb2.FetchPartsResponse)


def upload_request(lambda_name: str, parts: Iterable[tuple[bytes, int, bytes]]) -> bytes:
    """Return a serialized UploadPartsRequest with these hashes, indexes and data.

    By hand: a message of 4 MiB that is made and serialized costs five times the CPU of this one copy.
    """
    request = attachments_pb2.UploadPartsRequest()
    setattr(request, "lambda", lambda_name)
    pieces = [request.SerializeToString()]
    for part_hash, index, data in parts:
        head = attachments_pb2.AttachmentPart(hash=part_hash, index=index).SerializeToString()
        data_head = _DATA_TAG + _varint(len(data))
        pieces += [_PARTS_TAG, _varint(len(head) + len(data_head) + len(data)), head, data_head, data]
    return b"".join(pieces)


def _tag(field: Any) -> bytes:
    return _varint(field.number << 3 | 2)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_PARTS_TAG = _tag(attachments_pb2.UploadPartsRequest.DESCRIPTOR.fields_by_name["parts"])
_DATA_TAG = _tag(attachments_pb2.AttachmentPart.DESCRIPTOR.fields_by_name["data"])


def serialized(request: Any) -> bytes:
    """Return the bytes of a request."""
    data: bytes = request if isinstance(request, bytes) else request.SerializeToString()
    return data


class AttachmentService(Protocol):
    """Brings requests to a Frontend."""

    calls_at_a_time: int

    def call(self, method: Method[Response], request: Any) -> Response:
        """Return the answer.

        Raises UnavailableError when it is not answered in time, AttachmentsOffError, and the SDK's error for any other status.
        """

    def check(self) -> None:
        """Raise if the caller is to stop."""


_BY_CODE: dict[int, type[DulyError]] = {
    task_pb2.ERROR_CODE_ATTACHMENT_MISSING: AttachmentMissingError,
    task_pb2.ERROR_CODE_ATTACHMENT_QUOTA_EXCEEDED: AttachmentQuotaError,
    task_pb2.ERROR_CODE_QUOTA_EXCEEDED: QuotaExceededError,
    task_pb2.ERROR_CODE_NOT_FOUND: TaskNotFoundError,
    task_pb2.ERROR_CODE_PERMISSION_DENIED: PermissionDeniedError,
    task_pb2.ERROR_CODE_UNKNOWN_LAMBDA: UnknownLambdaError,
    task_pb2.ERROR_CODE_INVALID_ARGUMENT: InvalidTaskError,
}


def error_of(error: task_pb2.ItemError) -> DulyError:
    """Return the SDK's error of one item."""
    message = f"{error.field}: {error.message}" if error.field else error.message
    return _BY_CODE.get(error.code, RequestError)(message)


_INVALID_ARGUMENT, _NOT_FOUND, _PERMISSION_DENIED, _FAILED_PRECONDITION, _UNIMPLEMENTED = 3, 5, 7, 9, 12
_RETRIED = (1, 4, 14)
"""CANCELLED, DEADLINE_EXCEEDED, UNAVAILABLE."""


def is_retried(error: task_pb2.CallError) -> bool:
    """Tell whether the same call may succeed soon."""
    return error.code in _RETRIED or error.HasField("retry_after")


def error_of_status(error: task_pb2.CallError) -> DulyError:
    """Return the SDK's error of a call that was refused, where gRPC's own errors are not at hand."""
    if is_retried(error):
        return UnavailableError(f"no Frontend served the call in time: {error.message}")
    kinds: dict[int, type[DulyError]] = {
        _INVALID_ARGUMENT: InvalidTaskError,
        _NOT_FOUND: TaskNotFoundError,
        _PERMISSION_DENIED: PermissionDeniedError,
        _FAILED_PRECONDITION: AttachmentsOffError,
        _UNIMPLEMENTED: AttachmentsOffError,
    }
    return kinds.get(error.code, RequestError)(error.message)


def check_item(result: Any) -> None:
    """Raise the error of one item of an answer, if it has one."""
    if result.HasField("error"):
        raise error_of(result.error)
