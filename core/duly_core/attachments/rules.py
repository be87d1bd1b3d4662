"""How tasks use attachments, and what an upload must be. Pure; sizes, hashes and names are those of the wire."""

import enum
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from duly_wire.attachment_rules import (
    HASH_BYTES,
    LONGEST_MEDIA_TYPE,
    MOST_USES,
    PART_BYTES,
    divided,
    hash_of,
    name_problem,
    part_count,
)

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
    """That a task, or a run of it, uses an attachment."""

    hash: Hash
    size_bytes: int
    name: str
    media_type: str = ""
    role: Role = Role.INPUT


class AttachmentError(ValueError):
    """A use or an upload is not what it must be; the text says what and how to fix it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


def check_upload(content_hash: Hash, size_bytes: int, part_hashes: bytes, most_bytes: int) -> bytes:
    """Check what a caller is about to upload; return the hashes of its parts, which it may leave out for one part or none.

    Raises:
        AttachmentError: the hash is not that of the parts, or the size is out of bounds.
    """
    check_hash(content_hash)
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
            f"{size_bytes:,} bytes are {parts:,} parts of at most {PART_BYTES:,} bytes: send {HASH_BYTES} bytes for each, not "
            f"{len(part_hashes):,} in all",
        )
    if hash_of(divided(part_hashes)) != content_hash:
        raise AttachmentError(
            "hash", "is not the hash of the part hashes: compute both from the same content"
        )
    return part_hashes


def check_hash(content_hash: Hash) -> None:
    """Check that a hash can be one.

    Raises:
        AttachmentError: it cannot.
    """
    if len(content_hash) != HASH_BYTES:
        raise AttachmentError("hash", f"must be {HASH_BYTES} bytes, a SHA-256")


def check_uses(uses: Sequence[AttachmentUse]) -> None:
    """Check what a task or a run uses: so many results, and so many others.

    Raises:
        AttachmentError: there are too many, or one is invalid.
    """
    results = sum(use.role is Role.RESULT for use in uses)
    check_use_count(results, "in a result")
    check_use_count(len(uses) - results)
    for place, use in enumerate(uses):
        field = f"attachments[{place}]"
        if len(use.hash) != HASH_BYTES:
            raise AttachmentError(f"{field}.hash", f"must be {HASH_BYTES} bytes, a SHA-256")
        if use.size_bytes < 0:
            raise AttachmentError(f"{field}.size_bytes", "must not be negative")
        if problem := name_problem(use.name):
            raise AttachmentError(f"{field}.name", f"{problem}: give it a plain name, such as report.csv")
        if len(use.media_type) > LONGEST_MEDIA_TYPE or not (
            use.media_type.isascii() and (use.media_type.isprintable() or not use.media_type)
        ):
            raise AttachmentError(
                f"{field}.media_type",
                f"must be at most {LONGEST_MEDIA_TYPE} ASCII characters, such as text/csv",
            )


def check_use_count(count: int, where: str = "", most: int = MOST_USES) -> None:
    """Check how much a task or a run uses.

    Raises:
        AttachmentError: it is too much.
    """
    if count > most:
        place = f" {where}" if where else ""
        raise AttachmentError(
            "attachments", f"there may be at most {most}{place}, not {count:,}: pack some into one"
        )


def written_uses(uses: Sequence[AttachmentUse]) -> str | None:
    """Return the inputs of a task as its row has them; None: it has none."""
    if not uses:
        return None
    return json.dumps(
        [
            {
                "hash": use.hash.hex(),
                "size_bytes": use.size_bytes,
                "name": use.name,
                "media_type": use.media_type,
                "role": int(use.role),
            }
            for use in uses
        ]
    )


def read_uses(written: Sequence[Mapping[str, Any]]) -> list[AttachmentUse]:
    """Return what `written_uses`, or the fragment `uses_of`, wrote."""
    return [
        AttachmentUse(
            bytes.fromhex(use["hash"]), use["size_bytes"], use["name"], use["media_type"], Role(use["role"])
        )
        for use in written
    ]


class NotStored(NamedTuple):
    """A use of what is not stored in the namespace of its task."""

    namespace: str
    use: AttachmentUse

    def __str__(self) -> str:
        where = f"namespace {self.namespace!r}" if self.namespace else "the default namespace"
        return (
            f"no attachment of {self.use.size_bytes:,} bytes with the hash {self.use.hash.hex()} is stored in {where}: "
            f"upload {self.use.name!r} first"
        )
