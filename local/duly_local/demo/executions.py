"""Reads the execution log while it grows: every execution, its start, and its end if it came to one."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from duly_local.demo.journal import SUFFIX


@dataclass(frozen=True, slots=True)
class Execution:
    """One run of a callback, as the process that ran it wrote it down."""

    task_id: str
    attempt: int
    fence: int
    pid: int
    alone: bool
    """Whether no other execution of the task held the task's lock when this one began."""
    started_at_ns: int
    """Wall clock, in nanoseconds since 1970: comparable with when the task was due."""
    started_boot_ns: int
    """CLOCK_BOOTTIME: comparable with the ends of executions."""
    ended_boot_ns: int | None = None
    """None: it runs, or its process died before it ended."""
    succeeded: bool = False

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Self:
        """Of a start."""
        return cls(
            record["task_id"],
            record["attempt"],
            record["fence"],
            record["pid"],
            record["alone"],
            record["wall_ns"],
            record["boot_ns"],
        )


class ExecutionLog:
    """What the callback processes have written so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read_up_to: dict[Path, int] = {}
        self._executions: dict[tuple[Path, int], Execution] = {}
        self._open: set[tuple[Path, int]] = set()
        self.succeeded: set[str] = set()
        """Ids of the tasks that some execution ended well for."""
        self.unreadable = 0
        """Lines that are no record."""

    def catch_up(self) -> None:
        """Read what was added."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._read_up_to.get(path, 0))
                added = file.read()
            # What has no line end yet is being written, or was cut short by a kill: it never counts.
            whole = added[: added.rfind(b"\n") + 1]
            self._read_up_to[path] = self._read_up_to.get(path, 0) + len(whole)
            for line in whole.splitlines():
                self._take(path, line)

    def executions(self) -> list[Execution]:
        """All of them, in the order of their starts."""
        return sorted(self._executions.values(), key=lambda execution: execution.started_boot_ns)

    def running(self) -> list[Execution]:
        """Those without an end."""
        return [self._executions[key] for key in self._open]

    def _take(self, path: Path, line: bytes) -> None:
        try:
            record = json.loads(line)
            key = (path, record["number"])
            if record["event"] == "start":
                self._executions[key] = Execution.from_record(record)
                self._open.add(key)
            else:
                self._end(key, record)
        except (ValueError, KeyError, TypeError):
            self.unreadable += 1

    def _end(self, key: tuple[Path, int], record: dict[str, Any]) -> None:
        ended = replace(self._executions[key], ended_boot_ns=record["boot_ns"], succeeded=record["succeeded"])
        self._executions[key] = ended
        self._open.discard(key)
        if ended.succeeded:
            self.succeeded.add(ended.task_id)
