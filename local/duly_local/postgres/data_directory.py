"""The data directory: one process at a time owns it; the kernel, not a file's contents, says which."""

import fcntl
import os
from pathlib import Path
from typing import Self

from duly_core.errors import DulyError

NO_SPACE = "No space left on device"
"""What Postgres says of a full disk: it is started with messages in English."""


def no_space(place: object) -> str:
    """Return what to tell of a full disk."""
    return f"no space is left on the disk of {place}: free some, or use a folder on another disk with --data"


def make_data_directory(data_directory: Path) -> None:
    """Make the directory, unless it is there; others may pass through it, as Postgres may have to, but not look.

    Raises:
        DulyError: it cannot be made or written.
    """
    try:
        if not data_directory.exists():
            data_directory.mkdir(parents=True)
            data_directory.chmod(0o711)
    except OSError as error:
        raise DulyError(
            f"the data directory {data_directory} cannot be made: {error.strerror}; use another one with --data"
        ) from error
    if not data_directory.is_dir() or not os.access(data_directory, os.W_OK | os.X_OK):
        raise DulyError(f"the data directory {data_directory} cannot be written: use another one with --data")


class DataDirectoryLock:
    """The lock on a data directory, held until `release` or the death of this process."""

    def __init__(self, file_descriptor: int) -> None:
        self._file_descriptor = file_descriptor

    @classmethod
    def take(cls, data_directory: Path) -> Self:
        """Become the owner.

        Raises:
            DulyError: another process is; names the directory, that process, and the way out.
        """
        path = data_directory / "duly.lock"
        try:
            file_descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DulyError(
                f"{path} cannot be opened: {error.strerror}; use another data directory with --data"
            ) from error
        try:
            fcntl.flock(file_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(file_descriptor, 32).decode(errors="replace").strip() or "unknown"
            os.close(file_descriptor)
            raise DulyError(
                f"{data_directory} is in use by another `duly up` (process {owner}): "
                f"stop that one, or give this one a directory of its own with --data (and its own ports with --free-ports)"
            ) from None
        os.ftruncate(file_descriptor, 0)
        os.pwrite(file_descriptor, f"{os.getpid()}\n".encode(), 0)
        return cls(file_descriptor)

    def release(self) -> None:
        """Let another process own the directory. The file stays: removing it would race with the next owner."""
        os.close(self._file_descriptor)
