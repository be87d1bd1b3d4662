"""How a codec encrypts an attachment: in parts, each bound to its place, so that parts are fetched and checked alone.

A plain part has 4 KiB less than a stored one. A stored part begins with the length of what the codec made, in 4 bytes; zeros
fill it up to 4 MiB, unless it is the last.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from duly.errors import AttachmentCorruptError, EncodingError
from duly_wire.attachment_rules import PART_BYTES

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec

PLAIN_PART_BYTES = PART_BYTES - 4096
MEDIA_TYPE = "application/vnd.duly.encrypted"
"""Servers and those without the key see this, and no name."""

_LENGTH = struct.Struct(">I")
_PLACE = struct.Struct(">Q?")
_FORMAT = b"\1"


def plain_part_count(size_bytes: int) -> int:
    """Return how many parts an attachment of this plain size has; one without content has one, too."""
    return max(1, -(-size_bytes // PLAIN_PART_BYTES))


def seal(codec: Codec, data: bytes, index: int, identity: bytes, *, is_last: bool) -> bytes:
    """Return the stored part. Raises EncodingError for a codec that makes much more of it."""
    sealed = codec.encrypt(
        _FORMAT + data, _bound_to(index, is_last=is_last), identity + _PLACE.pack(index, is_last)
    )
    if len(sealed) > PART_BYTES - _LENGTH.size:
        raise EncodingError(
            f"the codec makes {len(sealed):,} bytes of {len(data):,}: an attachment's part may grow by 4 KiB at most"
        )
    stored = _LENGTH.pack(len(sealed)) + sealed
    return stored if is_last else stored.ljust(PART_BYTES, b"\0")


def unseal(codec: Codec, stored: bytes, index: int, *, is_last: bool) -> bytes:
    """Return the plain part. Raises DecryptionError, AttachmentCorruptError."""
    length = _LENGTH.unpack_from(stored)[0] if len(stored) >= _LENGTH.size else len(stored)
    if length > len(stored) - _LENGTH.size:
        raise AttachmentCorruptError(f"part {index} is not an encrypted one")
    plain = codec.decrypt(stored[_LENGTH.size : _LENGTH.size + length], _bound_to(index, is_last=is_last))
    if plain[:1] != _FORMAT:
        raise AttachmentCorruptError(f"part {index} was encrypted by a newer version of Duly")
    return plain[1:]


def _bound_to(index: int, *, is_last: bool) -> bytes:
    return b"attachment\0" + _PLACE.pack(index, is_last)
