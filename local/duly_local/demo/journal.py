"""The execution log: each callback process writes down, by itself, when it starts and ends which task.

It asks nobody, so it can be held against what Duly says. One line is one `write` to a file that is
opened for appending: it is whole or absent, and what is written stays when the process is killed.
Beside it, each execution holds a lock on its task, which the kernel drops when the process ends, not before.
"""

import fcntl
import itertools
import json
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import duly
from duly_core.clock import since_boot_ns

FOLDER_VARIABLE = "DULY_DEMO_EXECUTIONS"
"""Names the folder; the environment carries it from `duly demo` to the callback processes."""
SUFFIX = ".jsonl"

_LOCKS = "locks"
_PLACES = 2**62 - 1
# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi0q")


class Journal:
    """The log of one callback process; its threads share it."""

    def __init__(self, folder: Path) -> None:
        self._locks = folder / _LOCKS
        # Never the file of an earlier process that had the same pid.
        name = f"{os.getpid()}-{since_boot_ns()}{SUFFIX}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._numbers = itertools.count(1)

    @contextmanager
    def execution(self, ctx: duly.TaskContext) -> Iterator[None]:
        """Write down the start and the end of what is done inside."""
        number = next(self._numbers)
        with self._lock(UUID(ctx.task_id)) as alone:
            self._write(
                event="start",
                number=number,
                task_id=ctx.task_id,
                attempt=ctx.attempt,
                fence=ctx.fence,
                pid=os.getpid(),
                alone=alone,
                wall_ns=time.time_ns(),
                boot_ns=since_boot_ns(),
            )
            try:
                yield
            except BaseException:
                self._write(event="end", number=number, succeeded=False, boot_ns=since_boot_ns())
                raise
            self._write(event="end", number=number, succeeded=True, boot_ns=since_boot_ns())

    @contextmanager
    def _lock(self, task_id: UUID) -> Iterator[bool]:
        """Hold the task's lock; False: another execution of the task holds it now, which must never be.

        All tasks' locks are in one empty file: a task's is the byte at the place that its id's random bits
        name. Opened anew each time, so that two threads of one process exclude each other as well.
        """
        descriptor = os.open(self._locks, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, task_id.int & _PLACES, 1, 0)
            try:
                fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)  # and with it the lock

    def _write(self, **record: object) -> None:
        os.write(self._file, json.dumps(record).encode() + b"\n")
