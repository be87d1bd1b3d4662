"""What attachments are: hashes, parts, and how tasks use them. Pure."""

import enum
import hashlib
import json
import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

PART_BYTES = 4 * 1024 * 1024
"""Of each part but the last one."""
HASH_BYTES = 32
"""Of SHA-256."""
MOST_USES = 100
"""Of one task, and of one result."""
LONGEST_NAME = 255
"""Bytes of UTF-8."""
LONGEST_MEDIA_TYPE = 127

Hash = bytes
"""32 bytes."""


class Role(enum.IntEnum):
    """What an attachment is to its task; the numbers are those of the wire."""

    INPUT = 1
    RESULT = 2
    STDOUT = 3
    STDERR = 4
    FILE = 5


class AttachmentUse(NamedTuple):
    """That a task, or its result, uses an attachment."""

    hash: Hash
    name: str
    media_type: str = ""
    role: Role = Role.INPUT
    size_bytes: int = 0
    """As it is stored; 0 in what a caller asks for that does not know it."""


def written_uses(uses: Sequence[AttachmentUse]) -> str | None:
    """Return the inputs of a task as its row keeps them; None: it has none."""
    if not uses:
        return None
    return json.dumps(
        [
            {
                "hash": each.hash.hex(),
                "size_bytes": each.size_bytes,
                "name": each.name,
                "media_type": each.media_type,
            }
            for each in uses
        ]
    )


def read_uses(written: Sequence[dict[str, Any]]) -> list[AttachmentUse]:
    """Return what `written_uses` wrote, or a row of uses that has a role, too."""
    return [
        AttachmentUse(
            bytes.fromhex(each["hash"]),
            each["name"],
            each["media_type"],
            Role(each.get("role", Role.INPUT)),
            each["size_bytes"],
        )
        for each in written
    ]


class AttachmentError(ValueError):
    """A use or an upload is not what it must be; the text says what and how to fix it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def part_count(size_bytes: int) -> int:
    """Return how many parts an attachment has; one without content has none.

    >>> [part_count(each) for each in (0, 1, PART_BYTES, PART_BYTES + 1)]
    [0, 1, 1, 2]
    """
    return -(-size_bytes // PART_BYTES)


def part_size(size_bytes: int, index: int) -> int:
    """Return how many bytes a part has, of an attachment that has it.

    >>> part_size(PART_BYTES + 3, 1)
    3
    """
    return min(PART_BYTES, size_bytes - index * PART_BYTES)


def hash_of_parts(part_hashes: bytes) -> Hash:
    """Return the hash of an attachment whose parts have these hashes, one after the other."""
    return part_hashes if len(part_hashes) == HASH_BYTES else hashlib.sha256(part_hashes).digest()


def check_upload(content_hash: Hash, size_bytes: int, part_hashes: bytes, most_bytes: int) -> bytes:
    """Check what a caller is about to upload; return the hashes of its parts, which may be left out for one part or none.

    Raises:
        AttachmentError: the hash is not that of its parts, or the size is out of bounds.
    """
    if len(content_hash) != HASH_BYTES:
        raise AttachmentError(
            "hash", f"must be {HASH_BYTES} bytes: the SHA-256 of the content or of its part hashes"
        )
    if not 0 <= size_bytes <= most_bytes:
        raise AttachmentError(
            "size_bytes", f"must be 0 to {most_bytes:,} (attachments.max_bytes), not {size_bytes:,}"
        )
    parts = part_count(size_bytes)
    if not part_hashes and parts == 1:
        part_hashes = content_hash
    if len(part_hashes) != parts * HASH_BYTES:
        raise AttachmentError(
            "part_hashes",
            f"{size_bytes:,} bytes are {parts:,} parts of {PART_BYTES:,} bytes: send {HASH_BYTES} bytes for each, not "
            f"{len(part_hashes):,} in all",
        )
    if hash_of_parts(part_hashes) != content_hash:
        raise AttachmentError(
            "hash", "is not the hash of the part hashes: compute both from the same content"
        )
    return part_hashes


def check_label(field: str, name: str) -> None:
    """Check the name under which people see an attachment. It is no path: no server and no worker opens a file of this name.

    Raises:
        AttachmentError: it is not one.
    """
    if not 1 <= len(name.encode()) <= LONGEST_NAME:
        raise AttachmentError(field, f"must be 1 to {LONGEST_NAME} bytes of UTF-8")
    if "/" in name or "\\" in name or name in {".", ".."} or any(map(_is_control, name)):
        raise AttachmentError(
            field,
            'must be a plain name, without a slash, a backslash and control characters, and not "." or ".."',
        )


def check_media_type(field: str, media_type: str) -> None:
    """Check a media type.

    Raises:
        AttachmentError: it is too long, or not ASCII.
    """
    if len(media_type) > LONGEST_MEDIA_TYPE or not media_type.isascii() or any(map(_is_control, media_type)):
        raise AttachmentError(
            field, f"must be at most {LONGEST_MEDIA_TYPE} ASCII characters, such as text/csv"
        )


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}
