"""What a task uses, as people and programs list it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.attachments.attachment import Attachment
from duly.attachments.origin import Origin
from duly.attachments.sealing import MEDIA_TYPE
from duly_wire.attachment_rules import name_problem
from duly_wire.enums import AttachmentRole

if TYPE_CHECKING:
    from duly_wire.v1 import task_pb2


@dataclass(frozen=True, slots=True)
class AttachmentUse:
    """An attachment of a task, and what it is to it."""

    role: AttachmentRole
    attachment: Attachment
    # Of what is stored: an encrypted one is larger than its content.
    stored_bytes: int

    @classmethod
    def from_proto(cls, use: task_pb2.AttachmentUse, task_id: str) -> AttachmentUse:
        """Return the view of a use as it came over the wire."""
        encrypted = use.media_type == MEDIA_TYPE
        attachment = Attachment.stored(
            hash_hex=use.hash.hex(),
            size_bytes=-1 if encrypted else use.size_bytes,
            name="data" if name_problem(use.name) else use.name,
            media_type=use.media_type,
            encrypted=encrypted,
            origin=Origin(task_id),
            stored_bytes=use.size_bytes,
        )
        return cls(AttachmentRole(use.role or AttachmentRole.INPUT), attachment, use.size_bytes)
