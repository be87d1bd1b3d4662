"""Kills what overruns, does not answer, or is stopped; hands back what waits for too long.

It looks at the callback processes and their slot board ten times a second while tasks are held. A callback over its
limit is interrupted, alone of all tasks, and so is one that somebody asked to kill. If it does not end, its process takes no
more work and another takes its place; it is killed when only such callbacks are left in it, or when the others have had
`executor.neighbour_grace`. Only then is their end reported: until then their claims are kept.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta

from duly_core.config.settings import format_duration
from duly_core.host.slot_board import RunningTask, SlotBoard
from duly_core.process.clock import nanoseconds, since_boot_ns
from duly_core.process.identity import is_stopped
from duly_core.rpc.requests.times import from_duration
from duly_executor import events
from duly_executor.claims.ledger import HeldClaim, HeldClaims
from duly_executor.processes.pool import CallbackPool
from duly_executor.processes.process import CallbackProcess, Overdue
from duly_executor.processes.recycling import Recycling
from duly_executor.results.failures import killed_for_cancel, ran_too_long
from duly_executor.settings import ExecutorSettings
from duly_wire.ids import TaskId

_LOOK_EVERY = timedelta(milliseconds=100)
_IDLE_LOOK_EVERY = timedelta(milliseconds=500)
"""While nothing is held: there is nothing to stop, and each look wakes the process."""
_STOPPED_LOOK_EVERY = 0.5
_OLD_LOOK_EVERY = 0.25
_MANY_LINGER = 30.0
"""Seconds that the other callbacks of a process have to end, at most, when more processes linger than may."""
_ISOLATED_WAIT = 10.0
"""Seconds that a task which must not run beside others may wait for a process."""
_ISOLATED_IDLES = 60.0
"""Seconds after which a process for such tasks ends when none has ended in it."""


class Watchdog:
    """Tells the pool what to interrupt, recall, hand back and kill; nothing calls it but the one who turns the crank."""

    def __init__(
        self,
        board: SlotBoard,
        held_claims: HeldClaims,
        pool: CallbackPool,
        settings: ExecutorSettings,
        heartbeat_timeout: timedelta,
        beat_soon: Callable[[], None] = lambda: None,
    ) -> None:
        self._beat_soon = beat_soon
        self._board = board
        self._held_claims = held_claims
        self._pool = pool
        self._slow_ns = nanoseconds(settings.prefetch_time)
        self._cancel_grace = settings.cancel_grace.total_seconds()
        self._interrupt_grace = settings.interrupt_grace.total_seconds()
        self._neighbour_grace = settings.neighbour_grace.total_seconds()
        self._answer_within = settings.answer_timeout.total_seconds()
        self._recall_after = settings.recall_after.total_seconds()
        self._most_lingering = settings.processes
        self._is_debugged = bool(settings.debug_port)
        """Whether callbacks may stand at breakpoints: then none runs too long."""
        self._reserves = bool(settings.reserved_slots)
        self._stopped_limit = settings.stopped_limit or heartbeat_timeout
        self._waits_since: float | None = None
        """Since when something waits for a process and nothing has ended in any."""
        self._stopped_since: dict[int, float] = {}
        """When each process was first seen stopped (the loop's time), by pid."""
        self._next_look_for_stopped = 0.0
        self._recycling = Recycling(settings)
        self._next_look_for_old = 0.0

    def look(self) -> timedelta:
        """Do one round; return how long until the next."""
        now = asyncio.get_running_loop().time()
        self._pool.kill_those_that_run_on()
        self.interrupt_overruns(now)
        self.end_lingering(now)
        self._pool.end_isolation(now)
        self.limit_waits(now)
        self._kill_stopped(now)
        return _LOOK_EVERY if len(self._held_claims) else _IDLE_LOOK_EVERY

    def interrupt_overruns(self, now: float) -> None:
        """Interrupt callbacks that run longer than they may, or than the grace after a cancel."""
        slow: dict[int, set[int]] = {}
        """Of each process, the slots."""
        processes = {process.number: process for process in self._pool.processes()}
        for entry in list(self._pool.running()):
            held = self._held_claims.get(entry.task_id)
            if held is None or held.reporting or held.process != entry.process:
                continue
            ran_ns = since_boot_ns() - entry.started_boot_ns
            if ran_ns > self._slow_ns:
                slow.setdefault(entry.process, set()).add(entry.slot)
            process = processes.get(entry.process)
            if process is None:
                continue
            if held.kill_asked:
                self._interrupt_to_kill(process, held, entry, now)
                continue
            if entry.task_id in process.overdue:
                continue
            if process.blocks_others:
                continue  # it may be late for another's sake; it is handed back when the process is killed
            overran = ran_ns > nanoseconds(from_duration(held.task.max_runtime))
            if overran and not self._is_debugged:
                self._interrupt_overrun(process, entry, now)
                self._pool.reassign()
                self._pool.note_misbehaviour(getattr(held.task, "lambda"))
            elif held.cancel_asked_at is not None and now - held.cancel_asked_at > self._cancel_grace:
                self._interrupt_cancelled(process, entry, now)
        for number, process in processes.items():
            process.slow_slots = len(slow.get(number, ()))

    def _in_call(self, process: CallbackProcess, entry: RunningTask) -> dict[TaskId, HeldClaim]:
        """Return the claims of the tasks that share the call of this one."""
        return {
            task_id: held
            for task_id in process.batches.with_neighbours(entry.task_id)
            if (held := self._held_claims.get(task_id)) is not None and not held.reporting
        }

    def _interrupt_overrun(self, process: CallbackProcess, entry: RunningTask, now: float) -> None:
        """Interrupt a call that ran too long: all of its tasks did."""
        process.interrupt(
            {
                task_id: Overdue(now, "max_runtime", ran_too_long(held.task, entry))
                for task_id, held in self._in_call(process, entry).items()
            }
        )

    def _interrupt_cancelled(self, process: CallbackProcess, entry: RunningTask, now: float) -> None:
        """Interrupt a call if each of its tasks was cancelled, long enough ago: for some of a batch, it goes on for the others."""
        call = self._in_call(process, entry)
        if all(
            held.cancel_asked_at is not None and now - held.cancel_asked_at > self._cancel_grace
            for held in call.values()
        ):
            process.interrupt(
                {
                    task_id: Overdue(now, "cancel", killed_for_cancel(held.task, entry))
                    for task_id, held in call.items()
                }
            )
            self._pool.reassign()

    def _interrupt_to_kill(
        self, process: CallbackProcess, held: HeldClaim, entry: RunningTask, now: float
    ) -> None:
        """Interrupt at once, once, what somebody asked to kill. If it was overdue before, it has had its interruption."""
        before = process.overdue.get(entry.task_id)
        if before is None:
            process.interrupt({entry.task_id: Overdue(now, "kill", killed_for_cancel(held.task, entry))})
            self._pool.reassign()
        elif before.reason != "kill":
            process.overdue[entry.task_id] = Overdue(
                before.since, "kill", killed_for_cancel(held.task, entry)
            )

    def end_lingering(self, now: float) -> None:
        """Let processes in which something overdue does not end take no more work, and kill them.

        That is when nothing else is left in them, or when the others have had their grace.
        """
        lingering: list[tuple[float, CallbackProcess]] = []
        for process in self._pool.processes():
            if process.killed_for is not None:
                continue
            if process.overdue:
                self._look_at_overdue(process, now)
            elif process.lingers_since is not None and not process.tasks:
                process.kill(b"")  # what was overdue has ended after all, or it was old
            if process.lingers_since is not None and process.killed_for is None:
                lingering.append((process.lingers_since, process))
                self._note_overdue(process, now)
        lingering.sort(key=lambda each: each[0])
        for place, (since, process) in enumerate(lingering):
            patience = _MANY_LINGER if place < len(lingering) - self._most_lingering else math.inf
            if (
                now - since > patience
                or now - self._blocked_since(process, since, now) > self._neighbour_grace
            ):
                self._kill_overdue(process)

    def _blocked_since(self, process: CallbackProcess, lingers_since: float, now: float) -> float:
        """Return since when neighbours of what does not end have had time; now: all that is overdue may still end by itself."""
        late = [each.since for each in process.overdue.values() if now - each.since > self._interrupt_grace]
        return max(lingers_since, min(late) + self._interrupt_grace) if late else now

    def _note_overdue(self, process: CallbackProcess, now: float) -> None:
        """Let the next heartbeat tell since when what is overdue there does not end, and what it waits for."""
        neighbours = len(process.tasks) - len(process.overdue)
        for task_id, overdue in process.overdue.items():
            held = self._held_claims.get(task_id)
            if held is not None:
                late_ns = int(max(0.0, now - overdue.since) * 1e9) if math.isfinite(overdue.since) else 0
                since = held.overdue[0] if held.overdue else since_boot_ns() - late_ns
                held.overdue = (since, neighbours)

    def _look_at_overdue(self, process: CallbackProcess, now: float) -> None:
        late = sum(now - each.since > self._interrupt_grace for each in process.overdue.values())
        if not late:
            return
        if late == len(process.tasks):
            self._kill_overdue(process)
        elif process.lingers_since is None:
            self._let_linger(process, now)
        elif process.recall_sent_at is not None and now - process.recall_sent_at > self._answer_within:
            self._kill_overdue(process)  # it lets none of its threads run

    def _let_linger(self, process: CallbackProcess, now: float) -> None:
        """Give a process no more work: something in it does not end. What it has not started runs elsewhere."""
        process.lingers_since = now
        process.recall()
        overdue = [(task_id, self._held_claims.lambda_of(task_id)) for task_id in process.overdue]
        events.process_lingers(process.process.pid, overdue)
        self._beat_soon()
        self._pool.reassign()

    def _kill_overdue(self, process: CallbackProcess) -> None:
        task_id = next(iter(process.overdue), b"")
        reason = process.overdue[task_id].reason if task_id else "max_runtime"
        self._pool.kill_for(task_id, process, reason)

    def limit_waits(self, now: float) -> None:
        """Hand back what waits for a slot for too long; kill a process that does not answer when it is asked to.

        Each process by itself: a stuck one must not hold up what waits behind it while others are quick.
        """
        for process in self._pool.processes():
            if process.killed_for is not None:
                continue
            asked = process.recall_sent_at
            if asked is not None:
                # while a callback runs it may hold the GIL, rightly and for long: then max_runtime is the limit
                # a debugger may hold all of its threads
                may_be_silent = self._is_debugged or self._pool.running_in(process)
                if now - asked > self._answer_within and not may_be_silent:
                    self._pool.kill_for(b"", process, "no_answer")
            elif not self._pool.unstarted_in(process):
                process.waits_since = None
            elif process.waits_since is None:
                process.waits_since = now
            elif now - process.waits_since > self._recall_after:
                process.waits_since = None
                process.recall()
        self._recycle(now)
        self._limit_unassigned(now)
        self._pool.hand_back_batches()
        self._pool.hand_back_isolated(now - _ISOLATED_WAIT)
        self._pool.retire_isolated(now - _ISOLATED_IDLES)

    def _recycle(self, now: float) -> None:
        if self._recycling and now >= self._next_look_for_old:
            self._next_look_for_old = now + _OLD_LOOK_EVERY
            if self._recycling.mark(self._pool.processes(), now):
                self._pool.reassign()

    def _limit_unassigned(self, now: float) -> None:
        if self._reserves:
            self._pool.hand_back_unassigned(now)
        elif not self._pool.unassigned():
            self._waits_since = None
        elif self._waits_since is None or self._pool.ended_at >= self._waits_since:
            self._waits_since = now
        elif now - self._waits_since > self._recall_after:
            self._waits_since = None
            self._pool.hand_back_unassigned()

    def _kill_stopped(self, now: float) -> None:
        """Kill processes that somebody stopped (SIGSTOP, a debugger) for longer than they may be; what they ran has crashed."""
        if now < self._next_look_for_stopped:
            return
        self._next_look_for_stopped = now + _STOPPED_LOOK_EVERY
        processes = {process.process.pid: process for process in self._pool.processes()}
        self._stopped_since = {pid: self._stopped_since.get(pid, now) for pid in processes if is_stopped(pid)}
        for pid, since in self._stopped_since.items():
            if now - since > self._stopped_limit.total_seconds() and processes[pid].fault is None:
                limit = format_duration(self._stopped_limit)
                processes[pid].fault = f"stood still (stopped by a signal) for {limit} and was killed"
                events.process_killed(pid, "stopped", b"", "")
                processes[pid].kill()
