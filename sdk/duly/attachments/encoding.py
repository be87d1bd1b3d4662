"""Encodes values that have attachments, and those that are too large for a payload or a result."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from duly.attachments.attachment import KEY, Attachment, encoded_by, form_of, from_form
from duly.attachments.encoded import Encoded
from duly.attachments.upload import Upload
from duly.callbacks.payload import encode
from duly.errors import EncodingError, PayloadError, PayloadTooLargeError
from duly_wire.attachment_rules import MOST_USES
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from duly.attachments.origin import Origin

LARGEST_WHOLE = 64 * 1024 * 1024
"""Bytes of a payload or a result that goes to an attachment as a whole: who reads it has it in memory."""

Send: TypeAlias = Callable[[Sequence[Attachment]], Sequence[Upload]]
"""Uploads local attachments."""

_ENCODINGS = {"json": task_pb2.ENCODING_JSON, "raw": task_pb2.ENCODING_RAW}
_WHOLE_NAMES = {task_pb2.ENCODING_JSON: "json", task_pb2.ENCODING_RAW: "raw"}


def encode_with(value: Any, role: task_pb2.AttachmentRole.ValueType, send: Send) -> Encoded:
    """Encode a value that may have attachments; `send` uploads those that are local.

    Raises EncodingError, and what `send` raises.
    """
    sent: dict[Attachment, Upload] = {}
    missing, _ = _forms(value, sent)
    if missing:
        sent = dict(zip(missing, send(missing), strict=True))
    left, encoded = _forms(value, sent)
    if left:
        raise EncodingError(
            f"attachment {left[0].name!r} is made anew each time the value is encoded: make it once, before"
        )
    data, encoding, used = encoded
    uses = [each.use(role, number) for number, each in enumerate(used.values(), 1)]
    if len(uses) > MOST_USES:
        raise EncodingError(f"the value has {len(uses)} attachments: at most {MOST_USES} go with one")
    return Encoded(data, encoding, uses)


_Used: TypeAlias = "dict[tuple[str, str, str], Upload]"


def _forms(
    value: Any, sent: dict[Attachment, Upload]
) -> tuple[list[Attachment], tuple[bytes, task_pb2.Encoding.ValueType, _Used]]:
    """Encode once; return the attachments that are still to be sent, and what there is without them."""
    missing: dict[Attachment, None] = {}
    used: _Used = {}

    def form(attachment: Attachment) -> dict[str, Any] | None:
        if attachment.content is None:
            if min(attachment.stored_bytes, attachment.size_bytes) < 0:
                raise EncodingError(
                    f"attachment {attachment.name!r} does not say how many bytes are stored of it: read it, and make one anew"
                )
            upload = Upload(attachment, attachment.stored_bytes)
        elif attachment in sent:
            upload = sent[attachment]
        else:
            missing[attachment] = None
            return None
        stored = upload.attachment
        used.setdefault((stored.hash, stored.name, stored.media_type), upload)
        return form_of(stored)

    with encoded_by(form):  # type: ignore[arg-type]  # what is missing is not sent so
        data, encoding = encode(value)
    return [*missing], (data, encoding, used)


def encode_whole(encoded: Encoded, name: str, role: task_pb2.AttachmentRole.ValueType, send: Send) -> Encoded:
    """Send what is encoded as an attachment of its own; return what stands for it. `encoded` is neither encrypted nor such a one.

    Raises PayloadTooLargeError, EncodingError, and what `send` raises.
    """
    if len(encoded.data) > LARGEST_WHOLE:
        raise PayloadTooLargeError(
            f"the {name} has {len(encoded.data):,} bytes, and at most {LARGEST_WHOLE:,} go as an attachment: make a duly.Attachment of "
            "what is large in it"
        )
    (upload,) = send([Attachment(encoded.data, name=name)])
    form = form_of(upload.attachment)
    form[KEY]["content"] = _WHOLE_NAMES[encoded.encoding]
    uses = [*encoded.uses, upload.use(role, len(encoded.uses) + 1)]
    if len(uses) > MOST_USES:
        raise EncodingError(f"a value of this size has at most {MOST_USES - 1} attachments")
    data = json.dumps(form, separators=(",", ":")).encode()
    return Encoded(data, task_pb2.ENCODING_ATTACHMENT, uses)


def whole_of(data: bytes, origin: Origin | None) -> tuple[Attachment, task_pb2.Encoding.ValueType]:
    """Return the attachment that is a payload or a result, and how its content is to be read. Raises PayloadError."""
    try:
        said = json.loads(data)[KEY]
        encoding = _ENCODINGS[said.get("content", "json")]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise PayloadError("is in an attachment, and does not say in which") from None
    attachment = from_form(said, origin)
    if attachment.size_bytes > LARGEST_WHOLE:
        raise PayloadError(
            f"is in an attachment of {attachment.size_bytes:,} bytes: at most {LARGEST_WHOLE:,} are read into memory"
        )
    return attachment, encoding
