"""The figures of one measurement, and the meter of what it cost."""

import os
from dataclasses import dataclass, field

from benchmarks.cpu import memory_by_process, seconds_by_process


@dataclass
class Figures:
    """Of one measurement."""

    values: dict[str, float] = field(default_factory=dict)
    cpu_us_per_task: dict[str, float] = field(default_factory=dict)
    """By process; of the whole of the measured work."""
    memory_mib: dict[str, float] = field(default_factory=dict)
    """By process, right after the work (PSS)."""


class Meter:
    """CPU time of a stretch of work."""

    def __init__(self) -> None:
        self._before = seconds_by_process(os.getpid())

    def stop(self, tasks: int, values: dict[str, float], own: str = "") -> Figures:
        """The figures, with what each process used; `own` is what this process is called, if it did any of it."""
        used = seconds_by_process(os.getpid())
        used.subtract(self._before)
        memory = memory_by_process(os.getpid())
        for by_process in (used, memory):
            bench = by_process.pop("bench", 0)
            if own:
                by_process[own] = bench
        return Figures(values, {name: seconds / tasks * 1e6 for name, seconds in used.items()}, dict(memory))
