"""The files of a run: few contents, so that many tasks have the same, of every size that is stored in another way."""

import hashlib

from duly_wire.attachment_rules import PART_BYTES

_SIZES = (7, 3_000, 0, 100_000, 1, 40, PART_BYTES + 1_000, 20)
CONTENTS = 3
"""Given to tasks at a time. Later ones have others; then these come again, when nothing of them should be stored any more."""
ERAS = 4


def content(number: int) -> bytes:
    """Return a content."""
    word = b"%d " % number
    size = _SIZES[number % len(_SIZES)]
    return (word * (size // len(word) + 1))[:size]


def sha256_of(number: int) -> str:
    """Return what a callback must find that reads it, in hexadecimal."""
    return hashlib.sha256(content(number)).hexdigest()
