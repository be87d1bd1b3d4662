"""The demo's input: every regular file under a directory, and what was left out and why."""

import hashlib
import os
import stat
import sysconfig
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from duly_core.errors import DulyError

# Below the standard library's folder, but no part of it: what pip installs, perhaps gigabytes.
_INSTALLED = {"site-packages", "dist-packages"}


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file as it was when it was found."""

    path: str
    """Relative to the directory; it is the task's payload."""
    size: int
    identity: tuple[int, int, int]
    """Changes when the file does: inode, size, modification time."""


@dataclass(slots=True)
class Input:
    """What the demo indexes."""

    directory: Path
    files: list[InputFile] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    """How many, by the reason."""

    @property
    def reasons(self) -> str:
        """What was left out, in words."""
        return "; ".join(f"{reason} ({count:,})" for reason, count in self.left_out.items())

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True, slots=True)
class Facts:
    """What indexing a file must have found."""

    sha256: str
    size: int
    lines: int


def find_input(directory: Path | None) -> Input:
    """Look through the directory; None: through the running Python's standard library.

    Raises:
        DulyError: there is no such directory, it cannot be read, or it holds no file.
    """
    given = directory if directory is not None else Path(sysconfig.get_path("stdlib"))
    try:
        os.scandir(given).close()
    except OSError as error:
        raise DulyError(f"{given} cannot be indexed: {error.strerror}; name a directory of files") from error
    found = Input(given.resolve())
    skipped = _INSTALLED if directory is None else set()
    for entry in _entries(found, found.directory, skipped):
        _take(found, entry)
    found.files.sort(key=lambda file: file.path)
    if not found.files:
        left_out = f"; left out: {found.reasons}" if found.left_out else ""
        raise DulyError(f"{given} holds no file to index{left_out}")
    return found


def identity_of(path: Path) -> tuple[int, int, int] | None:
    """As in `InputFile`; None: it is gone."""
    try:
        return _identity(path.stat(follow_symlinks=False))
    except OSError:
        return None


def read_facts(path: Path) -> Facts:
    """Hash the file directly; on purpose not with the code that is being checked."""
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        file.seek(0)
        lines = sum(line.endswith(b"\n") for line in file)
    return Facts(sha256, size, lines)


def _entries(found: Input, folder: Path, skipped: set[str]) -> Iterator[os.DirEntry[str]]:
    folders = [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if not entry.is_dir(follow_symlinks=False):
                        yield entry
                    elif entry.name in skipped:
                        found.left_out["folders of installed packages, no part of the standard library"] += 1
                    else:
                        folders.append(entry.path)
        except OSError:
            found.left_out["folders that cannot be read"] += 1


def _take(found: Input, entry: os.DirEntry[str]) -> None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        found.left_out["files that vanished"] += 1
        return
    path = os.path.relpath(entry.path, found.directory)
    if stat.S_ISLNK(status.st_mode):
        found.left_out["symbolic links"] += 1
    elif not stat.S_ISREG(status.st_mode):
        found.left_out["sockets, pipes and devices"] += 1
    elif not os.access(entry.path, os.R_OK):
        found.left_out["files that cannot be read"] += 1
    elif not _is_text(path):
        found.left_out["files whose names are not UTF-8, which JSON cannot carry"] += 1
    else:
        found.files.append(InputFile(path, status.st_size, _identity(status)))


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
