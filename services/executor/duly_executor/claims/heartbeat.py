"""Heartbeats: one call a period for everything held, strikes, and the kernel's timer as the last word.

The period, the time of a call and the strikes follow the lease terms of the answers (lease_schedule.py).
Periods are counted from start to start. A call is sent again within its deadline when it fails; only a
call that failed as a whole is a strike. The deadline of the process moves with acknowledged calls alone,
and counts from when the acknowledged request was *sent*.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Iterable
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
        """
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
        self._strikes = 0
        """Heartbeat calls in a row that failed."""
        self._busy_until = 0

    def rearm(self) -> None:
        """Set the kernel's timer to the earliest deadline of all; to be called when a claim comes in."""
        deadline = self._held_claims.earliest_deadline()
        self._note_deadline(deadline)
        self._kill_timer.arm(since_boot_ns() + _LONGEST_STILL_NS if deadline is None else deadline)

    def note(self, schedule: HeartbeatSchedule) -> None:
        """Let the next heartbeat be in time for claims under this schedule."""
        if self._leases.note(schedule):
            self._strikes = 0  # they were counted while more were allowed; the deadlines hold in any case
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
        while not await wait_for(stop, _REARM_EVERY if len(self._held_claims) else _IDLE_REARM_EVERY):
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
        failures = [reason for reason in await asyncio.gather(*map(self._call, requests)) if reason]
        self._busy_until = 0
        if failures:
            if counts:
                self._strike(failures[0])
        else:
            self._strikes = 0
            self._leases.end_round()

    async def _call(self, request: hsc_pb2.HeartbeatRequest) -> str | None:
        """Send until it is answered or its time is over; why it failed, if it did."""
        sent = since_boot_ns()
        within = self._leases.now.call_deadline

        async def call(timeout: float) -> hsc_pb2.HeartbeatResponse:
            nonlocal sent
            sent = since_boot_ns()  # of the try that is acknowledged
            await failpoints.hit("executor.heartbeat.before_send")
            return await self._hsc.Heartbeat(request, timeout=timeout)

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

    def _strike(self, reason: str) -> None:
        self._strikes += 1
        events.strike(self._strikes, reason)
        if self._strikes >= self._leases.now.most_strikes:
            log.error(
                "too many failed heartbeat calls: executor ends itself before its tasks are given to others"
            )
            os.kill(os.getpid(), signal.SIGKILL)  # callback processes follow: PR_SET_PDEATHSIG
