"""Kills one Executor with -9 while it runs tasks, and watches another take its place."""

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from duly_local.demo.executions import ExecutionLog
from duly_local.demo.processes import callback_processes_of, executors_of

_BUSY = 3
"""Callbacks that an Executor runs at a time; it could run eight."""
_AIM_FOR = timedelta(milliseconds=250)
_AIM_EVERY = timedelta(milliseconds=1)
_PATIENCE = timedelta(seconds=5)
_LOOK_EVERY = timedelta(milliseconds=100)


@dataclass(slots=True)
class Killing:
    """What happened."""

    worker: int
    """The pid of the Controller whose Executor it was."""
    executor: int
    """Its pid."""
    callback_processes: tuple[int, ...]
    """The pids of its own; the kernel kills them when their Executor dies."""
    others: tuple[int, ...]
    """The Executors that ran beside it."""
    running: int
    """Callbacks that it ran, by the log, when it was killed."""
    killed_at: float
    """`time.monotonic()`."""
    gone_after_s: float | None = None
    """When the Executor and its callback processes were seen to be dead; None: they never were."""
    successor: int | None = None
    """The Executor that took its place, once it can run callbacks."""
    successor_callback_processes: tuple[int, ...] = ()
    replaced_after_s: float | None = None
    look_again_at: float = 0

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "executor": self.executor,
            "callback_processes": self.callback_processes,
            "running": self.running,
            "gone_after_s": self.gone_after_s,
            "successor": self.successor,
            "replaced_after_s": self.replaced_after_s,
        }

    def look_for_successor(self) -> bool:
        """Whether another Executor has taken its place; may be asked often, looks seldom."""
        if self.successor is None and time.monotonic() >= self.look_again_at:
            self.look_again_at = time.monotonic() + _LOOK_EVERY.total_seconds()
            for executor in executors_of(self.worker):
                if executor.pid in (*self.others, self.executor):
                    continue
                callbacks = callback_processes_of(executor.pid)
                if callbacks:
                    self.successor = executor.pid
                    self.successor_callback_processes = tuple(process.pid for process in callbacks)
                    self.replaced_after_s = time.monotonic() - self.killed_at
        return self.successor is not None


def kill_an_executor(worker: int, log: ExecutionLog) -> Killing | None:
    """Kill the busiest one, at a moment when it is busy, if one comes soon; None: there is none to kill now.

    Blocks until it is dead, so that the moment is not missed.
    """
    crews = {
        executor.pid: tuple(process.pid for process in callback_processes_of(executor.pid))
        for executor in executors_of(worker)
    }
    if not crews:
        return None
    with ExitStack() as opened:
        try:
            # Opened before the kill: a number alone might name another process by then.
            pids = (pid for executor, crew in crews.items() for pid in (executor, *crew))
            descriptors = {pid: _open(pid, opened) for pid in pids}
        except ProcessLookupError:  # one of them ended just now, by itself
            return None
        victim, running = _await_busy(crews, log)
        others = tuple(executor for executor in crews if executor != victim)
        killing = Killing(worker, victim, crews[victim], others, running, time.monotonic())
        signal.pidfd_send_signal(descriptors[victim], signal.SIGKILL)
        if _all_end(descriptors[pid] for pid in (victim, *crews[victim])):
            killing.gone_after_s = time.monotonic() - killing.killed_at
    return killing


def _open(pid: int, opened: ExitStack) -> int:
    descriptor = os.pidfd_open(pid)
    opened.callback(os.close, descriptor)
    return descriptor


def _await_busy(crews: Mapping[int, Sequence[int]], log: ExecutionLog) -> tuple[int, int]:
    """The Executor that runs most callbacks, and how many; callbacks are short, so moments differ."""
    deadline = time.monotonic() + _AIM_FOR.total_seconds()
    while True:
        log.catch_up()
        by_process = Counter(execution.pid for execution in log.running())
        running = {executor: sum(by_process[pid] for pid in crew) for executor, crew in crews.items()}
        victim = max(running, key=running.__getitem__)
        if running[victim] >= _BUSY or time.monotonic() > deadline:
            return victim, running[victim]
        time.sleep(_AIM_EVERY.total_seconds())


def _all_end(descriptors: Iterable[int]) -> bool:
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    for descriptor in descriptors:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(max(0, deadline - time.monotonic()) * 1000):
            return False
    return True
