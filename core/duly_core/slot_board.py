"""The slot board: shared memory in which callback processes say which tasks they run right now.

One board an Executor, at the beginning of its claim journal: its callback processes write it, the Executor reads
it to enforce max_runtime and to name the culprit of a crash, and the Controller reads it after the Executor's own
death. Writing a slot costs no system call, and what was written outlives the writer.

Layout: a header of `processes` pids (8 bytes each), then `processes * slots` records of
(start in nanoseconds of CLOCK_BOOTTIME, 16 bytes of task id, how many tasks this slot has started); start 0 means that
the slot is free.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from duly_core.task import TaskId

_SHAPE = struct.Struct("<ii")
_WORD = 8
_ID = 16
_RECORD = _WORD + _ID + _WORD
_STARTS = (_WORD + _ID) // _WORD
"""Words from a record's begin to its count."""


@dataclass(frozen=True, slots=True)
class RunningTask:
    """What a slot holds."""

    process: int
    slot: int
    task_id: TaskId
    started_boot_ns: int


class SlotBoard:
    """A view of a board; any number of processes may hold one."""

    def __init__(self, descriptor: int) -> None:
        """Args: `descriptor` is a file that begins with a board; it is not closed by this object.

        Raises:
            ValueError: it is not a slot board.
        """
        self.descriptor = descriptor
        self.processes, self.slots = _shape_of(descriptor)
        self.size = _size(self.processes, self.slots)
        self._memory = mmap.mmap(descriptor, self.size)  # nothing of what follows in the file
        records = _SHAPE.size + self.processes * _WORD
        # Aligned words are written and read whole; struct writes byte by byte, and a start that is half
        # written looks like one of long ago.
        self._words = memoryview(self._memory).cast("q")
        # Worked out once: two of them are needed for each task.
        self._places = [
            [records + (process * self.slots + slot) * _RECORD for slot in range(self.slots)]
            for process in range(self.processes)
        ]

    @classmethod
    def create(cls, processes: int, slots: int, descriptor: int | None = None) -> "SlotBoard":
        """Make a board for so many callback processes of so many slots each.

        Args: `descriptor` is an empty file in which it is made; None: memory that has no name.
        """
        if descriptor is None:
            descriptor = os.memfd_create("duly-slot-board")
        os.posix_fallocate(
            descriptor, 0, _size(processes, slots)
        )  # a hole that cannot be filled kills the writer
        os.pwrite(descriptor, _SHAPE.pack(processes, slots), 0)
        return cls(descriptor)

    def set_pid(self, process: int, pid: int) -> None:
        """Say which process writes this part of the board; 0: none."""
        self._words[_SHAPE.size // _WORD + process] = pid

    def pids(self) -> list[int]:
        """The callback processes that were alive when last heard of."""
        first = _SHAPE.size // _WORD
        return [pid for pid in self._words[first : first + self.processes] if pid]

    def started(self, process: int, slot: int, task_id: TaskId, boot_ns: int) -> None:
        """A callback is about to start. The start is written last, so that no reader sees half a record."""
        place = self._places[process][slot]
        words, word = self._words, place // _WORD
        words[word] = 0
        self._memory[place + _WORD : place + _WORD + _ID] = task_id
        words[word + _STARTS] += 1
        words[word] = boot_ns

    def ended(self, process: int, slot: int) -> None:
        """The callback is over."""
        self._words[self._places[process][slot] // _WORD] = 0

    def clear(self, process: int) -> None:
        """The process is gone, and what it ran has been dealt with."""
        for slot in range(self.slots):
            self.ended(process, slot)
            self._words[self._places[process][slot] // _WORD + _STARTS] = 0
        self.set_pid(process, 0)

    def starts(self, process: int) -> int:
        """How many tasks this process has started."""
        return sum(self._words[place // _WORD + _STARTS] for place in self._places[process])

    def running(self, process: int | None = None) -> Iterator[RunningTask]:
        """What runs, in one process or in all."""
        for number in range(self.processes) if process is None else (process,):
            for slot in range(self.slots):
                place = self._places[number][slot]
                started = self._words[place // _WORD]
                if not started:
                    continue
                task_id = self._memory[place + _WORD : place + _WORD + _ID]
                if self._words[place // _WORD] == started:  # else the slot changed hands meanwhile
                    yield RunningTask(number, slot, task_id, started)

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._memory.close()


def _size(processes: int, slots: int) -> int:
    return _SHAPE.size + processes * _WORD + processes * slots * _RECORD


def _shape_of(descriptor: int) -> tuple[int, int]:
    shape = os.pread(descriptor, _SHAPE.size, 0)
    if len(shape) == _SHAPE.size:
        processes, slots = _SHAPE.unpack(shape)
        if processes > 0 and slots > 0 and os.fstat(descriptor).st_size >= _size(processes, slots):
            return processes, slots
    message = "this memory is not a slot board"
    raise ValueError(message)
