"""The attachments of one attempt: what its payload has, what it keeps, and what its result has. Free of gRPC."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from duly.attachments.attachment import Attachment
from duly.attachments.encoded import Encoded
from duly.attachments.encoding import encode_whole, encode_with, whole_of
from duly.attachments.origin import Origin
from duly.attachments.upload import Upload, upload
from duly.errors import AttachmentsOffError, DulyError, InvalidTaskError, NotSentError, describe
from duly_wire.attachment_rules import MOST_USES
from duly_wire.enums import AttachmentRole
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from duly.attachments.content import Source
    from duly.attachments.service import AttachmentService
    from duly.callbacks.codec import Codec

_INPUT = task_pb2.ATTACHMENT_ROLE_INPUT
_RESULT = task_pb2.ATTACHMENT_ROLE_RESULT


class AttachmentServices(Protocol):
    """Makes calls for tasks that run in this process."""

    def for_task(self, task_id: bytes) -> AttachmentService:
        """Return what makes those for one task."""


class AttemptAttachments:
    """What one attempt does with attachments. Any thread may use it."""

    def __init__(
        self, services: AttachmentServices | None, task_id: str, lambda_name: str, codec: Codec | None
    ) -> None:
        self._services = services
        self._task_id = task_id
        self._lambda_name = lambda_name
        self._codec = codec
        self._origin: Origin | None = None
        self._turn = threading.Lock()
        self.kept: list[task_pb2.AttachmentUse] = []
        """Sent with any outcome."""

    @property
    def origin(self) -> Origin:
        """What reads the attachments of the task."""
        if self._origin is None:
            from uuid import UUID

            service = None if self._services is None else self._services.for_task(UUID(self._task_id).bytes)
            self._origin = Origin(self._task_id, service, self._codec)
        return self._origin

    def attach(self, source: Source, name: str, media_type: str) -> Attachment:
        """Upload, and return what may stand in a result."""
        (sent,) = self.send([Attachment(source, name=name, media_type=media_type)])
        return sent.attachment

    def keep(self, source: Source, name: str, role: AttachmentRole, media_type: str) -> Attachment:
        """Upload, and have it kept with the task."""
        wire_role = task_pb2.AttachmentRole.ValueType(AttachmentRole(role))
        if wire_role in (_INPUT, _RESULT):
            raise InvalidTaskError(
                "role: a callback keeps FILE, STDOUT or STDERR; results are returned", "role"
            )
        with self._turn:
            if len(self.kept) == MOST_USES:
                raise InvalidTaskError(
                    f"an attempt keeps at most {MOST_USES} attachments: pack them into one", "source"
                )
        (sent,) = self.send([Attachment(source, name=name, media_type=media_type)])
        with self._turn:
            self.kept.append(sent.use(wire_role, len(self.kept) + 1))
        return sent.attachment

    def send(self, attachments: Sequence[Attachment]) -> list[Upload]:
        """Upload local attachments."""
        origin = self.origin
        if origin.service is None:
            raise DulyError("this context has no connection, so nothing can be attached")
        uploads = upload(origin.service, self._lambda_name, attachments, self._codec)
        for each in uploads:
            each.attachment.bind(origin)
        return uploads

    def encode_result(self, value: object) -> Encoded:
        """Encode a result that has attachments. Raises NotSentError, EncodingError."""
        return encode_with(value, _RESULT, self._send_result)

    def encode_input(self, payload: object, lambda_name: str) -> Encoded:
        """Encode the payload of another task, which has attachments. Raises InvalidTaskError, EncodingError, and what `attach` raises."""
        if _namespace_of(lambda_name) != _namespace_of(self._lambda_name):
            raise InvalidTaskError(
                f"payload: attachments stay in their namespace, and {lambda_name!r} is in another one than {self._lambda_name!r}: use a "
                "client, with what the attachment's `read` returns",
                "payload",
            )
        return encode_with(payload, _INPUT, self.send)

    def encode_whole_result(self, encoded: Encoded) -> Encoded:
        """Make an attachment of a result that is too large; return it as it is where attachments are off. Raises NotSentError."""
        try:
            return encode_whole(encoded, "result", _RESULT, self._send_result)
        except NotSentError as error:
            if isinstance(error.__cause__, AttachmentsOffError):
                return encoded
            raise

    def _send_result(self, attachments: Sequence[Attachment]) -> list[Upload]:
        try:
            return self.send(attachments)
        except (DulyError, OSError) as error:
            raise NotSentError(f"the result's attachments were not uploaded: {describe(error)}") from error

    def read_whole(self, data: bytes) -> tuple[bytes, task_pb2.Encoding.ValueType]:
        """Return the bytes and the encoding of what is an attachment as a whole. Raises PayloadError, and what `read` raises."""
        attachment, encoding = whole_of(data, self.origin)
        return attachment.read(), encoding


def _namespace_of(lambda_name: str) -> str:
    return lambda_name.partition("@")[0].rpartition("/")[0]
