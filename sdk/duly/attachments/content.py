"""What a local attachment is made from: bytes, a file, or a file object; read at any place, by any thread."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, TypeAlias

from duly.errors import AttachmentChangedError

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO"

_COPIED_AT_ONCE = 1024 * 1024
_KEPT_IN_MEMORY = 4 * 1024 * 1024
"""Of a file object; the rest goes to a temporary file."""
_LOCK = threading.Lock()


class Reader(Protocol):
    """Content while it is read."""

    size: int

    def read(self, start: int, size: int) -> bytes:
        """Return these bytes. Raises AttachmentChangedError if there are fewer."""

    def signature(self) -> object:
        """Return what differs if the content has changed; None: it cannot be told, or cannot change."""


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, start: int, size: int) -> bytes:
        return self._data if size == self.size else self._data[start : start + size]

    def signature(self) -> object:
        return None


class _OpenFile:
    """A regular file, or a temporary one. It is closed when the last thread that reads it has let go of it."""

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self._name = name
        self._turn = threading.Lock()
        self.size = os.fstat(descriptor).st_size

    def __del__(self) -> None:
        os.close(self._descriptor)

    def read(self, start: int, size: int) -> bytes:
        data = read_at(self._descriptor, start, size, self._turn)
        if len(data) < size:
            raise changed(self._name)
        return data

    def signature(self) -> object:
        found = os.fstat(self._descriptor)
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Content:
    """Local content of an attachment. Made from a file object, it has what was unread then."""

    def __init__(self, source: Source) -> None:
        self.path: Path | None = None
        self._bytes: bytes | None = None
        self._stream: BinaryIO | None = None
        self._spooled: _OpenFile | _Bytes | None = None
        if isinstance(source, bytes | bytearray | memoryview):
            self._bytes = bytes(source)
        elif isinstance(source, str | os.PathLike):
            self.path = Path(source)
        elif callable(getattr(source, "read", None)):
            if hasattr(source, "encoding"):
                raise TypeError(
                    "the file object reads text: open it in binary mode, such as open(path, 'rb')"
                )
            self._stream = source
        else:
            raise TypeError(
                f"an attachment is made from a path, bytes or a binary file object, not from {type(source).__name__}"
            )

    @contextmanager
    def opened(self) -> Iterator[Reader]:
        """Give the content to be read.

        Raises OSError, or ValueError for a path to what is no regular file.
        """
        if self._bytes is not None:
            yield _Bytes(self._bytes)
        elif self.path is not None:
            yield _open_regular(self.path)
        else:
            yield self._spool()

    def _spool(self) -> Reader:
        """Return the content of the file object, which is read once."""
        with _LOCK:
            if self._spooled is None:
                assert self._stream is not None  # noqa: S101 (it is made from one of the three)
                begin = b""
                while len(begin) <= _KEPT_IN_MEMORY and (block := self._stream.read(_COPIED_AT_ONCE)):
                    begin += block
                is_short = len(begin) <= _KEPT_IN_MEMORY
                self._spooled = _Bytes(begin) if is_short else _copy_of(self._stream, begin)
            return self._spooled


def _copy_of(stream: BinaryIO, begin: bytes) -> _OpenFile:
    import tempfile  # seldom needed, and slow to load

    with tempfile.TemporaryFile(prefix="duly-") as file:
        file.write(begin)
        while block := stream.read(_COPIED_AT_ONCE):
            file.write(block)
        file.flush()
        return _OpenFile(os.dup(file.fileno()), "the file object")


def _open_regular(path: Path) -> _OpenFile:
    # not blocking: to open a FIFO would wait for its writer
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = _OpenFile(descriptor, str(path))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise ValueError(f"{path} is not a regular file: an attachment is made from one file")
    return file


def changed(name: str) -> AttachmentChangedError:
    """Return the error for a file that does not stay as it is."""
    return AttachmentChangedError(f"{name} changed while it was read: try again when nobody writes to it")


def read_at(descriptor: int, start: int, size: int, turn: threading.Lock) -> bytes:
    """Return up to `size` bytes from this place; fewer only at the end of the file."""
    if hasattr(os, "pread"):
        data = os.pread(descriptor, size, start)
        if len(data) == size or not data:
            return data
        return data + read_at(descriptor, start + len(data), size - len(data), turn)
    with turn:  # where there is no pread
        os.lseek(descriptor, start, os.SEEK_SET)
        blocks = []
        while size and (block := os.read(descriptor, size)):
            blocks.append(block)
            size -= len(block)
        return b"".join(blocks)
