"""Limits of running callbacks: max_runtime, the grace after a cancel, standing still, and work that waits behind."""

import asyncio
from collections import Counter
from datetime import timedelta

from duly.v1 import hsc_pb2, task_pb2
from duly_core.board import Board
from duly_core.clock import nanoseconds, since_boot_ns
from duly_core.rpc.convert import from_duration
from duly_core.settings import format_duration
from duly_core.task import TaskId
from duly_executor.crew import Crew
from duly_executor.holdings import Holdings
from duly_executor.patience import Patience
from duly_executor.settings import ExecutorSettings
from duly_executor.standstill import Standstill
from duly_executor.verdicts import cancelled

_LOOK_EVERY = timedelta(milliseconds=100)


class Enforcement:
    """Looks at the slot board ten times a second; what is over its limit is stopped, alone of all tasks."""

    def __init__(
        self,
        board: Board,
        holdings: Holdings,
        crew: Crew,
        settings: ExecutorSettings,
        heartbeat_timeout: timedelta,
    ) -> None:
        self._board = board
        self._holdings = holdings
        self._crew = crew
        self._settings = settings
        self._slow_ns = nanoseconds(settings.ahead)
        self._patience = Patience(crew, settings)
        self._standstill = Standstill(crew, settings.stopped_limit or heartbeat_timeout)

    def attempts_ended(self) -> None:
        """Something ended: what waits is moving."""
        self._patience.attempts_ended()

    def cancel_requested(self, task_id: TaskId) -> None:
        """Somebody asked for this task's cancel: its callback is told once, and killed after the grace."""
        held = self._holdings.get(task_id)
        if held is not None and held.cancel_asked_at is None:
            held.cancel_asked_at = asyncio.get_running_loop().time()
            self._crew.ask_to_stop(task_id)

    def look(self) -> timedelta:
        """One round; answers how long until the next."""
        now = asyncio.get_running_loop().time()
        self._crew.kill_those_that_run_on()
        slow: Counter[int] = Counter()
        for entry in list(self._board.running()):
            held = self._holdings.get(entry.task_id)
            if held is None or held.reporting or held.process != entry.process:
                continue
            limit = from_duration(held.task.max_runtime)
            ran_ns = since_boot_ns() - entry.started_boot_ns
            slow[entry.process] += ran_ns > self._slow_ns
            if ran_ns > nanoseconds(limit):
                self._crew.stop_for(entry.task_id, "max_runtime", _ran_too_long(held.task, limit))
            elif held.cancel_asked_at is not None:
                grace = self._settings.cancel_grace.total_seconds()
                if now - held.cancel_asked_at > grace:
                    self._crew.stop_for(entry.task_id, "cancel", cancelled(held.task))
        for process in self._crew.processes():
            process.slow_slots = slow[process.number]
        self._patience.look(now)
        self._standstill.look(now)
        return _LOOK_EVERY


def _ran_too_long(task: hsc_pb2.ClaimedTask, limit: timedelta) -> hsc_pb2.TaskResult:
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_RETRIABLE_FAILURE,
        failure_kind=task_pb2.FAILURE_KIND_MAX_RUNTIME,
        failure_message=f"ran longer than its max_runtime of {format_duration(limit)} and was killed",
    )
