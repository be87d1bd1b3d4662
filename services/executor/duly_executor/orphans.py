"""Where cgroups are not permitted: orphans of callback processes come to the Executor (PR_SET_CHILD_SUBREAPER).

What an orphan says of itself (its environment, its session) its maker could change. What cannot be changed is
when it came: only a process that lived then can have made it. It is killed when none of those lives any more;
with one callback process, that is at once when that one dies.
"""

import asyncio
import ctypes
import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import structlog

log = structlog.get_logger()

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_AGAIN = timedelta(milliseconds=2)
_LONGEST_LOOK = timedelta(milliseconds=100)
_START_WITHIN = timedelta(seconds=60)
"""For a fork and an exec, which take milliseconds."""


class OrphanCage:
    """One callback process, as far as its orphans go."""

    folder = ""

    def __init__(self, orphans: "Orphans") -> None:
        self._orphans = orphans
        self.pid: int | None = None
        """None: it is being started."""

    def holds(self, pid: int) -> None:
        self.pid = pid

    def kill(self) -> None:
        """Its orphans are killed when it is dead, for others may have made them; what it has not left yet is its own."""
        if self.pid is not None:
            self._orphans.claim_tree(self, self.pid)

    async def emptied(self) -> None:
        await self._orphans.without(self)


class Orphans:
    """The children of this process that are no callback processes."""

    def __init__(self) -> None:
        self._cages: set[OrphanCage] = set()
        """Of callback processes that live, or whose end is being dealt with."""
        self._makers: dict[int, set[OrphanCage]] = {}
        """Who may have made each orphan, and lives."""
        self._made_by: dict[int, OrphanCage] = {}
        """What was seen below a callback process (or its orphans) when that was to be killed: nobody else made it."""
        self._beyond_us: set[int] = set()
        """Orphans that became another user's, whom we may not kill."""
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)

    def cage(self) -> OrphanCage:
        """For a callback process that is about to start."""
        made = OrphanCage(self)
        self._cages.add(made)
        return made

    def look(self) -> None:
        """Note who may have made those that are new, and bury those that ended."""
        self._bury()
        if any(cage.pid is None for cage in self._cages):
            return  # a new child may be the callback process that is being started
        known = {cage.pid for cage in self._cages}
        for pid in _children():
            if pid not in known and pid not in self._makers and pid not in self._beyond_us:
                maker = self._made_by.get(pid)
                self._makers[pid] = set(self._cages) if maker is None else {maker} & self._cages

    async def without(self, cage: OrphanCage) -> None:
        """This callback process is dead: return when nothing is left that nobody else can have made."""
        if cage.pid is None:  # it never started
            self._cages.discard(cage)
            return
        await self._all_started()
        self.look()
        self._cages.discard(cage)
        pause = _LOOK_AGAIN
        for makers in self._makers.values():
            makers.discard(cage)
        while doomed := [pid for pid, makers in self._makers.items() if not makers]:
            for pid in doomed:
                self._kill(cage, pid)
            await asyncio.sleep(pause.total_seconds())
            pause = min(2 * pause, _LONGEST_LOOK)
            self.look()
        self._made_by = {pid: maker for pid, maker in self._made_by.items() if maker is not cage}

    def claim_tree(self, cage: OrphanCage, pid: int) -> None:
        """Stop a child of ours, which is about to be killed, and note what is below it: that comes to us next."""
        if pid in _children():  # else its end was heard of, and the number may be a stranger's
            self._made_by.update(dict.fromkeys(_stopped_below(pid), cage))

    def _kill(self, cage: OrphanCage, pid: int) -> None:
        self.claim_tree(cage, pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            log.exception("what a callback left behind cannot be killed: it runs as another user", pid=pid)
            del self._makers[pid]
            self._beyond_us.add(pid)

    async def _all_started(self) -> None:
        """Raises: TimeoutError: one does not start. This Executor is of no use then: it cannot tell whose orphans are whose."""
        async with asyncio.timeout(_START_WITHIN.total_seconds()):
            while any(cage.pid is None for cage in self._cages):  # noqa: ASYNC110 (it takes milliseconds)
                await asyncio.sleep(_LOOK_AGAIN.total_seconds())

    def close(self) -> None:
        """No callback process is left: neither are their orphans."""
        for pid in _children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _bury(self) -> None:
        for pid in list(self._makers):
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    continue
            del self._makers[pid]


def _children() -> list[int]:
    """Of this process's main thread: it starts the callback processes, and the kernel gives it the orphans."""
    pid = os.getpid()
    return _listed(Path(f"/proc/{pid}/task/{pid}"))


def _stopped_below(pid: int) -> set[int]:
    """The descendants of a process, which are stopped with it, so that none forks on while they are looked for."""
    _stop(pid)
    found: set[int] = set()
    while new := _descendants(pid) - found:  # until a look at what is stopped finds nothing more
        for each in new:
            _stop(each)
        found |= new
    return found


def _stop(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGSTOP)


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with suppress(OSError):  # it ended
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in _listed(thread):
                found |= {child} | _descendants(child)
    return found


def _listed(thread: Path) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in (thread / "children").read_text(encoding="ascii").split()]
    return []
