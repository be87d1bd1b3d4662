"""Heartbeats: one call a period for everything held, strikes, and the kernel's timer as the last word.

The period, the time of a call and the strikes follow the lease terms of the answers (lease_schedule.py).
Periods are counted from start to start. A call is sent again within its deadline when it fails; only a
call that failed as a whole is a strike. The deadline of the process moves with acknowledged calls alone,
and counts from when the acknowledged request was *sent*.

Each cell has calls and strikes of its own. Where a claim names no cell (a sole store), the last strike ends this process. Where it
names one, only what runs for that cell ends, by SIGKILL to its callback processes, at the same strike or at the edge of the deadline;
one strike earlier these processes are replaced, so that little else is left in them.
The kernel's timer stays set to the earliest deadline of all claims that something may run for: if this code does not come to it,
the timer ends everything.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import timedelta
from typing import Protocol

import grpc
import structlog

from duly_core.errors import SettingsError
from duly_core.host.heartbeat_schedule import HeartbeatSchedule
from duly_core.process import failpoints
from duly_core.process.clock import nanoseconds, since_boot_ns
from duly_core.process.loop import wait_for, wait_for_either
from duly_core.rpc.retry import until_definite
from duly_executor import events
from duly_executor.claims.heartbeat_channel import HeartbeatChannel
from duly_executor.claims.kill_timer import KillTimer
from duly_executor.claims.lease_schedule import LeaseSchedule
from duly_executor.claims.ledger import HeldClaims
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2

log = structlog.get_logger()

_ATTEMPTS = 3
"""A call is tried about so often within its deadline."""

_REARM_EVERY = timedelta(milliseconds=250)
_IDLE_REARM_EVERY = timedelta(seconds=1)
"""While nothing is held; a claim that comes in sets the timer itself."""
_SOON = timedelta(seconds=1)
_LONGEST_STILL_NS = 60 * 1_000_000_000
"""Nanoseconds until a loop that stands still while nothing is held ends its process, and the worker starts another."""


class Callbacks(Protocol):
    """What runs under the claims."""

    def stop_lost(self, task_id: TaskId) -> None:
        """Stop the callback of this task at once: its claim is lost."""

    def request_cancel(self, task_id: TaskId, *, kill: bool = False) -> None:
        """Ask the callback of this task to stop, or `kill` it; it may have been asked before."""

    def runs(self, task_id: TaskId) -> bool:
        """Whether a callback runs this task now, whatever is held of it."""

    def part_from(self, cell: str) -> None:
        """Let no other tasks begin beside those of this cell: what runs these may have to be killed soon."""

    def stop_cell(self, cell: str) -> Sequence[TaskId]:
        """Kill what runs tasks of this cell, and hand these back once that has ended; return them."""


class HeartbeatLoop:
    """Keeps every held claim alive, or ends this process."""

    def __init__(
        self,
        hsc: HeartbeatChannel,
        held_claims: HeldClaims,
        leases: LeaseSchedule,
        kill_timer: KillTimer,
        callbacks: Callbacks,
        hand_back_gated: Callable[[Collection[TaskId]], None] = lambda _: None,
        note_deadline: Callable[[int | None], None] = lambda _: None,
        aside: HeartbeatChannel | None = None,
    ) -> None:
        """Make one.

        Args:
            hsc: where the heartbeats go.
            held_claims: what they are for.
            leases: how often, and until when.
            kill_timer: the kernel's timer.
            callbacks: told what becomes of the claims that they run under.
            hand_back_gated: told of claims that gates hold, of tasks that run and of others.
            note_deadline: told when this process must be dead, for who watches it; None: no claim limits its life.
            aside: where the heartbeats of cells go that did not answer the last one: their tries end no connection of others.
        """
        self._aside = aside or hsc
        self._hsc = hsc
        self._held_claims = held_claims
        self._leases = leases
        self._shortened = asyncio.Event()
        """The period is shorter than it was when the wait for the next heartbeat began."""
        self._kill_timer = kill_timer
        self._callbacks = callbacks
        self._hand_back_gated = hand_back_gated
        self._note_deadline = note_deadline
        self._soon = False
        """There is news for people: the next heartbeat does not wait for its period."""
        self._strikes: Counter[str] = Counter()
        """Heartbeat calls in a row that failed, by the cell of their claims."""
        self._silent: Collection[str] = ()
        """The cells whose last call failed."""
        self._busy_until = 0

    def rearm(self) -> None:
        """Set the kernel's timer to the earliest deadline of all; to be called when a claim comes in."""
        deadline = self._held_claims.earliest_deadline()
        self._note_deadline(deadline)
        self._kill_timer.arm(since_boot_ns() + _LONGEST_STILL_NS if deadline is None else deadline)

    def note(self, schedule: HeartbeatSchedule) -> None:
        """Let the next heartbeat be in time for claims under this schedule."""
        if self._leases.note(schedule):
            self._strikes.clear()  # they were counted while more were allowed; the deadlines hold in any case
            self._shortened.set()

    def beat_soon(self) -> None:
        """Send the next heartbeat a second after the last one at the latest; if it fails, it is no strike."""
        self._soon = True
        self._shortened.set()

    def busy_for(self) -> int:
        """Return how long, at most, until a heartbeat can go out that the one under way does not hold up; nanoseconds."""
        return max(0, self._busy_until - since_boot_ns())

    async def run(self, executor_id: str, stop: asyncio.Event) -> None:
        """Beat at the rate of the schedule until `stop`."""
        await asyncio.gather(self._beat_for_ever(executor_id, stop), self._rearm_for_ever(stop))

    async def _rearm_for_ever(self, stop: asyncio.Event) -> None:
        """Tasks that ended no longer limit this process's life."""
        pause = _IDLE_REARM_EVERY
        while not await wait_for(stop, pause):
            pause = _REARM_EVERY if len(self._held_claims) else _IDLE_REARM_EVERY
            if self._held_claims.has_cells:
                pause = min(pause, self._end_cells_at_their_edge())
            self.rearm()

    def _end_cells_at_their_edge(self) -> timedelta:
        """Give up the cells whose claims are about to run out; return how long until the next one is.

        Without that the kernel's timer would end this process with what it runs for others.
        """
        edge = nanoseconds(self._leases.timing.scheduling_lateness) // 2
        now = since_boot_ns()
        nearest = edge + nanoseconds(_REARM_EVERY)
        for cell, deadline in self._held_claims.earliest_by_cell().items():
            if not cell:
                continue
            if deadline - edge <= now:
                self._give_up(cell)
            else:
                nearest = min(nearest, deadline - edge - now)
        return timedelta(microseconds=max(1, nearest // 1_000))

    def _give_up(self, cell: str) -> None:
        """End what runs under the claims of a cell, before the store can give them to others.

        SIGKILL is sent before the deadlines are let go of: then no callback runs that they are for, and the kernel's timer is left to
        those of other cells.
        """
        ended = self._held_claims.unfinished_of(cell)
        stopped = self._callbacks.stop_cell(cell)
        self._held_claims.end_deadlines(stopped)
        self._strikes.pop(cell, None)
        if ended:  # else only results wait for it
            events.cell_given_up(cell, ended)
        self.rearm()

    def disarm(self) -> None:
        """No callback runs any more: nothing depends on this process."""
        self._note_deadline(None)
        self._kill_timer.arm(None)

    async def _beat_for_ever(self, executor_id: str, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while not stop.is_set():
            self._shortened.clear()
            period = self._leases.now.period.total_seconds()
            left = began_at + period - loop.time()
            if self._soon:
                left = min(left, began_at + _SOON.total_seconds() - loop.time())
            if left > 0:
                await wait_for_either(stop, self._shortened, timedelta(seconds=left))
                continue
            is_due = began_at + period <= loop.time()
            self._soon = False
            if is_due:
                began_at = max(began_at + period, loop.time() - period)
            await self.beat(executor_id, counts=is_due)

    async def beat(self, executor_id: str, *, counts: bool = True) -> None:
        """One heartbeat for everything that is held; it fails if the HSC could not be told of all.

        One that does not count keeps claims alive if it succeeds, and is no strike if it fails.
        """
        events.held(len(self._held_claims))
        self._leases.begin_round()
        self._busy_until = since_boot_ns() + nanoseconds(self._leases.now.call_deadline)
        requests = self._held_claims.heartbeat_requests(executor_id)
        reasons = await asyncio.gather(*map(self._call, requests))
        self._busy_until = 0
        failed: dict[str, str] = {}
        for request, reason in zip(requests, reasons, strict=True):
            if reason is not None:
                failed.setdefault(_cell_of(request), reason)
        self._silent = failed.keys()
        for cell in [cell for cell in self._strikes if cell not in failed]:
            del self._strikes[cell]
        if not failed:
            self._leases.end_round()
        elif counts:
            for cell, reason in failed.items():
                self._strike(cell, reason)

    async def _call(self, request: hsc_pb2.HeartbeatRequest) -> str | None:
        """Send until it is answered or its time is over; why it failed, if it did."""
        sent = since_boot_ns()
        within = self._leases.now.call_deadline
        cell = _cell_of(request)
        channel = self._aside if cell and cell in self._silent else self._hsc

        async def call(timeout: float) -> hsc_pb2.HeartbeatResponse:
            nonlocal sent
            sent = since_boot_ns()  # of the try that is acknowledged
            await failpoints.hit("executor.heartbeat.before_send")
            return await channel.Heartbeat(request, timeout=timeout)

        try:
            response = await until_definite(
                call,
                within=within,
                attempt_timeout=within / _ATTEMPTS,
            )
        except grpc.aio.AioRpcError as error:
            return f"{error.code().name}: {error.details()}"
        except Exception as error:
            # whatever it was: heartbeats that end silently would end this process with everything it runs
            log.exception("heartbeat call failed unexpectedly")
            return repr(error)
        if len(response.verdicts) != len(request.items):
            return f"{len(request.items)} claims were told, {len(response.verdicts)} answered"
        try:
            schedule = self._leases.under(response.terms)
        except (
            SettingsError
        ) as error:  # nothing is renewed: the store may give the tasks away before this process could know
            return str(error)
        self.note(schedule)
        claims = [item.claim for item in request.items]
        self._held_claims.checkpoints_kept(request.items)
        self._apply(
            zip(claims, response.verdicts, strict=True),
            frozenset(response.kill_task_ids),
            sent + nanoseconds(schedule.process_deadline),
        )
        return None

    def _apply(
        self, verdicts: Iterable[tuple[hsc_pb2.Claim, int]], to_kill: Collection[TaskId], deadline: int
    ) -> None:
        kept: list[TaskId] = []
        lost: list[TaskId] = []
        reported: list[TaskId] = []
        gated: list[TaskId] = []
        for claim, verdict in verdicts:
            if not self._held_claims.is_current(claim):
                continue  # settled meanwhile
            task_id = claim.task_id
            if verdict == hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM:
                if self._held_claims.is_running(task_id):
                    lost.append(task_id)
                else:
                    reported.append(task_id)
            else:
                kept.append(task_id)
                if verdict == hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED:
                    self._callbacks.request_cancel(task_id, kill=task_id in to_kill)
                elif verdict == hsc_pb2.HEARTBEAT_VERDICT_GATED:
                    gated.append(task_id)
        self._held_claims.renew(kept, deadline)
        # their results are on their way, and that answer counts; no callback runs whose claim must be alive
        self._held_claims.end_deadlines(each for each in reported if not self._callbacks.runs(each))
        self.rearm()
        if gated:
            self._hand_back_gated(gated)
        if lost:
            events.claims_lost(len(lost), "Heartbeat")
            for task_id in lost:
                self._callbacks.stop_lost(task_id)

    def _strike(self, cell: str, reason: str) -> None:
        self._strikes[cell] += 1
        events.strike(self._strikes[cell], reason, cell)
        if self._strikes[cell] < self._leases.now.most_strikes:
            if cell and self._strikes[cell] == self._leases.now.most_strikes - 1:
                self._callbacks.part_from(cell)
            return
        if cell:
            self._give_up(cell)
            return
        log.error(
            "too many failed heartbeat calls: executor ends itself before its tasks are given to others"
        )
        os.kill(os.getpid(), signal.SIGKILL)  # callback processes follow: PR_SET_PDEATHSIG


def _cell_of(request: hsc_pb2.HeartbeatRequest) -> str:
    return request.items[0].claim.cell
