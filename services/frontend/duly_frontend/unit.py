"""What a Frontend has of one store: pools, caches, servicers and loops. A sole store has one unit, and each cell has one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from duly_core.access.settings import AuthSettings
from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.settings import AttachmentSettings
from duly_core.config.live_sections import LiveSloSettings, TriggerSettings
from duly_core.config.timing import Timing
from duly_core.fleet.services import AS_FRONTEND, AS_HSC, AS_STORE_CONSUMER, reporting
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.health import HealthFollower, Server
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import FRONTEND
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.problems.problem import FoundProblem
from duly_core.process.loop import repeat
from duly_core.process.pace import USUAL, Pace
from duly_core.process.telemetry import TelemetrySettings
from duly_core.rpc.call_load import CallLoad
from duly_core.rpc.settings import RpcSettings
from duly_frontend.events import log
from duly_frontend.live_settings.follower import LiveConfig
from duly_frontend.notifications.deliveries import Deliveries
from duly_frontend.notifications.notifier import notifiers_of
from duly_frontend.problems.board import ProblemBoard
from duly_frontend.servicers import Servicers
from duly_frontend.settings import FrontendSettings
from duly_frontend.slo.accepted_calls import AcceptedCalls
from duly_frontend.stores import FrontendStores, open_stores


@dataclass(frozen=True, slots=True)
class Shared:
    """What the units of one process have in common."""

    settings: FrontendSettings
    rpc: RpcSettings
    auth: AuthSettings
    attachments: AttachmentSettings
    blobs: BlobThreads | None
    timing: Timing
    telemetry: TelemetrySettings
    trigger: TriggerSettings
    slo: LiveSloSettings
    deliveries: Deliveries | None
    migration: Migration
    calls: CallLoad
    """The bounds of the server."""
    other_problems: Callable[[datetime], Sequence[FoundProblem]] = lambda _: ()
    """Returns what is wrong beyond the store of a unit, by its clock: with other cells."""
    plans_at: Callable[[Store], Store | None] = lambda own: own
    """Returns the store that has the autoscaler's plans, of a unit's; None: it does not answer."""


class Unit:
    """`servicers` serve as soon as it is open; `run` has its loops."""

    def __init__(
        self,
        shared: Shared,
        stores: FrontendStores,
        loops: Store | None,
        notifications: LocalNotifications | None,
        accepted: AcceptedCalls | None,
        pace: Pace,
        *,
        leads: bool,
    ) -> None:
        """Make one; see `open_unit`."""
        self._pace = pace
        self._shared_loops = loops
        self.loops = loops or stores.lists  # which have a time limit
        """For what this Frontend reads by itself."""
        self._seldom = pace.gives_back and not leads
        self.stores = stores
        self.accepted = accepted or AcceptedCalls(self.loops)
        self._counts_calls = accepted is None
        self._shared = shared
        settings, timing, telemetry = shared.settings, shared.timing, shared.telemetry
        log_level = LogLevelFollower("frontend", settings, telemetry) if leads else None
        self._config = LiveConfig(
            loops or stores.reads, settings, shared.trigger, log_level, timing, shared.slo, pace
        )
        self.servicers = Servicers(
            stores,
            settings,
            attachments=shared.attachments,
            blobs=shared.blobs,
            timing=timing,
            rpc=shared.rpc,
            notifications=notifications,
            own_settings=live_settings.own(settings, telemetry, timing),
            live=self._config.now,
            heartbeat_timeout=self._config.heartbeat_timeout,
            host_settings=self._config.of_hosts,
            deliveries=shared.deliveries,
            auth=shared.auth,
            slo=self._config.slo,
            accepted=self.accepted,
            plans_at=shared.plans_at,
        )

    async def run(self, stop: asyncio.Event, health: Server, address: str) -> None:
        """Run the loops until `stop`, once the store is ready; `health` is told whether it answers, `address` is the server's.

        Raises:
            SettingsError: the store can never be ready: its schema, or a right, is missing.
        """
        shared, stores = self._shared, self.stores
        settings = stores.writes.settings
        if not await shared.migration.done(settings, stop, FRONTEND):
            return
        log.info("frontend serves", address=address)
        followed_stores = (self._shared_loops, *stores.all) if self._shared_loops else stores.all
        followed = HealthFollower(health, followed_stores, settings.unhealthy_after, pace=self._pace)
        async with (
            reporting(
                self.loops,
                AS_FRONTEND,
                address,
                self._config.age.now,
                zone=shared.rpc.zone,
                seldom=self._seldom,
            ),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(followed.run(stop))
            group.create_task(repeat("live settings", self._config.run_once, stop, self._config.wake))
            board = ProblemBoard(
                self.loops,
                expected_services=(AS_STORE_CONSUMER, AS_HSC),
                cert_file=shared.rpc.cert_file,
                slo=self._config.slo,
                others=shared.other_problems,
                pace=self._pace,
            )
            group.create_task(repeat("problem board", board.run_once, stop, board.wake))
            if self._counts_calls:
                group.create_task(repeat("accepted calls", self.accepted.run_once, stop, asyncio.Event()))
            # a loop for each target: one that does not answer delays no other
            for notifier in notifiers_of(self.loops, shared.deliveries):
                group.create_task(repeat("notifications", notifier.run_once, stop, asyncio.Event()))

    def close(self) -> None:
        """Answer the calls that wait, and refuse others."""
        self.servicers.close()


@asynccontextmanager
async def open_unit(
    shared: Shared,
    store: StoreSettings,
    notifications: LocalNotifications | None,
    accepted: AcceptedCalls | None = None,
    *,
    leads: bool = True,
    pace: Pace = USUAL,
) -> AsyncIterator[Unit]:
    """Open the pools to a store, and make its unit. Postgres need not answer yet.

    Args:
        shared: by all units of the process.
        store: how to reach it.
        notifications: shared with the other services of this process; None: there are no others.
        accepted: counts the calls of the process; None: the unit does, in its store.
        leads: whether the process itself follows the settings in this store.
        pace: of the loops that look at the store, where there are no notifications.
    """
    pace = pace if notifications is None else notifications.pace
    async with (
        open_stores(store, shared.settings, shared.calls, gives_back=pace.gives_back) as stores,
        AsyncExitStack() as closing,
    ):
        loops = None
        if notifications is not None and pace.gives_back:
            loops = await closing.enter_async_context(notifications.loops.lend(store))
        yield Unit(shared, stores, loops, notifications, accepted, pace, leads=leads)
