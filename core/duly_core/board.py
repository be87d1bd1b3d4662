"""The slot board: shared memory in which callback processes say which tasks they run right now.

One board an Executor, a memfd: its callback processes write it, the Executor reads it to enforce
max_runtime and to name the culprit of a crash, and the Controller reads it after the Executor's own
death. Writing a slot costs no system call, and what was written outlives the writer.

Layout: a header of `processes` pids (8 bytes each), then `processes * slots` records of
(start in nanoseconds of CLOCK_BOOTTIME, 16 bytes of task id); start 0 means that the slot is free.
"""

import mmap
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from duly_core.task import TaskId

_PID = struct.Struct("<q")
_RECORD = struct.Struct("<q16s")
_START = struct.Struct("<q")
_SHAPE = struct.Struct("<ii")


@dataclass(frozen=True, slots=True)
class Running:
    """What a slot holds."""

    process: int
    slot: int
    task_id: TaskId
    started_boot_ns: int


class Board:
    """A view of a board; any number of processes may hold one."""

    def __init__(self, descriptor: int) -> None:
        """Args: `descriptor` is a memfd made by `create`; it is not closed by this object."""
        self.descriptor = descriptor
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        self.processes: int
        self.slots: int
        self.processes, self.slots = _SHAPE.unpack_from(self._memory, 0)
        self._pids = _SHAPE.size
        self._records = self._pids + self.processes * _PID.size
        if len(self._memory) < self._records + self.processes * self.slots * _RECORD.size:
            message = "this memory is no slot board"
            raise ValueError(message)

    @classmethod
    def create(cls, processes: int, slots: int) -> "Board":
        """Make a board for so many callback processes of so many slots each."""
        descriptor = os.memfd_create("duly-slot-board")
        size = _SHAPE.size + processes * _PID.size + processes * slots * _RECORD.size
        os.ftruncate(descriptor, size)
        os.pwrite(descriptor, _SHAPE.pack(processes, slots), 0)
        return cls(descriptor)

    def set_pid(self, process: int, pid: int) -> None:
        """Say which process writes this part of the board; 0: none."""
        _PID.pack_into(self._memory, self._pids + process * _PID.size, pid)

    def pids(self) -> list[int]:
        """The callback processes that were alive when last heard of."""
        pids = (
            _PID.unpack_from(self._memory, self._pids + number * _PID.size)[0]
            for number in range(self.processes)
        )
        return [pid for pid in pids if pid]

    def started(self, process: int, slot: int, task_id: TaskId, boot_ns: int) -> None:
        """A callback is about to start. The start is written last, so that no reader sees half a record."""
        place = self._place(process, slot)
        _RECORD.pack_into(self._memory, place, 0, task_id)
        _START.pack_into(self._memory, place, boot_ns)

    def ended(self, process: int, slot: int) -> None:
        """The callback is over."""
        _START.pack_into(self._memory, self._place(process, slot), 0)

    def clear(self, process: int) -> None:
        """The process is gone, and what it ran has been dealt with."""
        for slot in range(self.slots):
            self.ended(process, slot)
        self.set_pid(process, 0)

    def running(self, process: int | None = None) -> Iterator[Running]:
        """What runs, in one process or in all."""
        for number in range(self.processes) if process is None else (process,):
            for slot in range(self.slots):
                started, task_id = _RECORD.unpack_from(self._memory, self._place(number, slot))
                if started:
                    yield Running(number, slot, task_id, started)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()

    def _place(self, process: int, slot: int) -> int:
        return self._records + (process * self.slots + slot) * _RECORD.size
