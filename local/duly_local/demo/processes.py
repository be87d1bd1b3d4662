"""The processes of the run, as the kernel lists them: names, pids, and who started whom."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """A process that runs now."""

    pid: int
    parent: int
    arguments: tuple[str, ...]

    def runs(self, module: str) -> bool:
        """Whether it was started as `python -m MODULE`, or, for other programs, under that name."""
        return module in self.arguments or Path(self.arguments[0]).name == module


def children_of(parent: int) -> list[Process]:
    """The processes that it started and that run, oldest first."""
    return sorted(
        (process for process in _all() if process.parent == parent), key=lambda process: process.pid
    )


def executors_of(worker: int) -> list[Process]:
    """The Executors of a host, by its Controller's pid."""
    return [process for process in children_of(worker) if process.runs("duly_executor")]


def callback_processes_of(executor: int) -> list[Process]:
    """The processes in which an Executor runs callbacks."""
    return [process for process in children_of(executor) if process.runs("duly_executor.callback")]


def _all() -> Iterator[Process]:
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            # The name in parentheses may hold anything, so what follows is found from the right.
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:  # it has ended since
            continue
        if state not in ("Z", "X") and arguments[0]:
            yield Process(int(entry.name), int(parent), tuple(arguments))
