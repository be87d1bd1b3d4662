"""What an earlier run left in a Postgres data directory: a server still shutting down, a stale pid file."""

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from duly_core.errors import DulyError

_LOOK_AGAIN_AFTER = timedelta(milliseconds=50)


def await_exit(postgres_data: Path, within: timedelta, tell: Callable[[str], None] = lambda _: None) -> None:
    """Wait for an earlier run's server to finish its shutdown, then clear what would block the next one.

    To be called by the owner of the data directory only: nobody else can then be starting a server there.

    Raises:
        DulyError: the server is still there; names it and how to stop it.
    """
    deadline = time.monotonic() + within.total_seconds()
    if _processes_of(postgres_data):
        tell(f"waiting up to {within.total_seconds():g} s for the Postgres of an earlier run to stop")
    while running := _processes_of(postgres_data):
        if time.monotonic() > deadline:
            raise DulyError(
                f"the Postgres of an earlier run still runs on {postgres_data}: "
                f"stop it with `kill -INT {min(running)}`, or use another data directory with --data"
            )
        time.sleep(_LOOK_AGAIN_AFTER.total_seconds())
    _remove_stale_pid_file(postgres_data / "postmaster.pid")


def _processes_of(postgres_data: Path) -> list[int]:
    """Postgres works in its data directory: that finds its processes, and never a reused pid."""
    data = postgres_data.resolve()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").readlink() == data and (entry / "comm").read_text() == "postgres\n":
                    found.append(int(entry.name))
            except OSError:  # it ended, or belongs to another user
                continue
    return found


def _remove_stale_pid_file(pid_file: Path) -> None:
    """Remove it only when its pid lives again as something else, on which Postgres would refuse to start.

    Otherwise Postgres deals with the file itself, and more strictly: it also looks for shared
    memory that surviving backends still use.
    """
    try:
        pid = int(pid_file.read_text(encoding="utf-8").split("\n", 1)[0])
        os.kill(pid, 0)
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return
    except PermissionError:
        pass
    pid_file.unlink()
