"""Kills every process that a dead Executor left running, and returns once they are gone.

A callback chooses the environment, the arguments, the group and the session of what it starts. So each of these is
believed only of processes whose user is that of the callbacks or this worker's own.
"""

import asyncio
import math
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import structlog

from duly_core.host.cgroup import Cgroup, ExecutorGroupName, Hierarchy
from duly_core.host.claim_journal import JournalContents, Owner
from duly_core.process.identity import STARTED, has_ended, started, status, user_ids

log = structlog.get_logger()

_PROC = Path("/proc")
_CALLBACK_MODULE = b"duly_executor.callback"
_MOST_BYTES = 4 * 1024 * 1024
"""Of a process's environment, or of its command line; the kernel permits some more."""
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
    leaders: dict[int, int]
    """Its callback processes, which led groups and sessions, and when each started."""
    itself: tuple[int, int] | None
    """Its pid and when it started; None: its end was seen."""
    born_before: float
    """In clock ticks since boot. By then its leaders' numbers cannot have been given to strangers."""
    users: frozenset[int] | None
    """Whose processes may be its own; None: anybody's, for its callbacks ran as root."""

    @classmethod
    def of(cls, left: JournalContents, *, end_was_seen: bool) -> "_Wanted":
        owner = left.owner
        users = frozenset((owner.callback_uid, os.geteuid())) if owner.callback_uid else None
        if end_was_seen:  # no time has passed
            return cls(owner.executor_id, left.leaders, None, math.inf, users)
        last = left.alive_boot_ns / 1e9 + _AFTER_ITS_DEATH.total_seconds()
        ticks = last * os.sysconf("SC_CLK_TCK")
        return cls(owner.executor_id, left.leaders, (owner.pid, owner.started), ticks, users)


async def kill_leftover_processes(left: JournalContents, *, end_was_seen: bool) -> None:
    """Kill what a dead Executor's callbacks started, and return once it is gone: only then may its tasks run again.

    The kernel has sent the callback processes SIGKILL already (PR_SET_PDEATHSIG), but not to what they
    started themselves. That is certain where they have a cgroup; where not, or where something got out of it,
    each round kills what it finds and waits for the end of it; the last finds nothing.
    The caller sets the deadline: a process that hangs in the kernel cannot be killed.
    """
    if (group := _group_of(left.owner)) is not None:
        await _clear(group)
    wanted = _Wanted.of(left, end_was_seen=end_was_seen)
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


def _group_of(owner: Owner) -> Cgroup | None:
    """The Executor's cgroup; None: it had none, or what its journal names is not one that it can have made."""
    if not owner.cgroup:
        return None
    folder, hierarchy = Path(owner.cgroup), Hierarchy.find()
    name = ExecutorGroupName(owner.pid_namespace, owner.pid, owner.started)
    if hierarchy is not None and folder.name == str(name) and hierarchy.may_hold(folder):
        return Cgroup(folder)
    log.warning(
        "cgroup named in a claim journal not touched: its executor cannot have made it", folder=str(folder)
    )
    return None


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
    fields = status(pid)
    if fields is None or has_ended(fields):
        return None
    return _Process(pid, int(fields[2]), int(fields[3]), int(fields[STARTED]))


def _belongs(process: _Process, wanted: _Wanted) -> bool:
    """By what it inherited in its environment, wherever it went; or by its group, whatever it did to that."""
    users = user_ids(process.pid)
    if users is None or (wanted.users is not None and not users <= wanted.users):
        return False
    identity = (process.pid, process.started)
    if identity == wanted.itself or identity in wanted.leaders.items():
        return True
    if _names(process.pid, wanted.executor_id):
        return True
    if process.started > wanted.born_before:
        return False
    # The number of a group that lives on is given to no new process. If its leader is somebody else all
    # the same, ours had ended altogether, and the number is that stranger's now.
    return any(
        number in wanted.leaders and started(number) in (None, wanted.leaders[number])
        for number in (process.group, process.session)
    )


def _names(pid: int, executor_id: str) -> bool:
    """Whether its environment or its command line is that of a callback process of this Executor."""
    if f"DULY_EXECUTOR_ID={executor_id}".encode() in _words(pid, "environ"):
        return True
    return (_CALLBACK_MODULE, executor_id.encode()) in pairwise(_words(pid, "cmdline"))


def _words(pid: int, name: str) -> list[bytes]:
    """Return what a file of the process has between its zeros; nothing if it ended, or is not ours to look at."""
    own = _PROC / str(pid)
    content = _read(own / name)
    if not content:  # when its first thread has ended, only the other threads have it
        with suppress(OSError):
            content = next(filter(None, (_read(thread / name) for thread in (own / "task").iterdir())), b"")
    return content.split(b"\0")


def _read(file: Path) -> bytes:
    with suppress(OSError), file.open("rb") as opened:
        return opened.read(_MOST_BYTES)
    return b""


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
