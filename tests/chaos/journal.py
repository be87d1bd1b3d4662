"""What a callback writes down by itself about each of its executions: append-only, on the disk before it goes on.

It asks nobody, so it can be held against what Duly says. One file a process; a line is one `write`. A process
that is killed meanwhile leaves a torn last line at most: `journal_reader.py` knows.
"""

import asyncio
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import UUID

import duly
from duly.events.waits import WaitsForEvent
from duly_core.process.clock import since_boot_ns
from tests.chaos.locks import gripping

SUFFIX = ".jsonl"
_LOCKS = "locks"

OUTCOMES = frozenset({"success", "retriable", "fatal", "snoozed", "cancelled", "raised"})
"""How an execution can end that does end."""

_OUTCOME_OF: tuple[tuple[type[BaseException], str], ...] = (
    (duly.RetriableFailure, "retriable"),
    (duly.FatalFailure, "fatal"),
    (duly.Snooze, "snoozed"),
    (WaitsForEvent, "snoozed"),  # as that, it is charged nothing
    (duly.Cancelled, "cancelled"),
    (asyncio.CancelledError, "cancelled"),
)


class Attempt(Protocol):
    """What is asked of duly.TaskContext."""

    task_id: str
    attempt: int
    fence: int


@dataclass(slots=True)
class Running:
    """An execution in progress."""

    alone: bool
    outcome: str = ""
    """To be set by a callback that returns its outcome instead of raising it; one of OUTCOMES."""
    lock: int = -1
    """The descriptor of the kernel's lock of the task, to be shared with what the callback starts."""
    number: int = 0
    """Of the execution in its journal."""


class Journal:
    """The log of one process; its threads and coroutines share it, what it forks does not."""

    def __init__(self, folder: Path, *, durable: bool = True, host: str = "") -> None:
        """Begin one. Not `durable`: nothing waits for the disk (some milliseconds each time); what is written
        outlives the process all the same, if not the machine. `host`: where that is."""
        self._host = host
        self._durable = durable
        self._locks = folder / _LOCKS
        self._pid = os.getpid()
        self.process = f"{self._pid}-{since_boot_ns()}"
        """Names this process for good: pids come again."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(folder / f"{self.process}{SUFFIX}", flags, 0o644)
        self._numbers = itertools.count(1)
        self._writing, self._syncing = threading.Lock(), threading.Lock()
        self._written = self._synced = 0

    @contextmanager
    def execution(self, ctx: Attempt, *, inherited: bool = False, edit: int = 0) -> Iterator[Running]:
        """Write down the start and the end of what is done inside; raises what that raises.

        `inherited`: what the callback forks belongs to the execution, which is not over before it is dead.
        `edit`: the number of the change that the payload came with.
        """
        number = next(self._numbers)
        with gripping(self._locks, UUID(ctx.task_id), inherited=inherited) as (alone, lock):
            running = Running(alone, lock=lock, number=number)
            self._write(
                event="start",
                number=number,
                task_id=ctx.task_id,
                attempt=ctx.attempt,
                fence=ctx.fence,
                pid=self._pid,
                host=self._host,
                alone=alone,
                edit=edit,
                wall_ns=time.time_ns(),
                boot_ns=since_boot_ns(),
            )
            try:
                yield running
            except BaseException as error:
                self._end(
                    number, next((name for kind, name in _OUTCOME_OF if isinstance(error, kind)), "raised")
                )
                raise
            self._end(number, running.outcome or "success")

    def file_read(self, running: Running, wanted: str, got: str, refused: str = "") -> None:
        """Write down what an attachment was, by its SHA-256, or why it was refused."""
        self._write(
            event="read",
            number=running.number,
            wanted=wanted,
            got=got,
            refused=refused,
            boot_ns=since_boot_ns(),
        )

    def file_sent(self, running: Running) -> None:
        """Write down that an upload of the run begins."""
        self._write(event="sent", number=running.number, boot_ns=since_boot_ns())

    def _end(self, number: int, outcome: str) -> None:
        self._write(event="end", number=number, outcome=outcome, boot_ns=since_boot_ns())

    def _write(self, **record: object) -> None:
        """Append a line, and return when it is on the disk; those who wait at the same time share one sync."""
        if os.getpid() != self._pid:
            raise RuntimeError("a forked process must make a journal of its own")
        line = json.dumps(record).encode() + b"\n"
        with self._writing:
            if os.write(self._file, line) != len(line):
                raise OSError("the journal's disk is full: what follows could not be read")
            self._written += 1
            mine = self._written
        with self._syncing:
            if self._durable and self._synced < mine:
                covered = self._written
                os.fdatasync(self._file)
                self._synced = covered
