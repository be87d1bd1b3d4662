"""Asks for work: only as much as the slots can start soon."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly_core.errors import ApplicationError, SettingsError
from duly_core.host.claim_journal import ClaimJournal
from duly_core.host.heartbeat_schedule import HeartbeatSchedule
from duly_core.process.clock import nanoseconds, since_boot_ns
from duly_core.process.loop import backoff, wait_for
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.rpc.retry import describe_status
from duly_executor import events
from duly_executor.claims.heartbeat import HeartbeatLoop
from duly_executor.claims.lease_schedule import LeaseSchedule
from duly_executor.claims.ledger import HeldClaims
from duly_executor.events import log
from duly_executor.processes.pool import CallbackPool
from duly_executor.results.reporter import ResultReporter
from duly_executor.settings import ExecutorSettings
from duly_executor.work.shares import Source, WorkShare, make_shares
from duly_executor.work.sources import (
    ANSWER_MARGIN,
    ControllerSource,
    HscSource,
    LabelQueues,
    Queues,
    Requests,
    Work,
)
from duly_wire.retry_info import pause_of
from duly_wire.v1 import controller_pb2, hsc_pb2

if TYPE_CHECKING:
    from duly_wire.v1.controller_pb2_grpc import ControllerServiceAsyncStub

_ATTACH_TIMEOUT = timedelta(seconds=10)
_MOST_A_CALL = 1_000


class WorkPoller:
    """Attaches to the Controller, then keeps up to two calls for work open whenever there is room for more."""

    def __init__(
        self,
        controller: "ControllerServiceAsyncStub",
        hsc: HscCallStream,
        address: str,
        attach: controller_pb2.AttachExecutorRequest,
        held_claims: HeldClaims,
        pool: CallbackPool,
        heartbeat_loop: HeartbeatLoop,
        reporter: ResultReporter,
        journal: ClaimJournal,
        leases: LeaseSchedule,
        settings: ExecutorSettings,
        note_frontend: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Make one; `note_frontend` is told where the Frontend is, as the Controller says."""
        self._note_frontend = note_frontend
        self._controller = controller
        self._hsc = hsc
        self._address = address
        self._attach_request = attach
        self._held_claims = held_claims
        self._pool = pool
        self._heartbeat_loop = heartbeat_loop
        self._reporter = reporter
        self._journal = journal
        self._leases = leases
        self._settings = settings
        self._served = frozenset(attach.served or (declared.name for declared in attach.lambdas))
        self._label_queues = LabelQueues(attach.labels, self._served)
        self._claims_live = settings.poll_timeout + ANSWER_MARGIN + leases.timing.claim_timeout
        self._shares: list[WorkShare] = []
        """Empty: the Controller has not said yet whom to ask."""
        self._asks_hsc: bool | None = None
        self._failures = 0

    def take_label_queues(self, known: Sequence[str]) -> None:
        """Ask from now on for tasks of those of these queues whose labels this host has, too."""
        self._label_queues.take(known)

    async def run(self, stop: asyncio.Event) -> None:
        """Pull until `stop`.

        Raises:
            ApplicationError: the registry refuses the application's lambdas.
            SettingsError: the HSC's lease terms are too short for this host's deadlines.
        """
        attached = False
        while not stop.is_set():
            try:
                if not attached:
                    await self._until_one_ends([self._attach()], stop)
                    attached = True
                if not self._shares:
                    continue  # told to stop while it attached
                # two calls at a time: one is being answered while the other waits
                shares = [self._shares[0], *self._shares]
                await self._until_one_ends([self._poll_for_ever(share) for share in shares], stop)
            except grpc.aio.AioRpcError as error:
                if not attached and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                    raise ApplicationError(f"the registry refuses: {error.details()}") from error
                attached = attached and error.code() is not grpc.StatusCode.FAILED_PRECONDITION
                self._failures += 1
                reason = describe_status(error)
                log.warning("work request failed; trying again", address=self._address, reason=reason)
                pause = max(backoff(self._failures), timedelta(seconds=pause_of(error) or 0))
                await wait_for(stop, pause)

        for share in self._shares:
            await share.source.finish()

    async def _attach(self) -> None:
        response = await self._controller.AttachExecutor(
            self._attach_request, timeout=_ATTACH_TIMEOUT.total_seconds(), wait_for_ready=True
        )
        log.info("attached to the controller", host=response.host_id)
        self._note_frontend(response.frontend_address)
        self._choose_sources(ask_hsc=response.ask_hsc)

    def _choose_sources(self, *, ask_hsc: bool) -> None:
        """Ask whom the Controller says; what lost requests brought is handed back by whoever answers next."""
        if self._asks_hsc == ask_hsc:
            return
        self._asks_hsc = ask_hsc
        executor_id, timeout = self._attach_request.executor_id, self._settings.poll_timeout
        lambdas = self._served
        # a share has requests of its own: what a lost one brought is for its slots
        requests = [share.source.requests for share in self._shares]

        def make(only: Queues) -> Source:
            lost = requests.pop(0) if requests else Requests(self._journal, self._claims_live)
            if ask_hsc:
                return HscSource(self._hsc, executor_id, lambdas, lost, timeout, only, self._label_queues)
            return ControllerSource(self._controller, executor_id, lost, timeout, only)

        self._shares = make_shares(lambdas, self._settings.reservations, make, self._pool.batch_lambdas)

    @staticmethod
    async def _until_one_ends(works: Iterable[Coroutine[object, object, None]], stop: asyncio.Event) -> None:
        """Wait for the first of these, or for `stop`; the others are cancelled."""
        running = [asyncio.ensure_future(work) for work in works]
        stopping = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait([*running, stopping], return_when=asyncio.FIRST_COMPLETED)
            for work in running:
                if work.done():
                    work.result()
        finally:
            for task in (*running, stopping):
                task.cancel()
            await asyncio.gather(*running, stopping, return_exceptions=True)

    async def _poll_for_ever(self, share: WorkShare) -> None:
        while True:
            most, without = await self._wait_for_room(share)
            share.asked += most
            try:
                work = await share.source.next_work(most, without)
            finally:
                share.asked -= most
            self._failures = 0
            schedule = self._schedule(work)
            if work.tasks:
                self._take(work, schedule)
            self._journal.forget_prefix(work.token_prefix)  # its claims are journaled one by one now

    async def _wait_for_room(self, share: WorkShare) -> tuple[int, frozenset[str]]:
        """How many to ask for, and of which lambdas none."""
        while True:
            self._pool.freed.clear()
            self._pool.plan_prefetch()
            room = share.room(self._pool, self._held_claims)
            full = self._pool.full_lambdas()
            if room and not share.lambdas <= full:
                return min(room, _MOST_A_CALL), full
            await self._pool.freed.wait()

    def _schedule(self, work: Work) -> HeartbeatSchedule:
        """Refuse to work where a task could run twice at a time; an answer without tasks says so already."""
        try:
            return self._leases.under(work.terms)
        except SettingsError:
            self._reporter.release([task.claim for task in work.tasks])
            raise

    def _take(self, work: Work, schedule: HeartbeatSchedule) -> None:
        deadline = work.claims_sent_boot_ns + nanoseconds(schedule.process_deadline)
        self._held_claims.add(work.tasks, deadline)
        needed = schedule.period + schedule.call_deadline + self._leases.timing.scheduling_lateness
        if since_boot_ns() + self._heartbeat_loop.busy_for() + nanoseconds(needed) >= deadline:
            # too late to start anything under these claims: without a heartbeat in time the kernel's
            # timer would end this process with all that it runs, or others have them already
            self._give_up(work.tasks)
            return
        self._heartbeat_loop.note(schedule)
        self._heartbeat_loop.rearm()
        self._pool.give(work.tasks)

    def _give_up(self, tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
        claims = [task.claim for task in tasks]
        events.claims_lost(len(claims), "a late answer")
        self._held_claims.settle(claims)
        self._reporter.release(claims)
