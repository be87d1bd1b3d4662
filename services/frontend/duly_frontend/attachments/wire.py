"""From the store's uses to the wire's."""

from collections.abc import Sequence

from duly_core.attachments.rules import AttachmentUse
from duly_wire.v1 import task_pb2


def uses_to_wire(uses: Sequence[AttachmentUse]) -> list[task_pb2.AttachmentUse]:
    """Return what a task uses, as the wire says it."""
    return [
        task_pb2.AttachmentUse(
            hash=use.hash,
            size_bytes=use.size_bytes,
            name=use.name,
            media_type=use.media_type,
            role=task_pb2.AttachmentRole.ValueType(use.role),
        )
        for use in uses
    ]
