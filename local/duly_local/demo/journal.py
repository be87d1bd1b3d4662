"""The execution log: each callback process writes down, by itself, when it starts and ends which task.

It asks nobody, so it can be held against what Duly says. One line is one `write` to a file that is
opened for appending: it is whole or absent, and what is written stays when the process is killed.
Beside it, each execution holds a lock on its task, which the kernel drops when the process ends, not before.
"""

import fcntl
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duly
from duly_core.clock import since_boot_ns

FOLDER_VARIABLE = "DULY_DEMO_EXECUTIONS"
"""Names the folder; the environment carries it from `duly demo` to the callback processes."""
SUFFIX = ".jsonl"

_LOCKS = "locks"


class Journal:
    """The log of one callback process; its threads share it."""

    def __init__(self, folder: Path) -> None:
        self._locks = folder / _LOCKS
        self._locks.mkdir(exist_ok=True)
        # Never the file of an earlier process that had the same pid.
        name = f"{os.getpid()}-{since_boot_ns()}{SUFFIX}"
        self._file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._numbers = itertools.count(1)

    @contextmanager
    def execution(self, ctx: duly.TaskContext) -> Iterator[None]:
        """Write down the start and the end of what is done inside."""
        number = next(self._numbers)
        with self._lock(ctx.task_id) as alone:
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
    def _lock(self, task_id: str) -> Iterator[bool]:
        """Hold the task's lock; False: another execution of the task holds it now, which must never be."""
        descriptor = os.open(self._locks / task_id, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)  # and with it the lock

    def _write(self, **record: object) -> None:
        os.write(self._file, json.dumps(record).encode() + b"\n")
