"""Uploads local attachments: says what it has, and sends the parts that are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from duly.attachments.attachment import Attachment, TransferProgress
from duly.attachments.in_parallel import in_parallel
from duly.attachments.measuring import Measured, measure
from duly.attachments.sealing import MEDIA_TYPE
from duly.attachments.service import (
    BEGIN,
    FINISH,
    UPLOAD,
    AttachmentService,
    check_item,
    error_of,
    upload_request,
)
from duly.errors import AttachmentMissingError
from duly_wire.attachment_rules import PART_BYTES
from duly_wire.v1 import attachments_pb2, task_pb2

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec

_MOST_PARTS_A_CALL = 100
_MOST_PARTS_TO_BEGIN = 10_000
_MOST_TO_BEGIN = 100
_ROUNDS = 4
"""What is begun and vanishes before its end, as after a restore of the server, is begun again so often."""


class Upload:
    """A stored attachment, and what a task says of it."""

    __slots__ = ("attachment", "stored_bytes")

    def __init__(self, attachment: Attachment, stored_bytes: int) -> None:
        self.attachment = attachment
        self.stored_bytes = stored_bytes

    def use(self, role: task_pb2.AttachmentRole.ValueType, number: int) -> task_pb2.AttachmentUse:
        """Return what is told of it; if it is encrypted, nothing that only the key's holders may know."""
        attachment = self.attachment
        name, media_type = attachment.name, attachment.media_type
        if attachment.encrypted:
            name, media_type = f"encrypted-{number}", MEDIA_TYPE
        return task_pb2.AttachmentUse(
            hash=bytes.fromhex(attachment.hash),
            size_bytes=self.stored_bytes,
            name=name,
            media_type=media_type,
            role=role,
        )


def upload(
    service: AttachmentService, lambda_name: str, attachments: Sequence[Attachment], codec: Codec | None
) -> list[Upload]:
    """Store local attachments where tasks of the lambda find them, and return them, in order.

    Blocks. Raises AttachmentChangedError, AttachmentQuotaError, AttachmentsOffError, UnavailableError, OSError, ValueError.
    """
    with ExitStack() as opened:
        measured = []
        for attachment in attachments:
            assert attachment.content is not None  # noqa: S101 (only local ones come here)
            reader = opened.enter_context(attachment.content.opened())
            told = _Told(attachment, "hash", reader.size)
            measured.append(measure(reader, attachment.name, codec, service.check, told.more))
        for some in _divided(measured):
            _send_all(
                service,
                lambda_name,
                some,
                dict(zip((each.hash for each in measured), attachments, strict=True)),
            )
    return [
        Upload(
            Attachment.stored(
                hash_hex=each.hash.hex(),
                size_bytes=each.plain_bytes,
                name=attachment.name,
                media_type=attachment.media_type,
                encrypted=codec is not None,
                origin=None,
                stored_bytes=each.size_bytes,
            ),
            each.size_bytes,
        )
        for attachment, each in zip(attachments, measured, strict=True)
    ]


def _divided(measured: Iterable[Measured]) -> Iterator[dict[bytes, Measured]]:
    """Yield as many as one call begins, each content once."""
    some: dict[bytes, Measured] = {}
    parts = 0
    for each in {each.hash: each for each in measured}.values():
        if some and (len(some) == _MOST_TO_BEGIN or parts + len(each.part_hashes) > _MOST_PARTS_TO_BEGIN):
            yield some
            some, parts = {}, 0
        some[each.hash] = each
        parts += len(each.part_hashes)
    if some:
        yield some


def _send_all(
    service: AttachmentService,
    lambda_name: str,
    left: dict[bytes, Measured],
    attachments: dict[bytes, Attachment],
) -> None:
    told = {key: _Told(attachments[key], "upload", each.size_bytes) for key, each in left.items()}
    for _ in range(_ROUNDS):
        missing = _begin(service, lambda_name, left)
        left = {key: left[key] for key in missing}
        for key, each in told.items():
            unsent = sum(len_of(left[key], index) for index in missing[key]) if key in left else 0
            each.reached(each.total - unsent)
        _send_parts(service, lambda_name, left, missing, told)
        if left:
            left = _finish(service, lambda_name, left)
        if not left:
            return
    raise AttachmentMissingError(
        f"{attachments[next(iter(left))].name}: the server lost the upload before it was complete, {_ROUNDS} times"
    )


def len_of(measured: Measured, index: int) -> int:
    """Return the size of a part as it is stored."""
    return min(PART_BYTES, measured.size_bytes - index * PART_BYTES)


def _begin(
    service: AttachmentService, lambda_name: str, measured: dict[bytes, Measured]
) -> dict[bytes, list[int]]:
    """Return the missing parts of those that are not stored."""
    request = attachments_pb2.BeginUploadsRequest(
        uploads=[
            attachments_pb2.AttachmentUpload(
                hash=key, size_bytes=each.size_bytes, part_hashes=b"".join(each.part_hashes)
            )
            for key, each in measured.items()
        ]
    )
    setattr(request, "lambda", lambda_name)
    missing = {}
    for key, result in zip(measured, service.call(BEGIN, request).results, strict=True):
        check_item(result)
        if not result.stored:
            count = len(measured[key].part_hashes)
            missing[key] = [index for index in dict.fromkeys(result.missing_parts) if 0 <= index < count]
    return missing


def _send_parts(
    service: AttachmentService,
    lambda_name: str,
    measured: dict[bytes, Measured],
    missing: dict[bytes, list[int]],
    told: dict[bytes, _Told],
) -> None:
    def send(places: list[tuple[bytes, int]]) -> None:
        request = upload_request(
            lambda_name, ((key, index, measured[key].part(index)) for key, index in places)
        )
        for result in service.call(UPLOAD, request).results:
            # one that the server does not know any more is begun again
            if result.HasField("error") and result.error.code != task_pb2.ERROR_CODE_ATTACHMENT_MISSING:
                raise error_of(result.error)

    calls = _grouped(measured, missing)
    for places, _ in in_parallel(send, calls, service.calls_at_a_time, service.check):
        for key, index in places:
            told[key].more(len_of(measured[key], index))


def _grouped(
    measured: dict[bytes, Measured], missing: dict[bytes, list[int]]
) -> list[list[tuple[bytes, int]]]:
    """Return the parts of each call: a whole part, or several small ones that are no larger together."""
    calls: list[list[tuple[bytes, int]]] = []
    size = PART_BYTES
    for key, indexes in missing.items():
        for index in indexes:
            more = len_of(measured[key], index)
            if not calls or size + more > PART_BYTES or len(calls[-1]) == _MOST_PARTS_A_CALL:
                calls.append([])
                size = 0
            calls[-1].append((key, index))
            size += more
    return calls


def _finish(
    service: AttachmentService, lambda_name: str, measured: dict[bytes, Measured]
) -> dict[bytes, Measured]:
    """Return those that are not complete after all."""
    request = attachments_pb2.FinishUploadsRequest(hashes=measured)
    setattr(request, "lambda", lambda_name)
    left = {}
    for key, result in zip(measured, service.call(FINISH, request).results, strict=True):
        if result.missing_parts or result.error.code == task_pb2.ERROR_CODE_ATTACHMENT_MISSING:
            left[key] = measured[key]
        else:
            check_item(result)
    return left


class _Told:
    """What the progress function of an attachment was told."""

    def __init__(self, attachment: Attachment, phase: str, total: int) -> None:
        self._progress: Callable[[TransferProgress], object] | None = attachment.progress
        self._name = attachment.name
        self._phase = phase
        self.total = total
        self._done = 0

    def more(self, count: int) -> None:
        self.reached(min(self.total, self._done + count))

    def reached(self, done: int) -> None:
        self._done = done
        if self._progress is not None:
            self._progress(TransferProgress(self._phase, self._name, done, self.total))  # type: ignore[arg-type]
