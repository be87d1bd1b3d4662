"""What a callback may know of the nodes that its own waited for. Free of gRPC."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

from duly.attachments.attachment import MARK
from duly.callbacks.codec import result_of, reveal_if_possible
from duly.callbacks.payload import decode
from duly.errors import ResultOmittedError
from duly_wire.enums import TaskStatus
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from duly.attachments.origin import Origin
    from duly.callbacks.codec import Codec
    from duly_wire.v1 import hsc_pb2


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A node that another one waited for."""

    label: str
    task_id: str
    # How it ended; with any_of it may not have ended. None: its task was removed.
    status: TaskStatus | None
    result_bytes: bytes = field(default=b"", repr=False)
    result_encoding: int = field(default=1, repr=False)
    # True if its result did not come along: those of all were larger than 1 MiB.
    result_omitted: bool = False
    # What reads attachments for the task that waited for it.
    origin: Callable[[], Origin] | None = field(default=None, repr=False, compare=False)

    @property
    def status_name(self) -> str:
        """How it ended, for those who speak JSON; "removed": its task is there no more."""
        return "removed" if self.status is None else self.status.name.lower()

    @property
    def result(self) -> Any:
        """What its callback returned, decoded; None if it did not succeed. Raises ResultOmittedError, DecryptionError."""
        if self.result_omitted:
            raise ResultOmittedError(
                f"the result of {self.label!r} did not come along, for those of all are too large: read it with "
                f"client.get({self.task_id!r}).result"
            )
        data, encoding = self.result_bytes, self.result_encoding
        origin = self.origin() if self.origin is not None and MARK in data else None
        if encoding == task_pb2.ENCODING_ATTACHMENT and origin is not None:
            from duly.attachments.encoding import whole_of

            attachment, encoding = whole_of(data, origin)
            data = attachment.read()
        return decode(data, encoding, origin)


class Predecessors(dict[str, Predecessor]):
    """Predecessors by label, at most 1,000."""

    truncated = False
    """True if there are others: read them with client.get_graph."""

    @classmethod
    def from_proto(
        cls,
        place: hsc_pb2.GraphPlace,
        codec: Codec | None = None,
        origin: Callable[[], Origin] | None = None,
    ) -> Predecessors:
        """Return what a claimed task says, decrypted as far as `codec` can."""
        found = cls(
            (
                before.label,
                Predecessor(
                    before.label,
                    str(UUID(bytes=before.task_id)),
                    TaskStatus(before.status) if before.status else None,
                    *reveal_if_possible(
                        codec, before.result, before.result_encoding, result_of(before.task_id)
                    ),
                    before.result_omitted,
                    origin,
                ),
            )
            for before in place.predecessors
        )
        found.truncated = place.truncated
        return found
