"""Control groups (cgroup v2) as process trees: what starts in one stays in it, however it daemonises, and dies at one word.

The hierarchy names processes. Controllers are enabled in it for commands only, whose limits they hold. A group can be made
where the own group's folder may be written: as root, or under systemd with `Delegate=yes`.

A folder may be named by somebody who is not to be believed. So nothing is killed, written or removed through a path: the
folder is opened part by part from the mount of the hierarchy on, no part may be a link or lie in another file system,
and everything in it is reached from the folder that was opened.
"""

import asyncio
import errno
import os
import re
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

_FIRST_LOOK = timedelta(milliseconds=1)
_LONGEST_LOOK = timedelta(milliseconds=100)
_GONE = (FileNotFoundError, ProcessLookupError)
"""What a removed group's files answer: no such file, or (to one that was open) no such device."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_MOST_BYTES = 1024 * 1024
"""Of one of a group's files; a list of processes goes on at the next look."""


_NAME = re.compile(r"duly-([0-9]{1,20})-([0-9]{1,10})-([0-9]{1,20})")


class ExecutorGroupName(NamedTuple):
    """How an Executor names its group: unlike that of any other process of this boot. Process numbers come again, later."""

    pid_namespace: str
    """In which the process number means something."""
    pid: int
    started: int
    """In clock ticks since boot."""

    def __str__(self) -> str:
        return f"duly-{self.pid_namespace}-{self.pid}-{self.started}"

    @classmethod
    def parse(cls, name: str) -> "ExecutorGroupName | None":
        """Read a folder's name; None: it is no Executor's."""
        found = _NAME.fullmatch(name)
        return cls(found[1], int(found[2]), int(found[3])) if found else None


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """The cgroup v2 hierarchy, as this process sees it."""

    mount: Path
    device: int
    """Of its file system, as `st_dev` says it."""
    own: Path
    """The folder of the group that this process is in."""

    @classmethod
    def find(cls, proc: Path = Path("/proc/self")) -> "Hierarchy | None":
        """Return it; None: no cgroup v2 is mounted, or the own group is out of sight."""
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
                fields = mounted.split(" ")
                root, point = (Path(_unescaped(field)) for field in fields[3:5])
                if Path(own).is_relative_to(root):
                    major, minor = map(int, fields[2].split(":"))
                    return cls(point, os.makedev(major, minor), point / Path(own).relative_to(root))
        return None

    def may_hold(self, folder: Path) -> bool:
        """Whether a worker beside this process, or this one itself, may have made a group there."""
        base = self.own if self.own == self.mount else self.own.parent
        return ".." not in folder.parts and folder != base and folder.is_relative_to(base)

    def open(self, folder: Path) -> int:
        """Open the folder of a group for reading; the caller closes the descriptor.

        Raises:
            OSError: it does not lie in this hierarchy without links, or cannot be opened.
        """
        if ".." in folder.parts or not folder.is_relative_to(self.mount):
            raise OSError(errno.EXDEV, f"{folder} is no folder of the cgroup hierarchy {self.mount}")
        descriptor = os.open(self.mount, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for part in folder.relative_to(self.mount).parts:
                inner = os.open(part, _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            if os.fstat(descriptor).st_dev != self.device:
                raise OSError(errno.EXDEV, f"{folder} is no cgroup")  # noqa: TRY301 (the descriptor is closed)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor


def own_folder(proc: Path = Path("/proc/self")) -> Path | None:
    """The folder of the group that this process is in; None: no cgroup v2 is mounted, or ours is out of sight."""
    hierarchy = Hierarchy.find(proc)
    return hierarchy.own if hierarchy is not None else None


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
        made = cls(folder)
        with _opened(folder.parent) as parent, suppress(FileExistsError):
            os.mkdir(folder.name, dir_fd=parent)
        with _opened(folder):
            return made

    def enable(self, controllers: Collection[str]) -> None:
        """Let the groups in it have limits.

        Raises:
            OSError: it has not all of these controllers itself, a process is in it, or it is not permitted.
        """
        with _opened(self.folder) as folder:
            missing = sorted({*controllers} - {*_read(folder, "cgroup.controllers").decode("ascii").split()})
            if missing:
                raise OSError(errno.ENOTSUP, f"{self.folder} has no controller {', '.join(missing)}")
            try:
                _write(folder, "cgroup.subtree_control", " ".join(f"+{each}" for each in controllers))
            except OSError as error:
                if error.errno == errno.EBUSY:
                    raise OSError(errno.EBUSY, f"processes are in {self.folder} itself") from error
                raise

    def kill(self) -> None:
        """Send SIGKILL to everything in it and in groups below it.

        Raises:
            OSError: it is not permitted, or the folder is no cgroup.
        """
        with suppress(*_GONE), _opened(self.folder) as folder:
            try:
                # may be written and not read, even by its owner; missing before Linux 5.14
                _write(folder, "cgroup.kill")
            except FileNotFoundError:
                self.kill_one_by_one()

    def kill_one_by_one(self) -> None:
        """Freeze it, and send SIGKILL to each process in it and in groups below it.

        Raises:
            OSError: it is not permitted, or the folder is no cgroup.
        """
        with suppress(*_GONE), _opened(self.folder) as folder:
            with suppress(OSError):  # so that nothing forks faster than it is killed; what is frozen can be
                _write(folder, "cgroup.freeze")
            for each in _folders(folder):
                with suppress(*_GONE):
                    for pid in _pids(each):
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)

    def is_empty(self) -> bool:
        """Whether nothing lives in it or below it.

        Raises:
            OSError: that cannot be read, or the folder is no cgroup.
        """
        try:
            with _opened(self.folder) as folder:
                return b"populated 1" not in _read(folder, "cgroup.events")
        except OSError as error:
            if isinstance(error, _GONE) or not self.folder.exists():
                return True
            raise

    def members(self) -> int:
        """How many processes live in it and in groups below it."""
        with suppress(*_GONE), _opened(self.folder) as folder:
            return sum(len(_pids(each)) for each in _folders(folder))
        return 0

    async def emptied(self) -> None:
        """Kill until nothing is left. The caller sets the deadline: what hangs in the kernel cannot be killed."""
        pause = _FIRST_LOOK
        while not self.is_empty():
            self.kill()  # again: without cgroup.kill, something may have forked meanwhile
            await asyncio.sleep(pause.total_seconds())
            pause = min(2 * pause, _LONGEST_LOOK)

    def remove(self) -> None:
        """Remove it and those below it, as far as they are empty."""
        with suppress(OSError), _opened(self.folder.parent) as parent:
            _remove(parent, self.folder.name)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder of a group, when it is certain that it is one.

    Raises:
        OSError: it is none, or cannot be opened.
    """
    hierarchy = Hierarchy.find()
    if hierarchy is None:
        # not "no such file": that would say that the group is gone, and so empty
        raise OSError(errno.ENOTSUP, "no cgroup v2 hierarchy is in sight")
    descriptor = hierarchy.open(folder)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _pids(folder: int) -> list[int]:
    """The processes in a group, other than this one."""
    words = _read(folder, "cgroup.procs").split()
    return [pid for pid in map(int, words) if pid > 1 and pid != os.getpid()]


def _read(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def _write(folder: int, name: str, text: str = "1") -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def _folders(folder: int) -> Iterator[int]:
    """Descriptors of the groups below, the lowest first, then this one; each for as long as its turn lasts."""
    for _, _, _, descriptor in os.fwalk(".", topdown=False, follow_symlinks=False, dir_fd=folder):
        yield descriptor


def _remove(parent: int, name: str) -> None:
    with suppress(OSError):
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
        try:
            with os.scandir(descriptor) as entries:
                inner = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
            for each in inner:
                _remove(descriptor, each)
        finally:
            os.close(descriptor)
        os.rmdir(name, dir_fd=parent)
