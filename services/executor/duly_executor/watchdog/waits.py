"""How long anything may wait for a slot here before it is handed back, and a process for its answer before it is killed."""

from datetime import timedelta

from duly_executor.callback_pool import CallbackPool
from duly_executor.settings import ExecutorSettings

_ASIDE_WAIT = timedelta(seconds=10)
"""A task that must not run beside others may wait so long for a process."""

_ASIDE_IDLES = timedelta(seconds=60)
"""A process for such tasks ends when none has ended in it for so long."""


class WaitLimits:
    """Looks at each process by itself: a stuck one must not hold up what waits behind it while others are quick."""

    def __init__(self, pool: CallbackPool, settings: ExecutorSettings) -> None:
        self._pool = pool
        self._recall_after = settings.recall_after.total_seconds()
        self._answer_within = settings.answer_timeout.total_seconds()
        self._waits_since: float | None = None
        """Since when something waits for a process and nothing has ended in any."""

    def attempts_ended(self) -> None:
        """Something ended: what waits for a process is moving."""
        self._waits_since = None

    def look(self, now: float) -> None:
        """One round; `now` is the loop's time."""
        for process in self._pool.processes():
            if process.killed_for is not None:
                continue
            asked = process.recall_sent_at
            if asked is not None:
                # while a callback runs it may hold the GIL, rightly and for long: then max_runtime is the limit
                if now - asked > self._answer_within and not self._pool.running_in(process):
                    self._pool.kill_for(b"", process, "no_answer")
            elif not self._pool.unstarted_in(process):
                process.waits_since = None
            elif process.waits_since is None:
                process.waits_since = now
            elif now - process.waits_since > self._recall_after:
                process.waits_since = None
                process.recall()
        self._look_at_the_unassigned(now)
        self._pool.retire_isolated(now - _ASIDE_IDLES.total_seconds())

    def _look_at_the_unassigned(self, now: float) -> None:
        self._pool.hand_back_isolated(now - _ASIDE_WAIT.total_seconds())
        if not self._pool.unassigned():
            self._waits_since = None
        elif self._waits_since is None:
            self._waits_since = now
        elif now - self._waits_since > self._recall_after:
            self._waits_since = None
            self._pool.hand_back_unassigned()
