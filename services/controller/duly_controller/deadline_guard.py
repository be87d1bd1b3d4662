"""Kills an Executor that outlives the deadline of its claims: the second guard, beside the Executor's own kernel timer.

The Executor writes its deadline into its claim journal. This process reads it there, so a timer that was not set, or that the
kernel does not fire, is noticed by another process and another mechanism. A journal in which somebody else wrote a deadline can
end only the Executor whose journal it is.
"""

import signal
from contextlib import suppress
from datetime import timedelta

from duly_controller import events
from duly_controller.executor_registry import AttachedExecutor, ExecutorRegistry
from duly_core.host.claim_journal import read_deadline
from duly_core.process.clock import since_boot_ns

_AFTER_NS = 20_000_000
"""The Executor's own timer goes first."""
_LOOK_AT_LEAST = timedelta(seconds=1)
"""A claim that comes meanwhile has a lease of some seconds at least."""
_LOOK_AT_MOST = timedelta(milliseconds=50)


class DeadlineGuard:
    """Looks when the next deadline of an attached Executor passes, and once a second."""

    def __init__(self, attached: ExecutorRegistry) -> None:
        self._attached = attached
        self._told: set[str] = set()
        """Executors whose kill was logged; one that hangs in the kernel is killed again and again."""

    async def look(self) -> timedelta:
        """Kill what should be dead; return how long until the next look."""
        now = since_boot_ns()
        pause = _LOOK_AT_LEAST
        executors = self._attached.all()
        self._told.intersection_update(executor.executor_id for executor in executors)
        for executor in executors:
            deadline = read_deadline(executor.journal_fd) if executor.journal_fd >= 0 else None
            if deadline is None:
                continue
            left = timedelta(microseconds=(deadline + _AFTER_NS - now) // 1_000)
            if left <= timedelta():
                self._kill(executor, -left)
            pause = min(pause, max(left, _LOOK_AT_MOST))
        return pause

    def _kill(self, executor: AttachedExecutor, late: timedelta) -> None:
        with suppress(ProcessLookupError):  # it has ended, and we have yet to hear of it
            signal.pidfd_send_signal(executor.pidfd, signal.SIGKILL)
            if executor.executor_id not in self._told:
                self._told.add(executor.executor_id)
                events.outlived(executor.executor_id, late)
