"""Fetches the parts of a stored attachment, and checks each on its arrival."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.attachments.in_parallel import in_parallel
from duly.attachments.sealing import plain_part_count, unseal
from duly.attachments.service import FETCH, AttachmentService, check_item
from duly.errors import AttachmentCorruptError, AttachmentMissingError, TaskNotFoundError
from duly_wire.attachment_rules import HASH_BYTES, PART_BYTES, divided, hash_of, part_count, part_size
from duly_wire.v1 import attachments_pb2

if TYPE_CHECKING:
    from duly.attachments.attachment import Attachment
    from duly.callbacks.codec import Codec


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored attachment that a task uses: its size and the hashes of its parts, which its own hash vouches for."""

    service: AttachmentService
    task_id: str
    attachment: Attachment
    hash: bytes
    size_bytes: int
    part_hashes: list[bytes]

    @classmethod
    def find(cls, service: AttachmentService, task_id: str, attachment: Attachment) -> Stored:
        """Ask for its parts' hashes. Raises AttachmentMissingError, AttachmentCorruptError, TaskNotFoundError, UnavailableError."""
        wanted = bytes.fromhex(attachment.hash)
        if wanted == hash_of([]):
            return cls(service, task_id, attachment, wanted, 0, [])
        answer = _ask(service, task_id, attachment.name, wanted, [])
        part_hashes = divided(answer.part_hashes)
        told = len(part_hashes) == part_count(answer.size_bytes) and len(answer.part_hashes) % HASH_BYTES == 0
        if not told or hash_of(part_hashes) != wanted:
            raise AttachmentCorruptError(
                f"attachment {attachment.name!r}: the server told other parts than its hash says"
            )
        if not attachment.encrypted and answer.size_bytes != attachment.size_bytes:
            raise AttachmentCorruptError(
                f"attachment {attachment.name!r} has {answer.size_bytes:,} bytes, not {attachment.size_bytes:,} as the task says"
            )
        if attachment.encrypted and len(part_hashes) != plain_part_count(attachment.size_bytes):
            raise AttachmentCorruptError(
                f"attachment {attachment.name!r} has another size than the task says"
            )
        return cls(service, task_id, attachment, wanted, answer.size_bytes, part_hashes)

    def part(self, index: int) -> bytes:
        """Return a part as it is stored. Raises AttachmentCorruptError for other bytes."""
        answer = _ask(self.service, self.task_id, self.attachment.name, self.hash, [index])
        data = answer.parts[0].data if len(answer.parts) == 1 and answer.parts[0].index == index else b""
        if not self.is_right(index, data):
            raise AttachmentCorruptError(
                f"attachment {self.attachment.name!r}: part {index} of {len(self.part_hashes)} is not what its hash says"
            )
        return data

    def is_right(self, index: int, data: bytes) -> bool:
        """Tell whether these bytes are this part."""
        return (
            len(data) == part_size(self.size_bytes, index)
            and hashlib.sha256(data).digest() == self.part_hashes[index]
        )

    def parts(self, indexes: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        """Yield these parts as they come."""
        return in_parallel(self.part, indexes, self.service.calls_at_a_time, self.service.check)

    def plain(self, codec: Codec | None, index: int, data: bytes) -> bytes:
        """Return the content of a part. Raises DecryptionError."""
        if not self.attachment.encrypted:
            return data
        from duly.callbacks.codec import not_decrypted

        if codec is None:
            raise not_decrypted(data[4:])
        return unseal(codec, data, index, is_last=index == len(self.part_hashes) - 1)

    def check_plain_size(self, size_bytes: int) -> None:
        """Raise AttachmentCorruptError if the decrypted content has another size than the task says."""
        if size_bytes != self.attachment.size_bytes:
            raise AttachmentCorruptError(
                f"attachment {self.attachment.name!r} has {size_bytes:,} bytes, not {self.attachment.size_bytes:,} as the task says"
            )


def read_all(service: AttachmentService, task_id: str, attachment: Attachment, codec: Codec | None) -> bytes:
    """Return the whole content."""
    if not attachment.encrypted and 0 < attachment.size_bytes <= PART_BYTES:
        return _only_part(service, task_id, attachment)
    stored = Stored.find(service, task_id, attachment)
    parts = dict.fromkeys(range(len(stored.part_hashes)), b"")
    for index, data in stored.parts(parts):
        parts[index] = stored.plain(codec, index, data)
    content = b"".join(parts.values())
    stored.check_plain_size(len(content))
    return content


def _only_part(service: AttachmentService, task_id: str, attachment: Attachment) -> bytes:
    """Return the content in one call: the hash of an attachment with one part is that of the part."""
    wanted = bytes.fromhex(attachment.hash)
    stored = Stored(service, task_id, attachment, wanted, attachment.size_bytes, [wanted])
    service.check()
    return stored.part(0)


def _ask(
    service: AttachmentService, task_id: str, name: str, wanted: bytes, indexes: list[int]
) -> attachments_pb2.FetchPartsResponse:
    request = attachments_pb2.FetchPartsRequest(task_id=task_id, hash=wanted, indexes=indexes)
    answer = service.call(FETCH, request)
    try:
        check_item(answer)
    except TaskNotFoundError as error:
        raise AttachmentMissingError(f"attachment {name!r} cannot be read: {error}") from error
    except AttachmentMissingError as error:
        raise AttachmentMissingError(f"attachment {name!r}: {error}") from error
    return answer
