"""The life of an Executor: start the callback processes, attach, pull and beat; at the end, drain."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from uuid import uuid4

from duly_core.config.settings import format_duration
from duly_core.config.timing import Timing
from duly_core.errors import DulyError, SettingsError
from duly_core.host.claim_journal import Owner
from duly_core.host.journal_folder import JournalFolder
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.process.loop import repeat, wait_for
from duly_core.process.telemetry import TelemetrySettings
from duly_core.process.version import duly_version
from duly_core.rpc.channel import names_several, open_channel
from duly_core.rpc.hsc_client import HscCallStream
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import controller_stub, hsc_stub
from duly_executor import events
from duly_executor.claims.gated import hand_back_gated
from duly_executor.claims.heartbeat import HeartbeatLoop
from duly_executor.claims.heartbeat_channel import HeartbeatChannel
from duly_executor.claims.kill_timer import KillTimer
from duly_executor.claims.lease_schedule import LeaseSchedule
from duly_executor.claims.ledger import HeldClaims
from duly_executor.containment.cgroups_or_subreaper import open_containment
from duly_executor.events import log
from duly_executor.processes.batch_lines import MOST_HELD
from duly_executor.processes.frontend_channel import FrontendChannel
from duly_executor.processes.frontend_relay import CALL_TIMEOUT_S, FrontendRelay
from duly_executor.processes.pool import CallbackPool
from duly_executor.processes.task_output import OutputSender
from duly_executor.processes.watchdog import Watchdog
from duly_executor.results.reporter import ResultReporter
from duly_executor.settings import ExecutorSettings
from duly_executor.settings_follower import SettingsFollower
from duly_executor.slots.reservations import check_served
from duly_executor.work.domains import queues_of
from duly_executor.work.labels import runnable
from duly_executor.work.poller import WorkPoller
from duly_wire.v1 import controller_pb2, hsc_pb2, registry_pb2

_DRAIN_LOOK = timedelta(milliseconds=50)
_LAST_REPORTS = timedelta(seconds=5)
_MAX_STREAM_AGE = timedelta(minutes=1)
"""Of a stream to one of several HSCs; the next one goes to another, so that an HSC that was away gets calls again."""
_BEING_REPORTED = 4_000 + MOST_HELD
"""Those of batches, and so many claims more than can run or wait are journaled: while the HSC is away, their results wait."""


class Executor:
    """One Executor."""

    def __init__(
        self,
        application: str,
        controller_address: str,
        settings: ExecutorSettings,
        timing: Timing,
        rpc: RpcSettings,
        telemetry: TelemetrySettings,
    ) -> None:
        self._log_level = LogLevelFollower("executor", settings, telemetry)
        self._application = application
        self._address = controller_address
        self._settings = settings
        self.executor_id = f"{socket.gethostname()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._hsc_channel = open_channel(settings.hsc_address, rpc)
        self._controller_channel = open_channel(controller_address, rpc.for_local_socket())
        hsc = hsc_stub(self._hsc_channel)
        self._calls = HscCallStream(
            hsc, self._unwanted, _MAX_STREAM_AGE if names_several(settings.hsc_address) else None
        )
        self._heartbeat_channel = HeartbeatChannel(settings.hsc_address, rpc)
        self._heartbeats_aside = HeartbeatChannel(settings.hsc_address, rpc)
        self._containment = open_containment(settings.containment, application)
        self._journal = JournalFolder.open(settings.journal_folder, settings.hsc_address).create(
            Owner.this_process(self.executor_id, self._containment.folder, settings.callback_uid),
            settings.places,
            settings.slots,
            settings.places * settings.slots + settings.prefetch_limit + _BEING_REPORTED,
        )
        self._board = self._journal.board
        self._held_claims = HeldClaims(self._journal)
        self._leases = LeaseSchedule(timing)
        self._reporter = ResultReporter(
            self._calls, rpc.call_timeout, rpc.max_message_bytes // 2, self._held_claims.settle
        )
        self._frontend = FrontendChannel(rpc, CALL_TIMEOUT_S)
        self._frontend_relay = FrontendRelay(self._held_claims, self._frontend)
        self._output_sender = OutputSender(self._held_claims, self._frontend)
        self._pool = CallbackPool(
            application,
            self.executor_id,
            self._journal,
            self._containment,
            self._held_claims,
            self._reporter,
            settings,
            self._frontend_relay,
            self._output_sender,
        )
        self._heartbeat_loop = HeartbeatLoop(
            self._heartbeat_channel,
            self._held_claims,
            self._leases,
            KillTimer(),
            self._pool,
            partial(hand_back_gated, self._pool, self._held_claims),
            self._journal.note_deadline,
            self._heartbeats_aside,
        )
        self._watchdog = Watchdog(
            self._board,
            self._held_claims,
            self._pool,
            settings,
            timing.heartbeat_timeout,
            self._heartbeat_loop.beat_soon,
        )
        self._failure: BaseException | None = None
        events.count_slots(settings.processes * settings.slots, lambda: sum(1 for _ in self._board.running()))

    def _unwanted(self, response: hsc_pb2.ClaimWorkResponse) -> None:
        """Hand back what came for a call that was given up."""
        self._reporter.release([task.claim for task in response.tasks])

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`, then drain.

        Raises:
            ApplicationError: the application cannot be imported, or the registry refuses its lambdas.
            SettingsError: this host's timing does not fit the HSC's, or slots are reserved for a lambda that the
                application has not.
        """

        def fail(error: BaseException) -> None:
            self._failure = self._failure or error
            stop.set()

        try:
            await self._containment.clear_abandoned()
            lambdas = await self._start_pool(fail, stop)
            if lambdas is not None:
                await self._work(lambdas, fail, stop)
        finally:
            await self._containment.close()
        await self._frontend_relay.close()
        await self._output_sender.close()
        await self._frontend.close()
        await self._calls.close()
        await self._controller_channel.close()
        await self._heartbeat_channel.close()
        await self._heartbeats_aside.close()
        await self._hsc_channel.close()
        if self._failure:
            raise self._failure

    async def _start_pool(
        self, fail: Callable[[BaseException], None], stop: asyncio.Event
    ) -> list[registry_pb2.Lambda] | None:
        """Import the application; None if that was interrupted."""
        starting = asyncio.ensure_future(self._pool.start(fail))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            await self._pool.close()
            await asyncio.gather(starting, return_exceptions=True)
            return None
        lambdas = starting.result()
        try:
            names = [declared.name for declared in lambdas]
            check_served(self._settings.reservations, names, self._application)
        except SettingsError:
            await self._pool.close()
            raise
        return lambdas

    async def _work(
        self,
        lambdas: Sequence[registry_pb2.Lambda],
        fail: Callable[[BaseException], None],
        stop: asyncio.Event,
    ) -> None:
        settings = self._settings
        queues = queues_of(lambdas, settings.served_domains)
        here = [*lambdas, *queues] if "" in settings.served_domains else queues
        served = [each.name for each in runnable(here, settings.host_labels, self._application)]
        log.info(
            "executor ready",
            executor=self.executor_id,
            app=self._application,
            lambdas=sorted(declared.name for declared in lambdas),
            processes=settings.processes,
            slots=settings.slots,
            **({"domains": settings.domains} if settings.domains else {}),
            **({"labels": settings.labels} if settings.labels else {}),
            **({"reserved_slots": settings.reserved_slots} if settings.reserved_slots else {}),
        )
        poller = self._make_poller(
            controller_pb2.AttachExecutorRequest(
                executor_id=self.executor_id,
                pid=os.getpid(),
                lambdas=[*lambdas, *queues],
                served=served if len(served) < len(lambdas) + len(queues) else (),
                labels=settings.host_labels,
                board_fd=self._board.descriptor,
                journal_fd=self._journal.descriptor,
                version=duly_version(),
                processes=settings.processes,
                slots=settings.slots,
            )
        )
        done = asyncio.Event()
        beating = asyncio.ensure_future(self._heartbeat_loop.run(self.executor_id, done))
        beating.add_done_callback(
            lambda task: fail(error) if not task.cancelled() and (error := task.exception()) else None
        )
        watching = asyncio.ensure_future(repeat("enforcement", self._watch, done, self._held_claims.came))
        follower = SettingsFollower(
            controller_stub(self._controller_channel),
            self._log_level,
            poller.take_label_queues if settings.labels else None,
        )
        following = asyncio.ensure_future(repeat("live settings", follower.run_once, done, asyncio.Event()))
        try:
            await poller.run(stop)
        except DulyError as error:
            fail(error)
        await self._drain()
        done.set()
        await watching
        for each in (beating, following):  # a call to a service that is away would hold up the end
            each.cancel()
        await asyncio.gather(beating, following, return_exceptions=True)
        self._heartbeat_loop.disarm()

    async def _watch(self) -> timedelta:
        self._containment.look()
        self._journal.alive()
        if self._pool.reserved:
            events.slots_used(self._pool.reserved.use(self._pool.processes()))
        return self._watchdog.look()

    def _make_poller(self, attach: controller_pb2.AttachExecutorRequest) -> WorkPoller:
        return WorkPoller(
            controller_stub(self._controller_channel),
            self._calls,
            self._address,
            attach,
            self._held_claims,
            self._pool,
            self._heartbeat_loop,
            self._reporter,
            self._journal,
            self._leases,
            self._settings,
            self._frontend.use,
        )

    async def _drain(self) -> None:
        """Hand back what has not started, let the rest finish within the grace; heartbeats go on to the very end."""
        loop = asyncio.get_running_loop()
        log.info("draining", tasks=len(self._held_claims), grace=format_duration(self._settings.drain_grace))
        self._pool.recall()
        end = loop.time() + self._settings.drain_grace.total_seconds()
        never = asyncio.Event()
        while self._held_claims.unfinished() and loop.time() < end:
            await wait_for(never, _DRAIN_LOOK)
        await self._pool.close()
        try:
            async with asyncio.timeout(_LAST_REPORTS.total_seconds()):
                await self._reporter.finish()
        except TimeoutError:
            events.unreported("at the end", len(self._held_claims), "the HSC did not answer in time")
