"""Asks for work: only as much as the slots can start soon."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import grpc

from duly.retry_info import pause_of
from duly.v1 import controller_pb2, hsc_pb2
from duly_core.claim_journal import ClaimJournal
from duly_core.clock import nanoseconds, since_boot_ns
from duly_core.errors import ApplicationError, SettingsError
from duly_core.loop import backoff, wait_for
from duly_core.rpc.convert import from_duration
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.timing import Timing
from duly_executor import events
from duly_executor.callback_pool import CallbackPool
from duly_executor.events import log
from duly_executor.heartbeat import HeartbeatLoop
from duly_executor.held_claims import HeldClaims
from duly_executor.result_reporter import ResultReporter
from duly_executor.settings import ExecutorSettings
from duly_executor.work_sources import (
    ANSWER_MARGIN,
    ControllerSource,
    HscSource,
    Requests,
    Work,
)

if TYPE_CHECKING:
    from duly.v1.controller_pb2_grpc import ControllerServiceAsyncStub

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
        timing: Timing,
        settings: ExecutorSettings,
    ) -> None:
        self._controller = controller
        self._hsc = hsc
        self._address = address
        self._attach_request = attach
        self._held_claims = held_claims
        self._pool = pool
        self._heartbeat_loop = heartbeat_loop
        self._reporter = reporter
        self._journal = journal
        self._timing = timing
        self._settings = settings
        self._needed_ns = nanoseconds(
            timing.heartbeat_period + timing.heartbeat_deadline + timing.scheduling_lateness
        )
        """A claim that lives shorter than this may end before its first heartbeat is acknowledged."""
        self._requests = Requests(journal, settings.poll_timeout + ANSWER_MARGIN + timing.claim_timeout)
        self._source: ControllerSource | HscSource | None = None
        self._asked = 0
        self._failures = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Pull until `stop`.

        Raises:
            ApplicationError: the registry refuses the application's lambdas.
            SettingsError: the HSC's lease terms are too short for this host's deadlines.
        """
        attached = False
        source: ControllerSource | HscSource | None = None
        while not stop.is_set():
            try:
                if not attached:
                    await self._until_one_ends([self._attach()], stop)
                    attached = True
                if (source := self._source) is None:
                    continue  # told to stop while it attached
                # two calls at a time: one is being answered while the other waits
                await self._until_one_ends([self._poll_for_ever(source), self._poll_for_ever(source)], stop)
            except grpc.aio.AioRpcError as error:
                if not attached and error.code() is grpc.StatusCode.INVALID_ARGUMENT:
                    raise ApplicationError(f"the registry refuses: {error.details()}") from error
                attached = attached and error.code() is not grpc.StatusCode.FAILED_PRECONDITION
                self._failures += 1
                reason = f"{error.code().name}: {error.details()}"
                log.warning("work request failed; trying again", address=self._address, reason=reason)
                pause = max(backoff(self._failures), timedelta(seconds=pause_of(error) or 0))
                await wait_for(stop, pause)

        if source is not None:
            await source.finish()

    async def _attach(self) -> None:
        response = await self._controller.AttachExecutor(
            self._attach_request, timeout=_ATTACH_TIMEOUT.total_seconds(), wait_for_ready=True
        )
        log.info("attached to the controller", host=response.host_id)
        self._choose_source(ask_hsc=response.ask_hsc)

    def _choose_source(self, *, ask_hsc: bool) -> None:
        """Ask whom the Controller says; what lost requests brought is handed back by whoever answers next."""
        kind = HscSource if ask_hsc else ControllerSource
        if isinstance(self._source, kind):
            return
        executor_id, timeout = self._attach_request.executor_id, self._settings.poll_timeout
        if ask_hsc:
            lambdas = [declared.name for declared in self._attach_request.lambdas]
            self._source = HscSource(self._hsc, executor_id, lambdas, self._requests, timeout)
        else:
            self._source = ControllerSource(self._controller, executor_id, self._requests, timeout)

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

    async def _poll_for_ever(self, source: ControllerSource | HscSource) -> None:
        while True:
            most, without = await self._wait_for_room()
            self._asked += most
            try:
                work = await source.next_work(most, without)
            finally:
                self._asked -= most
            self._failures = 0
            self._check(work)
            if work.tasks:
                self._take(work)
            self._journal.forget_prefix(work.token_prefix)  # its claims are journaled one by one now

    async def _wait_for_room(self) -> tuple[int, frozenset[str]]:
        """How many to ask for, and of which lambdas none."""
        lambdas = {declared.name for declared in self._attach_request.lambdas}
        while True:
            self._pool.freed.clear()
            self._pool.plan_prefetch()
            room = self._pool.capacity().room(self._held_claims.unfinished() + self._asked)
            full = self._pool.full_lambdas()
            if room and not lambdas <= full:
                return min(room, _MOST_A_CALL), full
            await self._pool.freed.wait()

    def _check(self, work: Work) -> None:
        """Refuse to work where a task could run twice at a time; an answer without tasks says so already."""
        terms = work.terms
        if not terms.HasField("claim_timeout"):
            return  # a Controller that had nothing to claim
        try:
            self._timing.check_against(
                from_duration(terms.claim_timeout), from_duration(terms.heartbeat_timeout)
            )
        except SettingsError:
            self._reporter.release([task.claim for task in work.tasks])
            raise

    def _take(self, work: Work) -> None:
        deadline = self._held_claims.add(work.tasks, work.claims_sent_boot_ns)
        if since_boot_ns() + self._needed_ns >= deadline:
            # too late to start anything under these claims: without a heartbeat in time the kernel's
            # timer would end this process with all that it runs, or others have them already
            self._give_up(work.tasks)
            return
        self._heartbeat_loop.rearm()
        self._pool.give(work.tasks)

    def _give_up(self, tasks: Sequence[hsc_pb2.ClaimedTask]) -> None:
        claims = [task.claim for task in tasks]
        events.claims_lost(len(claims), "a late answer")
        self._held_claims.settle(claims)
        self._reporter.release(claims)
