"""Which callback processes are replaced because they are old: they ended many tasks, or their memory has grown.

Decisions only: what a process uses is asked from outside. One at a time is replaced, so the others keep the work going.
"""

import mmap
from collections.abc import Callable, Collection
from pathlib import Path

from duly_executor import events
from duly_executor.processes.process import CallbackProcess
from duly_executor.settings import ExecutorSettings

_YOUNG = 10.0
"""Seconds in which a process is not replaced for its memory: it may need so much from the beginning."""


class Recycling:
    """Marks the processes that are to be replaced; the supervisor starts another first."""

    def __init__(self, settings: ExecutorSettings, memory_of: Callable[[int], int] | None = None) -> None:
        """Args: `memory_of` returns the bytes of memory that the process of a pid uses; None: as the kernel says."""
        self._most_tasks = settings.recycle_after_tasks
        self._most_memory = settings.recycle_above_memory
        self._most_lingering = settings.processes
        self._memory_of = memory_of or resident_bytes

    def __bool__(self) -> bool:
        return bool(self._most_tasks or self._most_memory)

    def mark(self, processes: Collection[CallbackProcess], now: float) -> bool:
        """Mark one that is too old, unless one waits for its successor; whether one was marked. `now`: the loop's time."""
        if any(each.is_old and each.works for each in processes):
            return False
        if sum(each.lingers_since is not None for each in processes) >= self._most_lingering:
            return False
        for process in processes:
            if process.works and (reason := self._reason(process, now)):
                process.is_old = True
                events.process_recycled(
                    process.process.pid, reason, process.told, self._memory_of(process.process.pid)
                )
                return True
        return False

    def _reason(self, process: CallbackProcess, now: float) -> str:
        if self._most_tasks and process.told >= self._most_tasks:
            return "tasks"
        grown = self._most_memory and now - process.began_at > _YOUNG
        if grown and self._memory_of(process.process.pid) > self._most_memory:
            return "memory"
        return ""


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process, without that of programs that it started; 0: it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * mmap.PAGESIZE
    except (OSError, IndexError, ValueError):
        return 0
