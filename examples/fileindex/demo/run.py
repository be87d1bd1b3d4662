"""One run: files become tasks on one stack, an Executor is killed on the way, and what happened is judged."""

import math
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from rich.status import Status

import duly
from fileindex.demo.application import LAMBDA, LOG_FILE
from fileindex.demo.checker import Check, Ending, Facts, check, read_log
from fileindex.demo.stack import Interrupt

_AHEAD = 100
_AHEAD_BY = timedelta(seconds=1)
_AHEAD_EVERY = timedelta(milliseconds=40)
_ONE_IN_FAILS = 100
_ASK_EVERY_S = 0.5
_QUIET_AFTER_S = 2
_STALLED_AFTER_S = 60
"""When nothing was logged for so long, what is not final is lost."""


@dataclass(slots=True)
class Run:
    """The tasks of one run, as far as it got."""

    client: duly.Client
    executions: Path
    """The folder of the execution log."""
    files: Mapping[str, Facts]
    status: Status
    interrupt: Interrupt
    endings: list[Ending] = field(default_factory=list)
    at_once: int = 0
    began_ns: int = 0
    killed: int | None = None

    def index(self) -> None:
        """Index most files at once, and kill an Executor meanwhile; then some more, each at a time of its own."""
        paths = [*self.files]
        self.at_once = len(paths) - min(_AHEAD, len(paths) // 5)
        victim = self.at_once // 2
        self.began_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        firsts = ["indexes" if number % _ONE_IN_FAILS else "fails" for number in range(self.at_once)]
        firsts[victim] = "hangs"
        self._run([_task(*file) for file in zip(paths, firsts, strict=False)], victim)
        delays = (_AHEAD_BY + number * _AHEAD_EVERY for number in range(len(paths)))
        self._run(
            [_task(path, delay=delay) for path, delay in zip(paths[self.at_once :], delays, strict=False)]
        )

    def judge(self) -> tuple[dict[str, str], list[Check]]:
        """Return the figures and the checks; once the stack has ended, so that the log is whole."""
        executions = read_log(self._read_log().decode().splitlines())
        burst = {ending.task_id for ending in self.endings[: self.at_once]}
        ended_ns = max((run.ended_ns or 0 for run in executions if run.task_id in burst), default=0)
        seconds = max(ended_ns - self.began_ns, 1) / 1e9
        starts = {run.task_id: run.wall_s for run in reversed(executions)}
        lateness = [
            starts[ending.task_id] - ending.due_at.timestamp()
            for ending in self.endings[self.at_once :]
            if ending.due_at and ending.task_id in starts
        ]
        p50, p99 = (percentile(lateness, percent) * 1000 for percent in (50, 99))
        failed = sum(run.ended_ns is not None and not run.succeeded for run in executions)
        figures = {
            "files for now + for later": f"{self.at_once:,} + {len(self.endings) - self.at_once:,}",
            "time of those for now": f"{seconds:.1f} s",
            "tasks a second": f"{self.at_once / seconds:,.0f}",
            "lateness p50 / p99": f"{p50:,.0f} / {p99:,.0f} ms",
            "retries / crashes": f"{failed:,} / {sum(run.ended_ns is None for run in executions):,}",
        }
        return figures, check(self.endings, executions, self.files, self.killed)

    def _run(self, tasks: Sequence[duly.NewTask], victim: int | None = None) -> None:
        """Schedule the tasks, and wait until all are final or nothing happens any more."""
        ids = [receipt.task_id for receipt in self.client.schedule_many(tasks)]
        goal = len(self.endings) + len(ids)
        size = 0
        moved_at = asked_at = time.monotonic()
        is_over = False
        while not is_over:
            self.interrupt.pause()
            log = self._read_log()
            now = time.monotonic()
            if len(log) != size:
                size, moved_at = len(log), now
            done = log.count(b'"succeeded"')
            self.status.update(f"{done:,} of {len(self.files):,} files")
            if victim is not None and self.killed is None:
                self._kill_executor_of(ids[victim], log)
            if (done >= goal or now - moved_at > _QUIET_AFTER_S) and now - asked_at > _ASK_EVERY_S:
                asked_at = now
                found = self.client.get_many(ids)
                all_ended = all(task is not None and task.status.is_final for task in found)
                is_over = all_ended or now - moved_at > _STALLED_AFTER_S
        self.endings += map(_ending, ids, tasks, found)

    def _read_log(self) -> bytes:
        file = self.executions / LOG_FILE
        return file.read_bytes() if file.exists() else b""  # not yet: nothing has started

    def _kill_executor_of(self, task_id: str, log: bytes) -> None:
        """Kill the Executor that runs this task, once it does; the task hangs until then."""
        if started := re.search(rb'"%s".*"executor": (\d+),' % task_id.encode(), log):
            self.killed = int(started[1])
            os.kill(self.killed, signal.SIGKILL)
            self.status.console.print(f"  kill -9 of Executor {self.killed}, in the middle of a task")


def _task(path: str, first: str = "indexes", delay: timedelta | None = None) -> duly.NewTask:
    return duly.NewTask(LAMBDA, {"path": path, "first": first}, delay=delay)


def _ending(task_id: str, new: duly.NewTask, task: duly.Task | None) -> Ending:
    path = new.payload["path"]
    if task is None:
        return Ending(task_id, path)
    failure = task.failure.message if task.failure else ""
    return Ending(task_id, path, task.status, task.result, failure, task.scheduled_at)


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that `percent` of all do not exceed; NaN for none."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)] if values else math.nan
