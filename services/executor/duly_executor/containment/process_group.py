"""Contains callback processes by their process groups alone; subreapers and control groups are subclasses, and kill more."""

import os
import signal
from contextlib import suppress

import structlog

log = structlog.get_logger()

WATCHED = "limits of commands are watched by supervisors, not held by cgroups"


class ProcessTree:
    """Holds one callback process and all that it starts; as it is here, only the process group does."""

    folder = ""
    """The cgroup that the process enters before it runs anybody's code; empty: none."""

    def holds(self, pid: int) -> None:
        """This is the process."""

    def kill(self) -> None:
        """Kill all that is in it now; the process itself is killed beside this."""

    def holds_others(self) -> bool:
        """Whether something lives in it beside the process."""
        return False

    async def emptied(self) -> None:
        """Kill what the process left behind when it ended, and return when that is gone for certain."""


def kill_all(pid: int, tree: ProcessTree) -> None:
    """Kill a callback process, its group, and what is in its tree."""
    with suppress(OSError):  # if it lasts, waiting for the end says so
        tree.kill()  # first: it may look at what the process has made before that loses its maker
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class Containment:
    """How the callback processes of one Executor are contained."""

    folder = ""
    """The cgroup of all process trees, for the Controller to kill when this Executor is dead; empty: none."""

    def tree(self, number: int) -> ProcessTree:  # noqa: ARG002 (one is like another)
        """Make one for a callback process that is about to start."""
        return ProcessTree()

    def limit_commands(self) -> None:
        """Have control groups hold the limits of commands, if possible; say whether it is."""
        log.info(WATCHED, reason="callback processes have no cgroups")

    async def clear_abandoned(self) -> None:
        """Kill what dead Executors have left here, before anything new runs; as far as it can be told from strangers."""

    def look(self) -> None:
        """Take note of what came up; to be called several times a second."""

    async def close(self) -> None:
        """All callback processes have ended: kill what is left all the same."""
