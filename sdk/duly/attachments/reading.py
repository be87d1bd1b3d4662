"""Attachments as file objects."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from duly.attachments.sealing import PLAIN_PART_BYTES
from duly_wire.attachment_rules import PART_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    from duly.attachments.content import Content
    from duly.attachments.fetch import Stored
    from duly.callbacks.codec import Codec

_BUFFER_BYTES = 64 * 1024


class _Parts(io.RawIOBase):
    """Reads through a function that returns a part of the content; it has one part at a time."""

    def __init__(self, size: int, part_bytes: int, part: Callable[[int], bytes]) -> None:
        self._size = size
        self._part_bytes = part_bytes
        self._part = part
        self._place = 0
        self._index = -1
        self._data = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError("a place before the beginning")
        self._place = start + offset
        return self._place

    def readinto(self, buffer: Any) -> int:
        if self._place >= self._size:
            return 0
        index, within = divmod(self._place, self._part_bytes)
        if index != self._index:
            self._data, self._index = self._part(index), index
        data = self._data[within : within + len(buffer)]
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def open_local(content: Content) -> BinaryIO:
    """Return local content as a file object."""
    with content.opened() as reader:
        size = reader.size
        return _buffered(
            _Parts(
                size,
                PART_BYTES,
                lambda index: reader.read(index * PART_BYTES, min(PART_BYTES, size - index * PART_BYTES)),
            )
        )


def open_stored(stored: Stored, codec: Codec | None) -> BinaryIO:
    """Return a stored attachment as a file object that fetches its parts."""
    part_bytes = PLAIN_PART_BYTES if stored.attachment.encrypted else PART_BYTES
    return _buffered(
        _Parts(
            stored.attachment.size_bytes,
            part_bytes,
            lambda index: stored.plain(codec, index, stored.part(index)),
        )
    )


def _buffered(parts: _Parts) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(parts, _BUFFER_BYTES))
