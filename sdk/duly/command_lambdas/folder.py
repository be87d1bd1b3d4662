"""The folder of one run: private, made for it, and removed with all that is in it."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self

from duly_wire.attachment_rules import name_problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import TracebackType

    from duly.attachments.attachment import Attachment
    from duly.command_lambdas.request import Pattern

_log = logging.getLogger("duly.commands")

_PREFIX = "duly-chore-"
_MOST_ENTRIES = 100_000
_MOST_COMPARISONS = 1_000_000
"""Of parts of paths with parts of patterns: other tasks of the process share the interpreter meanwhile."""
MOST_FILES = 90
"""Of a result, which may have 100 attachments."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class OutputError(Exception):
    """What was asked for is not there, or is too much."""


class RunFolder:
    """A folder with one for the command's work, and one for its temporary files. A lock on it says that it is in use."""

    def __init__(self, base: Path) -> None:
        """Make it. Raises OSError."""
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
            self._lock = os.open(self.path, _FOLDER)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            if self.path.exists():  # else a worker that just started took it for one that is left over
                break
            os.close(self._lock)
        self.work = self.path / "work"
        self.temporary = self.path / "tmp"
        self.work.mkdir(mode=0o700)
        self.temporary.mkdir(mode=0o700)
        self._placed: dict[str, tuple[int, ...]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.remove()

    def remove(self) -> None:
        """Remove it with all that is in it; that may take long."""
        remove(self.path)
        os.close(self._lock)

    def unnamed_file(self) -> BinaryIO:
        """Return a file that no command finds. Raises OSError."""
        return tempfile.TemporaryFile(dir=self.path, buffering=0)

    def place(self, inputs: Iterable[Attachment]) -> None:
        """Fetch files into the folder, by their names. Raises what `Attachment.save` raises."""
        for each in inputs:
            path = each.save(self.work / each.name)
            path.chmod(0o700)
            self._placed[each.name] = _signature(path.stat())

    def files(self, patterns: Sequence[Pattern]) -> list[str]:
        """Return the files that patterns mean, by their paths in the folder: regular ones, and not inputs that are unchanged.

        Raises OutputError.
        """
        found = []
        meant: set[str] = set()
        paths = {each.text for each in patterns if each.is_path}
        wild = [each for each in patterns if not each.is_path]
        comparisons = 0
        for path in self._all_files():
            comparisons += sum(each.comparisons(path) for each in wild)
            if comparisons > _MOST_COMPARISONS:
                raise OutputError(
                    "outputs: too many files for so many patterns: name fewer patterns, or pack the files into one"
                )
            by = [*paths & {path}, *(each.text for each in wild if each.matches(path))]
            if by and not self._is_unchanged(path):
                if any(map(name_problem, path.split("/"))):
                    raise OutputError("the command left a file for outputs whose name no attachment can have")
                found.append(path)
                meant.update(by)
                if len(found) > MOST_FILES:
                    raise OutputError(f"outputs: more than {MOST_FILES} files: pack them into one")
        for each in patterns:
            if each.is_path and each.text not in meant:
                number = patterns.index(each) + 1
                raise OutputError(f"the command left no file for output {number} of the payload")
        return sorted(found)

    def _all_files(self) -> Iterator[str]:
        entries = 0
        for folder, folders, names, descriptor in os.fwalk(self.work, follow_symlinks=False):
            entries += len(names) + len(folders)
            if entries > _MOST_ENTRIES:
                raise OutputError(f"the folder has more than {_MOST_ENTRIES:,} files: none was looked for")
            inner = os.path.relpath(folder, self.work)
            for name in names:
                with suppress(OSError):
                    if stat.S_ISREG(os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_mode):
                        yield name if inner == "." else f"{inner}/{name}"

    def _is_unchanged(self, path: str) -> bool:
        placed = self._placed.get(path)
        return placed is not None and placed == _signature((self.work / path).lstat())

    def opened(self, path: str) -> BinaryIO:
        """Open a file of the folder; no link is followed. Raises OSError."""
        descriptor = os.open(self.work, _FOLDER)
        *folders, name = path.split("/")
        try:
            for each in folders:
                inner = os.open(each, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            return os.fdopen(os.open(name, _FILE, dir_fd=descriptor), "rb")
        finally:
            os.close(descriptor)


def path_of(file: BinaryIO) -> str:
    """Return a path to an open file, with a name or without: what is read is not copied first."""
    return f"/proc/self/fd/{file.fileno()}"


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return found.st_ino, found.st_size, found.st_mtime_ns


def remove(path: Path) -> None:
    """Remove a folder, whatever rights a command gave what is in it."""
    unopened = [path]
    while unopened:
        folder = unopened.pop()
        with suppress(OSError):
            folder.chmod(0o700)
            with os.scandir(folder) as entries:
                unopened += [Path(each.path) for each in entries if each.is_dir(follow_symlinks=False)]
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        _log.warning("the folder of a command cannot be removed: %s", path)


def remove_abandoned(base: Path) -> None:
    """Remove the folders that dead processes of this user left."""
    for path in base.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if path.lstat().st_uid != os.getuid():
                continue
            lock = os.open(path, _FOLDER)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(path)
            finally:
                os.close(lock)
