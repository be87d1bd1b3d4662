"""How attachments are divided into parts and hashed, and how they may be called: what the SDK and the servers must agree on."""

from __future__ import annotations

import hashlib
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

PART_BYTES = 4 * 1024 * 1024
"""Of each part but the last one, which has the rest."""
HASH_BYTES = hashlib.sha256().digest_size
MOST_USES = 100
"""Of a task, of a result, and of what a run keeps beside it."""
LONGEST_NAME = 255
"""Bytes."""
LONGEST_MEDIA_TYPE = 127
"""Bytes."""


def part_count(size_bytes: int) -> int:
    """Return how many parts an attachment of this size has; one without content has none.

    >>> [part_count(size) for size in (0, 1, PART_BYTES, PART_BYTES + 1)]
    [0, 1, 1, 2]
    """
    return -(-size_bytes // PART_BYTES)


def part_size(size_bytes: int, index: int) -> int:
    """Return the size of a part of an attachment of this size."""
    return min(PART_BYTES, size_bytes - index * PART_BYTES)


def hash_of(part_hashes: Sequence[bytes]) -> bytes:
    """Return the hash of an attachment: that of its part if it has one, else SHA-256 of the hashes of its parts in order."""
    return part_hashes[0] if len(part_hashes) == 1 else hashlib.sha256(b"".join(part_hashes)).digest()


def divided(part_hashes: bytes) -> list[bytes]:
    """Return the hashes of parts, as they stand one after the other on the wire."""
    return [part_hashes[at : at + HASH_BYTES] for at in range(0, len(part_hashes), HASH_BYTES)]


def name_problem(name: str) -> str:
    """Return what is wrong with the name of an attachment; empty: nothing. It is a label, and must not be able to be a path.

    >>> name_problem("report.csv"), name_problem("..")
    ('', 'is "." or ".."')
    """
    if not name:
        return "is empty"
    if name in (".", ".."):
        return 'is "." or ".."'
    if "/" in name or "\\" in name:
        return 'has a "/" or a "\\"'
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "has a control character"
    if len(name.encode()) > LONGEST_NAME:
        return f"has more than {LONGEST_NAME} bytes"
    return ""
