"""Finds out the hash of local content, and how it is stored: as it is, or encrypted part by part."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.attachments.content import changed
from duly.attachments.in_parallel import in_parallel
from duly.attachments.sealing import PLAIN_PART_BYTES, plain_part_count, seal
from duly_wire.attachment_rules import PART_BYTES, hash_of, part_count

if TYPE_CHECKING:
    from duly.attachments.content import Reader
    from duly.callbacks.codec import Codec

THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True)
class Measured:
    """Local content as it is stored."""

    reader: Reader
    name: str
    hash: bytes
    size_bytes: int
    part_hashes: list[bytes]
    plain_bytes: int
    codec: Codec | None
    # Of the plain content, for the codec.
    identity: bytes

    def part(self, index: int) -> bytes:
        """Return a part as it is stored. Raises AttachmentChangedError if it is another than it was."""
        data = _stored_part(self.reader, self.codec, self.identity, self.plain_bytes, index)
        if hashlib.sha256(data).digest() != self.part_hashes[index]:
            raise changed(self.name)
        return data


def measure(
    reader: Reader,
    name: str,
    codec: Codec | None,
    check: Callable[[], None],
    done: Callable[[int], object] = lambda _: None,
) -> Measured:
    """Hash content in several threads; `done` is told of the bytes of each part.

    Raises AttachmentChangedError, OSError, EncodingError.
    """
    size, before = reader.size, reader.signature()
    identity = b""
    if codec is not None:
        plain = _hashes(
            lambda index: reader.read(index * PART_BYTES, min(PART_BYTES, size - index * PART_BYTES)),
            part_count(size),
            check,
            lambda _: None,
        )
        identity = hash_of([digest for digest, _ in plain])
    count = part_count(size) if codec is None else plain_part_count(size)
    parts = _hashes(lambda index: _stored_part(reader, codec, identity, size, index), count, check, done)
    if reader.signature() != before:
        raise changed(name)
    part_hashes = [digest for digest, _ in parts]
    stored_bytes = sum(length for _, length in parts)
    return Measured(reader, name, hash_of(part_hashes), stored_bytes, part_hashes, size, codec, identity)


def _hashes(
    part: Callable[[int], bytes], count: int, check: Callable[[], None], done: Callable[[int], object]
) -> list[tuple[bytes, int]]:
    def hashed(index: int) -> tuple[bytes, int]:
        data = part(index)
        return hashlib.sha256(data).digest(), len(data)

    found: dict[int, tuple[bytes, int]] = {}
    for index, result in in_parallel(hashed, range(count), THREADS, check):
        found[index] = result
        done(result[1])
    return [found[index] for index in range(count)]


def _stored_part(reader: Reader, codec: Codec | None, identity: bytes, size: int, index: int) -> bytes:
    if codec is None:
        start = index * PART_BYTES
        return reader.read(start, min(PART_BYTES, size - start))
    start = index * PLAIN_PART_BYTES
    data = reader.read(start, min(PLAIN_PART_BYTES, size - start))
    return seal(codec, data, index, identity, is_last=index == plain_part_count(size) - 1)
