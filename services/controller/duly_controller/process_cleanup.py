"""What a dead Executor left behind: its callback processes and all that they started, killed for certain."""

import asyncio
import math
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import structlog

from duly_controller.executor_registry import AttachedExecutor
from duly_core.cgroup import Cgroup

log = structlog.get_logger()

_PROC = Path("/proc")
_DEAD = frozenset("ZXx")
_STARTED = 15
"""The place of the start time among the fields of /proc/PID/stat that follow the session."""
_AFTER_ITS_DEATH = timedelta(seconds=10)
"""How long after an Executor's last sign of life something of its own may have started."""


@dataclass(frozen=True, slots=True)
class _Process:
    pid: int
    group: int
    session: int
    started: int
    """In clock ticks since boot."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """By what the processes of a dead Executor are known."""

    executor_id: str
    leaders: frozenset[int]
    """Its callback processes, which led groups and sessions."""
    itself: tuple[int, int] | None
    """Its pid and when it started, if its journal tells."""
    born_before: float
    """In clock ticks since boot. By then its leaders' numbers cannot have been given to strangers."""

    @classmethod
    def of(cls, executor: AttachedExecutor) -> "_Wanted":
        leaders = frozenset(executor.board.pids() if executor.board else ())
        left = executor.journal.left if executor.journal is not None else None
        if left is None or executor.pidfd >= 0:  # its end was seen: no time has passed
            return cls(executor.executor_id, leaders, None, math.inf)
        last = left.alive_boot_ns / 1e9 + _AFTER_ITS_DEATH.total_seconds()
        itself = (left.owner.pid, left.owner.started)
        return cls(executor.executor_id, leaders, itself, last * os.sysconf("SC_CLK_TCK"))


async def kill_leftover_processes(executor: AttachedExecutor) -> None:
    """Return when nothing is left that a dead Executor's callbacks started: only then may its tasks run again.

    The kernel has sent the callback processes SIGKILL already (PR_SET_PDEATHSIG), but not to what they
    started themselves. That is certain where they have a cgroup; where not, or where something got out of it,
    each round kills what it finds and waits for the end of it; the last finds nothing.
    The caller sets the deadline: a process that hangs in the kernel cannot be killed.
    """
    if executor.cgroup is not None:
        await _clear(Cgroup(executor.cgroup))
    wanted = _Wanted.of(executor)
    while remains := await asyncio.to_thread(_find, wanted):
        for pidfd in remains:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        try:
            for pidfd in remains:
                await _readable(pidfd)
        finally:
            for pidfd in remains:
                os.close(pidfd)


async def _clear(group: Cgroup) -> None:
    """Kill what is in the Executor's cgroup; if that is not ours to kill, other means must do."""
    try:
        await group.emptied()
    except OSError as error:
        log.warning("executor cgroup not cleared", folder=str(group.folder), reason=str(error))
    group.remove()


def _find(wanted: _Wanted) -> list[int]:
    """A pidfd of each process that is left."""
    found = []
    for process in _living():
        with suppress(OSError):  # it ended
            pidfd = os.pidfd_open(process.pid)
            # looked at only now: what the pidfd holds cannot turn into another process of the same number
            if _belongs(process, wanted):
                found.append(pidfd)
            else:
                os.close(pidfd)
    return found


def _living() -> Iterator[_Process]:
    for entry in _PROC.iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            process = _look(int(entry.name))
            if process is not None:
                yield process


def _look(pid: int) -> _Process | None:
    """The process, unless it has ended (though its parent may have yet to hear of it)."""
    try:
        # after the name, which may hold anything, its closing bracket too
        state, _, group, session, *more = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return None if state in _DEAD else _Process(pid, int(group), int(session), int(more[_STARTED]))


def _belongs(process: _Process, wanted: _Wanted) -> bool:
    """By what it inherited in its environment, wherever it went; or by its group, whatever it did to that."""
    if _names(process.pid, wanted.executor_id) or (process.pid, process.started) == wanted.itself:
        return True
    if process.started > wanted.born_before:
        return False
    # The number of a group that lives on is given to no new process. If its leader is somebody else all
    # the same, ours had ended altogether, and the number is that stranger's now.
    return any(
        number in wanted.leaders and (_look(number) is None or _names(number, wanted.executor_id))
        for number in (process.group, process.session)
    )


def _names(pid: int, executor_id: str) -> bool:
    """Whether its environment or its command line is that of a callback process of this Executor."""
    wanted = {f"DULY_EXECUTOR_ID={executor_id}".encode(), executor_id.encode()}
    for name in ("environ", "cmdline"):
        with suppress(OSError):  # it ended, or is not ours to look at
            if not wanted.isdisjoint((_PROC / str(pid) / name).read_bytes().split(b"\0")):
                return True
    return False


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    loop.add_reader(descriptor, _resolve, ended)
    try:
        await ended
    finally:
        loop.remove_reader(descriptor)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
