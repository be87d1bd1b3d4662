"""Times requests one after another, and counts the CPU of each process meanwhile, less what they use idle."""

import math
import os
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.cpu import memory_by_process, scheduled_seconds_by_process
from benchmarks.percentiles import percentile

NO_ANSWER = "without an answer"
"""In the note of a cost with such requests."""
PROCESSES = ("console", "frontend", "postgres")


class NoAnswerError(Exception):
    """A request brought no page, or only a part of one; says what came."""


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
        """Ask some times, after a first time that is left out; `ask` returns a note, or raises NoAnswerError.

        Requests without an answer are left out, and the note says how many, and what the last one was.
        """
        note, failed = "", []
        with suppress(NoAnswerError):
            ask()
        taken, used = [], []
        for _ in range(self._times):
            before, started = _used(), time.perf_counter()
            try:
                note = ask()
            except NoAnswerError as error:
                failed.append(str(error))
                continue
            passed = time.perf_counter() - started
            after = _used()
            taken.append(passed * 1e3)
            used.append(
                {
                    each: (after[each] - before[each] - self._idle.get(each, 0.0) * passed) * 1e3
                    for each in PROCESSES
                }
            )
        # medians: what runs from time to time, such as the incident board, is in few of them
        cpu = {each: max(0.0, _median([one[each] for one in used])) for each in PROCESSES}
        taken.sort()
        if failed:
            note = f"{len(failed)} of {self._times} {NO_ANSWER}: {failed[-1]}"
        found = Cost(name, _median(taken), percentile(taken, 0.95) if taken else math.nan, cpu, note)
        print("  ", *found.cells(), flush=True)
        return found


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else math.nan


def memory() -> dict[str, float]:
    """Return MiB by process (PSS)."""
    return dict(memory_by_process(os.getpid()))


def _used() -> Counter[str]:
    return scheduled_seconds_by_process(os.getpid())
