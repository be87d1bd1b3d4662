"""Keeps what callback processes start from outliving them: in cgroups where that is permitted, else as a subreaper.

docs/decisions/0015-containment.md says what each promises.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Literal, Protocol

import structlog

from duly_core.cgroup import Cgroup, own_folder
from duly_core.errors import SettingsError
from duly_core.process_identity import pid_namespace
from duly_core.process_identity import started as process_started
from duly_executor.subreaper import OrphanReaper

log = structlog.get_logger()

Mode = Literal["auto", "cgroup", "subreaper"]

_ENTER = "import signal, sys; open(sys.argv[1], 'w').write('0'); signal.pause()"
_TRY_WITHIN = timedelta(seconds=10)
"""For a process to enter a group and be killed in it, to try whether that is permitted; it takes milliseconds."""
_TRY_AGAIN = timedelta(milliseconds=10)
_CLEAR_WITHIN = timedelta(seconds=5)
"""For what is left in a group to die; it takes milliseconds, unless it hangs in the kernel."""


class ProcessTree(Protocol):
    """What holds one callback process and all that it starts."""

    @property
    def folder(self) -> str:
        """The cgroup that the process enters before it runs anybody's code; empty: none."""

    def holds(self, pid: int) -> None:
        """This is the process."""

    def kill(self) -> None:
        """Kill all that is in it now; a process group is killed beside this."""

    def holds_others(self) -> bool:
        """Whether something lives in it beside the process."""

    async def emptied(self) -> None:
        """The process has ended: kill what it left behind, and return when that is gone for certain."""


class Containment(Protocol):
    """How the callback processes of one Executor are contained."""

    @property
    def folder(self) -> str:
        """The cgroup of all process trees, for the Controller to kill when this Executor is dead; empty: none."""

    def tree(self, number: int) -> ProcessTree:
        """One for a callback process that is about to start."""

    async def clear_abandoned(self) -> None:
        """Kill what dead Executors have left here, before anything new runs."""

    def look(self) -> None:
        """Take note of what came up; to be called several times a second."""

    async def close(self) -> None:
        """All callback processes have ended: kill what is left all the same."""


def open_containment(mode: Mode) -> Containment:
    """The best that is permitted here, or what the setting demands.

    Raises:
        SettingsError: cgroups are demanded, and not permitted.
    """
    if mode == "subreaper":
        return Subreaper()
    try:
        contained = Cgroups.open()
    except (OSError, subprocess.SubprocessError) as error:
        if mode == "cgroup":
            raise SettingsError(
                f"executor.containment is cgroup, but no cgroup can be made or entered here: {error}; give this "
                "process a cgroup v2 of its own (systemd: Delegate=yes) or set DULY_EXECUTOR_CONTAINMENT=subreaper"
            ) from error
        log.info("containment by process group and subreaper only", reason=str(error))
        return Subreaper()
    log.info("containment by cgroups", folder=contained.folder)
    return contained


class Subreaper:
    """Without privileges: orphans of callback processes come to this process, which kills them in time."""

    folder = ""

    def __init__(self) -> None:
        self._orphan_reaper = OrphanReaper()

    def tree(self, number: int) -> ProcessTree:  # noqa: ARG002 (one is like another)
        return self._orphan_reaper.tree()

    async def clear_abandoned(self) -> None:
        """Orphans of dead Executors went to others: nothing tells them from strangers."""

    def look(self) -> None:
        self._orphan_reaper.look()

    async def close(self) -> None:
        self._orphan_reaper.close()


class Cgroups:
    """A group for this Executor, and in it one for each callback process."""

    def __init__(self, group: Cgroup) -> None:
        self._group = group
        self._made = 0

    @classmethod
    def open(cls) -> "Cgroups":
        """Make the Executor's group, and try whether a process may enter one and be killed in it.

        Raises:
            OSError: it is not permitted.
            SubprocessError: a process could not enter.
        """
        base = own_folder()
        if base is None:
            raise FileNotFoundError("no cgroup v2 hierarchy is mounted")
        group = Cgroup.make(base / _name(os.getpid()))
        try:
            trial = Cgroup.make(group.folder / "trial")
            _try_to_kill_in(trial)
        except BaseException:
            group.remove()
            raise
        trial.remove()
        return cls(group)

    async def clear_abandoned(self) -> None:
        await remove_abandoned(self._group.folder.parent)

    @property
    def folder(self) -> str:
        return str(self._group.folder)

    def tree(self, number: int) -> ProcessTree:
        self._made += 1
        return CgroupProcessTree(Cgroup.make(self._group.folder / f"process-{number}-{self._made}"))

    def look(self) -> None:
        """Nothing comes up: the kernel keeps what starts in a group in it."""

    async def close(self) -> None:
        await _clear(self._group)


def _try_to_kill_in(group: Cgroup) -> None:
    """Have a process enter, and kill it through its group."""
    command = [sys.executable, "-I", "-S", "-c", _ENTER, str(group.folder / "cgroup.procs")]
    end = time.monotonic() + _TRY_WITHIN.total_seconds()
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                group.kill()
                try:
                    process.wait(_TRY_AGAIN.total_seconds())
                except subprocess.TimeoutExpired:
                    if time.monotonic() > end:
                        raise
        finally:
            process.kill()
    if process.returncode != -signal.SIGKILL:
        raise subprocess.CalledProcessError(process.returncode, "entering a cgroup")


async def _clear(group: Cgroup) -> None:
    """Kill what is in it, and remove it when that is dead."""
    try:
        async with asyncio.timeout(_CLEAR_WITHIN.total_seconds()):
            await group.emptied()
    except (OSError, TimeoutError) as error:
        reason = str(error) or "something in it does not die"
        log.warning("cgroup not cleared", folder=str(group.folder), reason=reason)
    group.remove()


class CgroupProcessTree:
    """A group for one callback process."""

    def __init__(self, group: Cgroup) -> None:
        self._group = group

    @property
    def folder(self) -> str:
        return str(self._group.folder)

    def holds(self, pid: int) -> None:
        """The process enters by itself."""

    def kill(self) -> None:
        self._group.kill()

    def holds_others(self) -> bool:
        return self._group.members() > 1

    async def emptied(self) -> None:
        await self._group.emptied()
        self._group.remove()


async def remove_abandoned(base: Path) -> None:
    """Kill and remove the groups of Executors that are dead and had no Controller left to do it."""
    await asyncio.gather(*(_clear(Cgroup(folder)) for folder in _ours(base) if _is_abandoned(folder)))


def _is_abandoned(folder: Path) -> bool:
    namespace, pid, started = folder.name.split("-")[1:]
    # a pid means something within its own namespace only
    return namespace == pid_namespace() and str(process_started(int(pid))) != started


def _ours(base: Path) -> Iterable[Path]:
    return [folder for folder in base.glob("duly-*-*-*") if folder.name.count("-") == 3 and folder.is_dir()]


def _name(pid: int) -> str:
    """Unlike that of any other process, of this boot at least: pids come again, at another time."""
    return f"duly-{pid_namespace()}-{pid}-{process_started(pid)}"
