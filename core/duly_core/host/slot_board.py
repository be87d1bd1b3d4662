"""The slot board: shared memory in which callback processes say which tasks they run right now.

One board an Executor, in a file of its own. The Executor reads it to enforce max_runtime and to name the culprit of
a crash, and a Controller reads it after the Executor's own death. Writing a slot costs no system call, and what was
written outlives the writer.

Layout: a part of whole pages for each callback process, so that each maps its own part only (SlotWriter). In it, for
each slot: start in nanoseconds of CLOCK_BOOTTIME (0: the slot is free), 16 bytes of task id, how many tasks the slot
has started.

Callbacks can write whatever they like, as a rule into their own part. So readers never map the file, which may have been truncated;
the shape is known to them from elsewhere; and they believe nothing but what the Executor can check.
"""

import ctypes
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from duly_core.process.clock import since_boot_ns
from duly_wire.ids import TaskId

MOST_PROCESSES = 4_096
MOST_SLOTS = 4_096
"""Of one process."""
_PAGE = mmap.PAGESIZE
_WORD = 8
_ID = 16
_RECORD = struct.Struct("<q16sq")
_SAME = _WORD + _ID
"""Of a record, what is the same as long as one task runs."""
_STARTS = _SAME // _WORD
"""Words from a record's begin to its count."""
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int64,
]
_MAP_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class RunningTask:
    """What a slot holds."""

    process: int
    slot: int
    task_id: TaskId
    started_boot_ns: int
    """From 1 to now, whatever was written."""


class SlotBoard:
    """A board as its readers see it; it is read and never mapped."""

    def __init__(self, descriptor: int, processes: int, slots: int) -> None:
        """Make a view of a board.

        Args:
            descriptor: its file, which this object does not close.
            processes: how many callback processes it has parts for.
            slots: of each process.

        Raises:
            ValueError: there is no board of such a shape.
        """
        if not (0 < processes <= MOST_PROCESSES and 0 < slots <= MOST_SLOTS):
            message = f"there is no slot board of {processes} processes of {slots} slots"
            raise ValueError(message)
        self.descriptor = descriptor
        self.processes = processes
        self.slots = slots
        self._bytes = slots * _RECORD.size
        self._part = _part_bytes(slots)

    @classmethod
    def create(cls, processes: int, slots: int, descriptor: int | None = None) -> "SlotBoard":
        """Make a board for so many callback processes of so many slots each.

        Args:
            processes: how many callback processes it has parts for.
            slots: of each process.
            descriptor: an empty file in which it is made. None: sealed memory without a name.

        Raises:
            OSError: there is no room.
            ValueError: there is no board of such a shape.
        """
        sealed = descriptor is None
        if descriptor is None:
            descriptor = os.memfd_create("duly-slot-board", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        board = cls(descriptor, processes, slots)
        board.make_room()
        if sealed:
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return board

    def make_room(self) -> None:
        """Give the file its size, also after somebody truncated it: a hole or an end kills who writes there.

        Raises:
            OSError: there is no room.
        """
        os.posix_fallocate(self.descriptor, 0, self.processes * self._part)

    def clear(self, process: int) -> None:
        """The process is gone, and what it ran has been dealt with."""
        with suppress(OSError):  # somebody truncated the file, and the disk is full
            os.pwrite(self.descriptor, bytes(self._bytes), process * self._part)

    def starts(self, process: int) -> int:
        """How many tasks this process says that it has started."""
        return sum(starts for _, _, starts in _RECORD.iter_unpack(self._read(process)))

    def running(self, process: int | None = None) -> Iterator[RunningTask]:
        """What runs, in one process or in all, as the processes say."""
        for number in range(self.processes) if process is None else (process,):
            content = self._read(number)
            found = [
                (slot, started, task_id)
                for slot, (started, task_id, _) in enumerate(_RECORD.iter_unpack(content))
                if started
            ]
            if not found:
                continue
            again, now = self._read(number), since_boot_ns()
            for slot, started, task_id in found:
                place = slot * _RECORD.size
                # else the slot changed hands meanwhile, or was read while it was written
                if again[place : place + _SAME] == content[place : place + _SAME]:
                    yield RunningTask(number, slot, task_id, min(max(started, 1), now))

    def runs(self, task_id: TaskId) -> bool:
        """Whether a process says that it runs this task now."""
        return any(entry.task_id == task_id for entry in self.running())

    def _read(self, process: int) -> bytes:
        return os.pread(self.descriptor, self._bytes, process * self._part).ljust(self._bytes, b"\0")


class SlotWriter:
    """The part of one callback process, as this process writes it.

    It keeps no descriptor, so code that runs in the process cannot truncate the file. By mistake it reaches its own part only.
    By intent it can turn the mapping to other parts (`remap_file_pages`): these are of processes of the same user.
    """

    def __init__(self, descriptor: int, process: int, slots: int) -> None:
        """Map a part of a board.

        Args:
            descriptor: the board's file; it may be closed after this.
            process: whose part.
            slots: of each process.

        Raises:
            OSError: it cannot be mapped.
        """
        self.slots = slots
        part = _part_bytes(slots)
        # mmap.mmap would keep a copy of the descriptor.
        address = _libc.mmap(
            None, part, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, process * part
        )
        if address == _MAP_FAILED:
            raise OSError(ctypes.get_errno(), "mmap of the slot board")
        memory = memoryview((ctypes.c_ubyte * part).from_address(address)).cast("B")
        # Aligned words are written whole; struct writes byte by byte, and a start that is half written looks like one
        # of long ago.
        self._words = memory.cast("q")
        places = range(0, slots * _RECORD.size, _RECORD.size)
        self._starts = [place // _WORD for place in places]
        self._ids = [memory[place + _WORD : place + _SAME] for place in places]

    def started(self, slot: int, task_id: TaskId, boot_ns: int, tasks: int = 1) -> None:
        """A callback is about to start. The start is written last, so that no reader sees half a record.

        Args:
            slot: where it runs.
            task_id: its task. Of a batch: one of its tasks.
            boot_ns: when it starts.
            tasks: how many tasks it runs for.
        """
        words, word = self._words, self._starts[slot]
        words[word] = 0
        self._ids[slot][:] = task_id
        words[word + _STARTS] += tasks
        words[word] = boot_ns

    def ended(self, slot: int) -> None:
        """The callback is over."""
        self._words[self._starts[slot]] = 0


def _part_bytes(slots: int) -> int:
    return -(-slots * _RECORD.size // _PAGE) * _PAGE
