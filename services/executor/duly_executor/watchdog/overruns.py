"""What becomes of callbacks that were interrupted and do not end, and of the processes that they run in.

Such a process takes no more work, and another one takes its place. It is killed when only such callbacks are left in it,
and only then is their end reported: until then their claims are kept.
"""

from datetime import timedelta

from duly_executor.callback_pool import CallbackPool
from duly_executor.callback_process import CallbackProcess
from duly_executor.settings import ExecutorSettings

_LINGERS_AT_LEAST = timedelta(seconds=30)
"""So long its other callbacks have to end when more processes linger than may."""


class Overruns:
    """Looks at the processes in which something is overdue."""

    def __init__(self, pool: CallbackPool, settings: ExecutorSettings) -> None:
        self._pool = pool
        self._grace = settings.interrupt_grace.total_seconds()
        self._answer_within = settings.answer_timeout.total_seconds()
        self._most = settings.processes

    def look(self, now: float) -> None:
        """One round; `now` is the loop's time."""
        lingering: list[tuple[float, CallbackProcess]] = []
        for process in self._pool.processes():
            if process.killed_for is not None:
                continue
            if process.overdue:
                self._look_at(process, now)
            elif process.lingers_since is not None and not process.tasks:
                process.kill(b"")  # what was overdue has ended after all
            if process.lingers_since is not None and process.killed_for is None:
                lingering.append((process.lingers_since, process))
        lingering.sort(key=lambda each: each[0])
        for since, process in lingering[: -self._most]:
            if now - since > _LINGERS_AT_LEAST.total_seconds():
                self._kill(process)

    def _look_at(self, process: CallbackProcess, now: float) -> None:
        late = [task_id for task_id, each in process.overdue.items() if now - each.since > self._grace]
        if not late:
            return
        if len(late) == len(process.tasks):
            self._kill(process)
        elif process.lingers_since is None:
            self._pool.let_linger(process, now)
        elif process.recall_sent_at is not None and now - process.recall_sent_at > self._answer_within:
            self._kill(process)  # it lets none of its threads run

    def _kill(self, process: CallbackProcess) -> None:
        task_id = next(iter(process.overdue), b"")
        reason = process.overdue[task_id].reason if task_id else "max_runtime"
        self._pool.kill_for(task_id, process, reason)
