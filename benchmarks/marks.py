"""Notes when each task started, at the price of a memory write; every system's callbacks use this, in either venv.

A process writes into a file of its own that is mapped into memory: no system call, no lock. A note is the task's
number (the first digits of its payload) and the wall clock in nanoseconds; what is not written yet is zero.
"""

import itertools
import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER = "DULY_BENCH_MARKS"
DIGITS = 8
_NOTE = struct.Struct("<qq")
_MOST = 1_500_000
_BLOCK = 2_000


class _Writer:
    def __init__(self) -> None:
        self._next = itertools.count().__next__
        path = Path(os.environ[FOLDER]) / f"marks-{os.getpid()}"
        with path.open("w+b") as file:
            file.truncate(_NOTE.size * _MOST)
            self._memory = mmap.mmap(file.fileno(), 0)

    def note(self, number: int) -> None:
        _NOTE.pack_into(self._memory, self._next() * _NOTE.size, number, time.time_ns())


_writer: _Writer | None = None
_opening = threading.Lock()


def _forget() -> None:
    global _opening, _writer
    _writer, _opening = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)


def payload_of(number: int, size: int = 100) -> bytes:
    """The payload of a task: its number, and padding."""
    return b"%0*d" % (DIGITS, number) + b"x" * (size - DIGITS)


def mark(payload: bytes | str) -> None:
    """The callback of this task was entered."""
    mark_number(int(payload[:DIGITS]))


def mark_number(number: int) -> None:
    """The same, of a task whose number is known."""
    global _writer
    if _writer is None:
        with _opening:
            _writer = _writer or _Writer()
    _writer.note(number)


class Marks:
    """Reads what all processes noted so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.starts: dict[int, list[int]] = {}
        """Nanoseconds of the wall clock, by task number; more than one: it started again."""
        self.notes = 0
        self._read: dict[Path, int] = {}

    @property
    def processes(self) -> int:
        """How many processes noted something."""
        return sum(1 for offset in self._read.values() if offset)

    def look(self) -> None:
        """Read on."""
        for path in self.folder.glob("marks-*"):
            for number, at in self._new(path):
                self.starts.setdefault(number, []).append(at)
                self.notes += 1

    def _new(self, path: Path) -> Iterator[tuple[int, int]]:
        offset = self._read.setdefault(path, 0)
        with path.open("rb") as file:
            file.seek(offset)
            while block := file.read(_BLOCK * _NOTE.size):
                for number, at in _NOTE.iter_unpack(block[: len(block) // _NOTE.size * _NOTE.size]):
                    if not at:
                        return
                    self._read[path] += _NOTE.size
                    yield number, at
