"""Kills one Executor with -9 while it runs tasks, and watches another take its place."""

import os
import select
import signal
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from duly_local.demo.executions import ExecutionLog
from duly_local.demo.processes import callback_processes_of, executors_of

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
    killed_at: float = 0
    """`time.monotonic()`."""
    gone_after_s: float | None = None
    """When the Executor and its callback processes were seen to be dead; None: they never were."""
    successor: int | None = None
    """The Executor that took its place, once it can run callbacks."""
    successor_callback_processes: tuple[int, ...] = ()
    replaced_after_s: float | None = None
    look_again_at: float = 0

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


def busiest(log: ExecutionLog) -> int:
    """How many callbacks the busiest callback process runs now."""
    return max(Counter(execution.pid for execution in log.running()).values(), default=0)


def kill_an_executor(worker: int, log: ExecutionLog) -> Killing | None:
    """Kill the one that runs most tasks now; blocks until it is dead, milliseconds. None: there is no Executor."""
    executors = {executor.pid: callback_processes_of(executor.pid) for executor in executors_of(worker)}
    if not executors:
        return None
    log.catch_up()
    running = Counter(execution.pid for execution in log.running())
    victim = max(executors, key=lambda pid: sum(running[process.pid] for process in executors[pid]))
    pids = tuple(process.pid for process in executors[victim])
    others = tuple(pid for pid in executors if pid != victim)
    killing = Killing(worker, victim, pids, others, sum(running[pid] for pid in pids))
    # Opened before the kill: a number alone might name another process by then.
    descriptors = [os.pidfd_open(pid) for pid in (victim, *pids)]
    try:
        killing.killed_at = time.monotonic()
        signal.pidfd_send_signal(descriptors[0], signal.SIGKILL)
        if _all_end(descriptors):
            killing.gone_after_s = time.monotonic() - killing.killed_at
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return killing


def _all_end(descriptors: Iterable[int]) -> bool:
    deadline = time.monotonic() + _PATIENCE.total_seconds()
    for descriptor in descriptors:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        if not poll.poll(max(0, deadline - time.monotonic()) * 1000):
            return False
    return True
