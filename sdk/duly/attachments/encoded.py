"""A value as it is sent, with the attachments that it uses."""

from __future__ import annotations

from dataclasses import dataclass, field

from duly_wire.v1 import task_pb2


@dataclass(slots=True)
class Encoded:
    """A value as it is sent, and the attachments that it uses."""

    data: bytes
    encoding: task_pb2.Encoding.ValueType
    uses: list[task_pb2.AttachmentUse] = field(default_factory=list)

    def serialized_uses(self) -> bytes:
        """Return them as a NewTask has them."""
        return task_pb2.AttachmentUses(uses=self.uses).SerializeToString()
