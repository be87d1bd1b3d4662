"""Callback processes that somebody stopped (SIGSTOP, a debugger): beaten for, but not for ever."""

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from duly_core.settings import format_duration
from duly_executor.callback_pool import CallbackPool

_LOOK_EVERY = 0.5
_STOPPED = frozenset("Tt")


class StoppedProcesses:
    """Kills a process that stands still for longer than the limit; what it ran has crashed."""

    def __init__(self, pool: CallbackPool, limit: timedelta) -> None:
        self._pool = pool
        self._limit = limit
        self._since: dict[int, float] = {}
        """When each was first seen stopped (the loop's time), by pid."""
        self._next_look = 0.0

    def look(self, now: float) -> None:
        """One round; `now` is the loop's time."""
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_EVERY
        processes = {process.process.pid: process for process in self._pool.processes()}
        self._since = {pid: self._since.get(pid, now) for pid in processes if _is_stopped(pid)}
        for pid, since in self._since.items():
            if now - since > self._limit.total_seconds() and processes[pid].fault is None:
                fault = f"stood still (stopped by a signal) for {format_duration(self._limit)} and was killed"
                self._pool.kill_as_crashed(processes[pid], "stopped", fault)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):  # it ended
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] in _STOPPED
    return False
