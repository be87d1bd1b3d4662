"""Limits of running callbacks: max_runtime, the grace after a cancel, standing still, and work that waits behind."""

import asyncio
from collections import Counter
from datetime import timedelta

from duly_core.clock import nanoseconds, since_boot_ns
from duly_core.rpc.convert import from_duration
from duly_core.slot_board import SlotBoard
from duly_core.task import TaskId
from duly_executor.callback_pool import CallbackPool
from duly_executor.callback_process import Overdue
from duly_executor.failure_results import killed_for_cancel, ran_too_long
from duly_executor.held_claims import HeldClaims
from duly_executor.settings import ExecutorSettings
from duly_executor.watchdog.overruns import Overruns
from duly_executor.watchdog.stopped import StoppedProcesses
from duly_executor.watchdog.waits import WaitLimits

_LOOK_EVERY = timedelta(milliseconds=100)
_IDLE_LOOK_EVERY = timedelta(milliseconds=500)
"""While nothing is held: there is nothing to stop, and each look wakes the process."""


class Watchdog:
    """Looks at the slot board ten times a second while tasks are held; what is over its limit is interrupted, alone of all tasks."""

    def __init__(
        self,
        board: SlotBoard,
        held_claims: HeldClaims,
        pool: CallbackPool,
        settings: ExecutorSettings,
        heartbeat_timeout: timedelta,
    ) -> None:
        self._board = board
        self._held_claims = held_claims
        self._pool = pool
        self._settings = settings
        self._slow_ns = nanoseconds(settings.prefetch_time)
        self._wait_limits = WaitLimits(pool, settings)
        self._overruns = Overruns(pool, settings)
        self._stopped_processes = StoppedProcesses(pool, settings.stopped_limit or heartbeat_timeout)

    def attempts_ended(self) -> None:
        """Something ended: what waits is moving."""
        self._wait_limits.attempts_ended()

    def cancel_requested(self, task_id: TaskId) -> None:
        """Somebody asked for this task's cancel: its callback is told once, and interrupted after the grace."""
        held = self._held_claims.get(task_id)
        if held is not None and held.cancel_asked_at is None:
            held.cancel_asked_at = asyncio.get_running_loop().time()
            self._pool.ask_to_stop(task_id)

    def look(self) -> timedelta:
        """One round; answers how long until the next."""
        now = asyncio.get_running_loop().time()
        self._pool.kill_those_that_run_on()
        slow: Counter[int] = Counter()
        processes = {process.number: process for process in self._pool.processes()}
        for entry in list(self._board.running()):
            held = self._held_claims.get(entry.task_id)
            if held is None or held.reporting or held.process != entry.process:
                continue
            limit = from_duration(held.task.max_runtime)
            ran_ns = since_boot_ns() - entry.started_boot_ns
            slow[entry.process] += ran_ns > self._slow_ns
            process = processes.get(entry.process)
            if process is None or entry.task_id in process.overdue:
                continue
            if process.blocks_others:
                continue  # it may be late for another's sake; it is handed back when the process is killed
            if ran_ns > nanoseconds(limit):
                overdue = Overdue(now, "max_runtime", ran_too_long(held.task, entry))
                self._pool.interrupt(entry.task_id, process, overdue)
                self._pool.note_misbehaviour(getattr(held.task, "lambda"))
            elif (
                held.cancel_asked_at is not None
                and now - held.cancel_asked_at > self._settings.cancel_grace.total_seconds()
            ):
                overdue = Overdue(now, "cancel", killed_for_cancel(held.task, entry))
                self._pool.interrupt(entry.task_id, process, overdue)
        for number, process in processes.items():
            process.slow_slots = slow[number]
        self._overruns.look(now)
        self._pool.end_isolation(now)
        self._wait_limits.look(now)
        self._stopped_processes.look(now)
        return _LOOK_EVERY if len(self._held_claims) else _IDLE_LOOK_EVERY
