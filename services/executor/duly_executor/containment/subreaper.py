"""Where cgroups are not permitted: each callback process is the subreaper of what it starts, and the Executor is theirs.

So a daemon that a callback leaves stays a child of its callback process while that lives, whatever it does to its
environment, session or parent; and when that process dies it becomes a child of the Executor. Whatever comes to
the Executor that is not a callback process was therefore made by one that is dead.
"""

import asyncio
import os
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import structlog

from duly_core.process.identity import lives
from duly_core.process.parent import become_subreaper
from duly_executor.containment.process_group import Containment, ProcessTree

log = structlog.get_logger()

_LOOK_AGAIN = timedelta(milliseconds=2)
_LONGEST_LOOK = timedelta(milliseconds=100)
_START_WITHIN = timedelta(seconds=60)
"""For a fork and an exec, which take milliseconds."""


class SubreaperProcessTree(ProcessTree):
    """One callback process, as far as its orphans go."""

    def __init__(self, subreaper: "Subreaper") -> None:
        self._subreaper = subreaper
        self.pid: int | None = None
        """None: it is being started."""

    def holds(self, pid: int) -> None:
        self.pid = pid

    def kill(self) -> None:
        """What it made comes to us when it is dead, and is killed then."""

    def holds_others(self) -> bool:
        return self.pid is not None and any(map(lives, _descendants(self.pid)))

    async def emptied(self) -> None:
        await self._subreaper.without(self)


class Subreaper(Containment):
    """Without privileges: orphans of callback processes come to this process, which kills them in time."""

    def __init__(self) -> None:
        self._trees: set[SubreaperProcessTree] = set()
        """Of callback processes that live, or whose end is being dealt with."""
        self._beyond_us: set[int] = set()
        """Orphans that became another user's, whom we may not kill."""
        become_subreaper()

    def tree(self, number: int) -> SubreaperProcessTree:  # noqa: ARG002 (one is like another)
        made = SubreaperProcessTree(self)
        self._trees.add(made)
        return made

    def look(self) -> None:
        """Bury those that ended."""
        if all(tree.pid is not None for tree in self._trees):
            self._orphans()

    async def without(self, tree: SubreaperProcessTree) -> None:
        """This callback process is dead: return when nothing is left of it."""
        if tree.pid is None:  # it never started
            self._trees.discard(tree)
            return
        await self._all_started()
        self._trees.discard(tree)
        pause = _LOOK_AGAIN
        while doomed := self._orphans():
            for pid in doomed:
                self._kill(pid)
            await asyncio.sleep(pause.total_seconds())
            pause = min(2 * pause, _LONGEST_LOOK)
            await self._all_started()

    def _orphans(self) -> list[int]:
        """Children that are no callback processes, and live; the others are buried."""
        known = {tree.pid for tree in self._trees}
        alive = []
        for pid in _children():
            if pid in known or pid in self._beyond_us:
                continue
            with suppress(ChildProcessError):
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    alive.append(pid)
        return alive

    def _kill(self, pid: int) -> None:
        """A process and what is below it: stopped first, so that none forks on, and what is left comes to us."""
        _stopped_below(pid)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            log.exception("process of a callback not killable: it runs as another user", pid=pid)
            self._beyond_us.add(pid)

    async def _all_started(self) -> None:
        """Raises: TimeoutError: one does not start. This Executor is of no use then: it cannot tell whose orphans are whose."""
        async with asyncio.timeout(_START_WITHIN.total_seconds()):
            while any(tree.pid is None for tree in self._trees):  # noqa: ASYNC110 (it takes milliseconds)
                await asyncio.sleep(_LOOK_AGAIN.total_seconds())

    async def close(self) -> None:
        for pid in _children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _children() -> list[int]:
    """Of this process's main thread: it starts the callback processes, and the kernel gives it the orphans."""
    pid = os.getpid()
    return _listed(Path(f"/proc/{pid}/task/{pid}"))


def _stopped_below(pid: int) -> None:
    """Stop a process and its descendants, until a look at what is stopped finds nothing more."""
    _stop(pid)
    found: set[int] = set()
    while new := _descendants(pid) - found:
        for each in new:
            _stop(each)
        found |= new


def _stop(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGSTOP)


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    unread = [pid]  # no recursion: a callback may make a chain of processes of any length
    while unread:
        with suppress(OSError):  # it ended
            for thread in Path(f"/proc/{unread.pop()}/task").iterdir():
                new = set(_listed(thread)) - found
                found |= new
                unread += new
    return found


def _listed(thread: Path) -> list[int]:
    with suppress(OSError):
        return [int(child) for child in (thread / "children").read_text(encoding="ascii").split()]
    return []
