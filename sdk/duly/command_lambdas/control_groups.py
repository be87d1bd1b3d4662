"""Control groups with limits (cgroup v2): one for each slot of a callback process, made before it gives up its worker's rights.

Whether a file of a group may be written is decided when it is opened. So a callback process that has become another user can
still move a command into a group. The command has no such descriptor, and cannot leave its group.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTROLLERS = ("memory", "pids")
CALLBACK = "callback"
"""The group of the callback process itself, beside those of its commands: a group with limited groups has no processes."""
_WRITTEN = ("cgroup.procs", "cgroup.kill")
_READ = ("memory.events", "pids.events")


class ControlGroup:
    """A group for one command at a time."""

    def __init__(self, folder: Path) -> None:
        """Make it. Raises OSError: it is not permitted, or the kernel is older than Linux 5.14."""
        folder.mkdir(exist_ok=True)
        (folder / "memory.oom.group").write_text("1", encoding="ascii")
        with suppress(FileNotFoundError):  # a kernel without swap
            (folder / "memory.swap.max").write_text("0", encoding="ascii")
        self.descriptors = {name: os.open(folder / name, os.O_WRONLY) for name in _WRITTEN}
        """Of the files that a supervisor needs, by name."""
        self.descriptors |= {name: os.open(folder / name, os.O_RDONLY) for name in _READ}
        self._memory_max = os.open(folder / "memory.max", os.O_WRONLY)
        self._pids_max = os.open(folder / "pids.max", os.O_WRONLY)
        self._memory_stat = os.open(folder / "memory.stat", os.O_RDONLY)

    def limit(self, memory: int, processes: int) -> None:
        """Set how many bytes, and how many processes and threads, its next command gets. Raises OSError."""
        os.write(self._memory_max, str(memory + self._left_behind()).encode())
        os.write(self._pids_max, str(processes).encode())

    def _left_behind(self) -> int:
        """Return the bytes of files in a tmpfs that earlier commands left: nothing can take them out of the group."""
        lines = os.pread(self._memory_stat, 64 * 1024, 0).split(b"\n")
        return sum(int(line.split()[1]) for line in lines if line.startswith(b"shmem "))

    def kill(self) -> None:
        """Kill all that is in it."""
        with suppress(OSError):
            os.write(self.descriptors["cgroup.kill"], b"1")


_free: list[ControlGroup] = []


def prepare(entered: Path, slots: int) -> None:
    """Make a group for each slot, if the callback process is in a group of the kind that allows it. Raises OSError."""
    if entered.name == CALLBACK:
        _free.extend(ControlGroup(entered.parent / f"command-{number}") for number in range(slots))


@contextmanager
def one_of_them() -> Iterator[ControlGroup | None]:
    """Lend a group to a command; None: there are none here."""
    group = _free.pop() if _free else None
    try:
        yield group
    finally:
        if group is not None:
            group.kill()
            _free.append(group)
