"""Control groups (cgroup v2) as process trees: what starts in one stays in it, however it daemonises, and dies at one word.

Only the hierarchy is used, to name processes; no resource controller is enabled in it. A group can be made
where the own group's folder may be written: as root, or under systemd with `Delegate=yes`.
"""

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

_FIRST_LOOK = timedelta(milliseconds=1)
_LONGEST_LOOK = timedelta(milliseconds=100)
_GONE = (FileNotFoundError, ProcessLookupError)
"""What a removed group's files answer: no such file, or (to one that was open) no such device."""


def own_folder(proc: Path = Path("/proc/self")) -> Path | None:
    """The folder of the group that this process is in; None: no cgroup v2 is mounted, or ours is out of sight."""
    try:
        groups = (proc / "cgroup").read_text(encoding="utf-8").splitlines()
        mounts = (proc / "mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    own = next((line.removeprefix("0::") for line in groups if line.startswith("0::/")), None)
    if own is None or own.startswith("/.."):
        return None
    for line in mounts:
        mounted, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            root, point = (Path(_unescaped(field)) for field in mounted.split(" ")[3:5])
            if Path(own).is_relative_to(root):
                return point / Path(own).relative_to(root)
    return None


def _unescaped(field: str) -> str:
    """As the kernel meant it: it writes spaces and the like as three octal digits."""
    return field.encode("latin-1", "backslashreplace").decode("unicode_escape")


class Cgroup:
    """One group, by its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path) -> "Cgroup":
        """Make the group, unless it is there.

        Raises:
            OSError: it is not permitted.
        """
        folder.mkdir(exist_ok=True)
        return cls(folder)

    def kill(self) -> None:
        """Send SIGKILL to everything in it and in groups below it.

        Raises:
            OSError: it is not permitted.
        """
        with suppress(*_GONE):
            try:
                # may be written and not read, even by its owner; missing before Linux 5.14
                word = os.open(self.folder / "cgroup.kill", os.O_WRONLY)
            except FileNotFoundError:
                self._kill_one_by_one()
            else:
                try:
                    os.write(word, b"1")
                finally:
                    os.close(word)

    def _kill_one_by_one(self) -> None:
        with suppress(OSError), (self.folder / "cgroup.freeze").open("r+", encoding="ascii") as word:
            word.write("1")  # so that nothing forks faster than it is killed; what is frozen can be
        for folder in self._folders():
            with suppress(*_GONE):
                for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
                    with suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)

    def is_empty(self) -> bool:
        """Whether nothing lives in it or below it."""
        try:
            return "populated 1" not in (self.folder / "cgroup.events").read_text(encoding="ascii")
        except OSError as error:
            if isinstance(error, _GONE) or not self.folder.exists():
                return True
            raise

    def members(self) -> int:
        """How many processes live in it and in groups below it."""
        members = 0
        for folder in self._folders():
            with suppress(*_GONE):
                members += len((folder / "cgroup.procs").read_text(encoding="ascii").split())
        return members

    async def emptied(self) -> None:
        """Kill until nothing is left. The caller sets the deadline: what hangs in the kernel cannot be killed."""
        pause = _FIRST_LOOK
        while not self.is_empty():
            self.kill()  # again: without cgroup.kill, something may have forked meanwhile
            await asyncio.sleep(pause.total_seconds())
            pause = min(2 * pause, _LONGEST_LOOK)

    def remove(self) -> None:
        """Remove it and those below it, as far as they are empty."""
        for folder in self._folders():
            with suppress(OSError):
                folder.rmdir()

    def _folders(self) -> Iterator[Path]:
        """The lowest first, this one last."""
        for folder, _, _ in os.walk(self.folder, topdown=False):
            yield Path(folder)
