"""One change of the directory at a time: a lock at the default cell."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from duly_core.cells.directory import Directory, DirectoryError
from duly_core.cells.moving.sides import Side

_LOCK_FOR = timedelta(seconds=10)
"""How long a change waits for another one to end."""
_AGAIN = timedelta(milliseconds=200)


@contextmanager
def locked(arbiter: Side, directory: Directory) -> Iterator[None]:
    """Hold the lock of changes at the default cell, for as long as this connection lives.

    Raises:
        DirectoryError: another process changes the directory for long.
        StoreUnavailableError: the cell does not answer.
    """
    key = f"duly_cells_{directory.installation.hex}"
    end = time.monotonic() + _LOCK_FOR.total_seconds()
    while not arbiter.one("select pg_try_advisory_lock(hashtextextended(%s, 0))", [key]):
        if time.monotonic() >= end:
            raise DirectoryError(
                "another process changes the directory of cells: try again when it is through"
            )
        time.sleep(_AGAIN.total_seconds())
    try:
        yield
    finally:
        if arbiter.is_open:
            arbiter.run("select pg_advisory_unlock(hashtextextended(%s, 0))", [key])
