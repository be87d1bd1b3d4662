"""A lock on each task that the kernel keeps: it is dropped when the process that holds it is dead, not before."""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

_PLACES = 2**62 - 1
# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi0q")


@contextmanager
def gripping(file: Path, task_id: UUID, *, inherited: bool = False) -> Iterator[tuple[bool, int]]:
    """As `holding`, and with the lock's descriptor, for those that are to share it."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.set_inheritable(descriptor, inherited)
    place = task_id.int & _PLACES
    alone = False
    try:
        try:
            _set(descriptor, fcntl.F_WRLCK, place)
            alone = True
        except BlockingIOError:
            pass
        yield alone, descriptor
    finally:
        if alone and not inherited:
            _set(descriptor, fcntl.F_UNLCK, place)
        os.close(descriptor)


@contextmanager
def holding(file: Path, task_id: UUID, *, inherited: bool = False) -> Iterator[bool]:
    """Hold the task's lock; False: another execution of the task holds it now, which must never be.

    All locks are in one empty file: a task's is the byte at the place that its id's random bits name. The file
    is opened anew each time, so two threads of one process exclude each other as well. What the process forks
    meanwhile shares the lock: with `inherited` it is held until the last of those is dead, too; else it is
    given up at the end, whoever shares it.
    """
    with gripping(file, task_id, inherited=inherited) as (alone, _):
        yield alone


def _set(descriptor: int, kind: int, place: int) -> None:
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, place, 1, 0))
