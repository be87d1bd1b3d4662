"""Saves attachments as files: under another name until all is there, so that an interrupted fetch goes on where it stopped."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from duly.attachments.attachment import Attachment, Progress, TransferProgress
from duly.attachments.content import read_at
from duly.attachments.fetch import Stored
from duly.attachments.sealing import PLAIN_PART_BYTES
from duly.errors import DulyError
from duly_wire.attachment_rules import PART_BYTES, name_problem, part_size

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec

if sys.platform != "win32":
    import fcntl

_COPIED_AT_ONCE = 1024 * 1024


def target_of(path: str | os.PathLike[str], name: str) -> Path:
    """Return the file to write: in a folder, one of the attachment's name.

    Raises ValueError for a name that may not be a file's: whoever made the attachment chose it.
    """
    target = Path(path)
    if not target.is_dir():
        return target
    if problem := name_problem(name):
        raise ValueError(f"the attachment's name {problem}: say as which file to save it")
    if name.startswith(".") or name != name.strip() or ":" in name:
        raise ValueError(
            f"the attachment's name, {name!r}, may mean something else there: say as which file to save it"
        )
    return target / name


def save(stored: Stored, codec: Codec | None, target: Path, progress: Progress | None) -> None:
    """Fetch into a file. Raises AttachmentCorruptError, DecryptionError, UnavailableError, OSError."""
    name = stored.attachment.name
    total = stored.size_bytes
    with _partial(stored, target) as (descriptor, kept_bytes):
        turn = threading.Lock()
        done = 0

        def tell(more: int) -> None:
            nonlocal done
            done += more
            if progress is not None:
                progress(TransferProgress("fetch", name, done, total))

        missing = []
        for index in range(len(stored.part_hashes)):
            stored.service.check()
            if index * PART_BYTES < kept_bytes and _is_there(descriptor, turn, stored, index):
                tell(part_size(total, index))
            else:
                missing.append(index)
        is_first = True
        for index, data in stored.parts(missing):
            if is_first:
                stored.plain(codec, index, data)  # without the key, the others need not come
                is_first = False
            _write_at(descriptor, index * PART_BYTES, data, turn)
            tell(len(data))
        if stored.attachment.encrypted:
            total = _decrypt_in_place(stored, codec, descriptor, turn)
        os.ftruncate(descriptor, total)


def _is_there(descriptor: int, turn: threading.Lock, stored: Stored, index: int) -> bool:
    """Tell whether an earlier fetch has brought a part. A file that is only reserved is zeros: they are seldom a part."""
    data = read_at(descriptor, index * PART_BYTES, part_size(stored.size_bytes, index), turn)
    return any(data[:1024]) and stored.is_right(index, data)


def _decrypt_in_place(stored: Stored, codec: Codec | None, descriptor: int, turn: threading.Lock) -> int:
    """Replace stored parts by what is in them, which is shorter; the size of all. What is stopped here is fetched anew."""
    size = 0
    for index in range(len(stored.part_hashes)):
        stored.service.check()
        data = read_at(descriptor, index * PART_BYTES, part_size(stored.size_bytes, index), turn)
        plain = stored.plain(codec, index, data)
        _write_at(descriptor, index * PLAIN_PART_BYTES, plain, turn)
        size += len(plain)
    stored.check_plain_size(size)
    return size


@contextmanager
def _partial(stored: Stored, target: Path) -> Iterator[tuple[int, int]]:
    """Give the file that becomes the target, and how much of it there was. It stays for the next try, unless the disk is full."""
    mark = hashlib.sha256(stored.hash + os.fsencode(target.name)).hexdigest()[:24]
    path = target.with_name(f".duly-{mark}.part")
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        _lock(descriptor, path, target)
        try:
            kept_bytes = os.fstat(descriptor).st_size
            _reserve(descriptor, stored.size_bytes)
            yield descriptor, kept_bytes
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                with suppress(OSError):
                    path.unlink()
            raise
        path.replace(target)
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, target: Path) -> None:
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_ours = os.path.samestat(os.fstat(descriptor), path.stat())
    except (BlockingIOError, FileNotFoundError):
        is_ours = False
    if not is_ours:  # or the other one has just ended, and what is open here is the target now
        raise DulyError(f"{target} is being fetched by another process or thread: wait for it")


def _reserve(descriptor: int, size_bytes: int) -> None:
    """Make a full disk known before anything is fetched."""
    os.ftruncate(descriptor, size_bytes)
    if size_bytes and hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENODEV):
                raise


def _write_at(descriptor: int, start: int, data: bytes, turn: threading.Lock) -> None:
    left = memoryview(data)
    while left:
        if hasattr(os, "pwrite"):
            count = os.pwrite(descriptor, left, start)
        else:
            with turn:
                os.lseek(descriptor, start, os.SEEK_SET)
                count = os.write(descriptor, left)
        left, start = left[count:], start + count


def save_local(attachment: Attachment, path: str | os.PathLike[str]) -> Path:
    """Copy local content to a file, which is there when all of it is: it may be the one that is read."""
    assert attachment.content is not None  # noqa: S101 (the caller has looked)
    target = target_of(path, attachment.name)
    partial = target.with_name(f".duly-{secrets.token_hex(12)}.part")
    try:
        with attachment.content.opened() as reader, partial.open("xb") as file:
            for start in range(0, reader.size, _COPIED_AT_ONCE):
                file.write(reader.read(start, min(_COPIED_AT_ONCE, reader.size - start)))
        partial.replace(target)
    finally:
        with suppress(OSError):
            partial.unlink()  # unless it is the target now
    return target
