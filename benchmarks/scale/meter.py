"""Times requests one after another, and counts the CPU of each process meanwhile, less what they use idle."""

import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.cpu import memory_by_process, scheduled_seconds_by_process
from benchmarks.percentiles import percentile

PROCESSES = ("console", "frontend", "postgres")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one request."""

    name: str
    median_ms: float
    p95_ms: float
    cpu_ms: dict[str, float]
    """By process."""
    note: str = ""

    def cells(self) -> list[str]:
        """Return it as a row."""
        figures = (self.median_ms, self.p95_ms, *(self.cpu_ms[name] for name in PROCESSES))
        return [self.name, *(f"{each:,.1f}" for each in figures), self.note]


class Meter:
    """Of an installation whose processes are descendants of this one."""

    def __init__(self, times: int) -> None:
        self._times = times
        self._idle: dict[str, float] = {}

    def idle(self, seconds: float) -> dict[str, float]:
        """Return what each process uses, in percent of a core, and take it off from now on."""
        began, before = time.monotonic(), _used()
        time.sleep(seconds)
        used, passed = _used(), time.monotonic() - began
        used.subtract(before)
        self._idle = {name: value / passed for name, value in used.items()}
        return {name: value * 100 for name, value in self._idle.items() if value > 0}

    def cost(self, name: str, ask: Callable[[], str]) -> Cost:
        """Ask some times, after a first time that is left out; `ask` returns a note."""
        note = ask()
        taken = []
        began, before = time.monotonic(), _used()
        for _ in range(self._times):
            started = time.perf_counter()
            ask()
            taken.append((time.perf_counter() - started) * 1e3)
        passed = time.monotonic() - began
        used = _used()
        used.subtract(before)
        cpu = {
            each: max(0.0, used[each] - self._idle.get(each, 0.0) * passed) / self._times * 1e3
            for each in PROCESSES
        }
        taken.sort()
        found = Cost(name, statistics.median(taken), percentile(taken, 0.95), cpu, note)
        print("  ", *found.cells(), flush=True)
        return found


def memory() -> dict[str, float]:
    """Return MiB by process (PSS)."""
    return dict(memory_by_process(os.getpid()))


def _used() -> Counter[str]:
    return scheduled_seconds_by_process(os.getpid())
