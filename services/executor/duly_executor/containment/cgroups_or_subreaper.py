"""Keeps what callback processes start from outliving them: in cgroups where that is permitted, else as a subreaper.

docs/decisions/0015-containment.md says what each promises.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Literal

import structlog

from duly import command_lambdas
from duly.command_lambdas import control_groups
from duly_core.errors import SettingsError
from duly_core.host.cgroup import Cgroup, ExecutorGroupName, own_folder
from duly_core.process.identity import pid_namespace
from duly_core.process.identity import started as process_started
from duly_executor.containment.process_group import WATCHED, Containment, ProcessTree
from duly_executor.containment.subreaper import Subreaper

log = structlog.get_logger()

Mode = Literal["auto", "cgroup", "subreaper"]

_ENTER = "import signal, sys; open(sys.argv[1], 'w').write('0'); signal.pause()"
_WORKERS_OWN = "duly-worker"
"""A group with this name holds the worker's own processes (systemd: DelegateSubgroup=), so that the one above it may have limited groups."""
_TRY_WITHIN = timedelta(seconds=10)
"""For a process to enter a group and be killed in it, to try whether that is permitted; it takes milliseconds."""
_TRY_AGAIN = timedelta(milliseconds=10)
_CLEAR_WITHIN = timedelta(seconds=5)
"""For what is left in a group to die; it takes milliseconds, unless it hangs in the kernel."""


def open_containment(mode: Mode, application: str = "") -> Containment:
    """The best that is permitted here, or what the setting demands.

    Raises:
        SettingsError: cgroups are demanded, and not permitted.
    """
    opened = _open(mode)
    if application.startswith(f"{command_lambdas.__name__}:"):
        opened.limit_commands()
    return opened


def _open(mode: Mode) -> Containment:
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


class Cgroups(Containment):
    """A group for this Executor, and in it one for each callback process."""

    def __init__(self, group: Cgroup) -> None:
        self._group = group
        self.folder = str(group.folder)
        self._made = 0
        self._limits_commands = False

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
        if base.name == _WORKERS_OWN:
            base = base.parent
        group = Cgroup.make(base / _name(os.getpid()))
        try:
            trial = Cgroup.make(group.folder / "trial")
            _try_to_kill_in(trial)
        except BaseException:
            group.remove()
            raise
        trial.remove()
        return cls(group)

    def limit_commands(self) -> None:
        try:
            for each in (Cgroup(self._group.folder.parent), self._group):
                each.enable(control_groups.CONTROLLERS)
        except OSError as error:
            log.info(WATCHED, reason=error.strerror)
            return
        log.info("limits of commands are held by cgroups")
        self._limits_commands = True

    async def clear_abandoned(self) -> None:
        await remove_abandoned(self._group.folder.parent)

    def tree(self, number: int) -> ProcessTree:
        self._made += 1
        group = Cgroup.make(self._group.folder / f"process-{number}-{self._made}")
        if not self._limits_commands:
            return CgroupProcessTree(group, group)
        group.enable(control_groups.CONTROLLERS)
        return CgroupProcessTree(group, Cgroup.make(group.folder / control_groups.CALLBACK))

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


class CgroupProcessTree(ProcessTree):
    """A group for one callback process."""

    def __init__(self, group: Cgroup, entered: Cgroup) -> None:
        self._group = group
        self.folder = str(entered.folder)

    def kill(self) -> None:
        self._group.kill()

    def holds_others(self) -> bool:
        return self._group.members() > 1

    async def emptied(self) -> None:
        await self._group.emptied()
        self._group.remove()


async def remove_abandoned(base: Path) -> None:
    """Kill and remove the groups of Executors that are dead and had no Controller left to do it."""
    await asyncio.gather(*(_clear(Cgroup(folder)) for folder in base.iterdir() if _is_abandoned(folder)))


def _is_abandoned(folder: Path) -> bool:
    name = ExecutorGroupName.parse(folder.name)
    # a pid means something within its own namespace only
    return (
        name is not None
        and name.pid_namespace == pid_namespace()
        and process_started(name.pid) != name.started
    )


def _name(pid: int) -> str:
    return str(ExecutorGroupName(pid_namespace(), pid, process_started(pid) or 0))
