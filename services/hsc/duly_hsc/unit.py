"""What the HSC has of one store: its connections, caches and loops, and what answers the calls that concern it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass

from duly_core.config.live_sections import TriggerSettings
from duly_core.config.timing import Timing
from duly_core.fleet.services import AS_HSC, reporting
from duly_core.gates.cache import GateCache
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.health import HealthFollower, Server
from duly_core.postgres.listener_group import ListenerGroup
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Listener, Notifier
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.process.loop import repeat
from duly_core.process.pace import USUAL, Pace
from duly_core.rpc.settings import RpcSettings
from duly_hsc.breaker_counts import BreakerCounts
from duly_hsc.cells.own_cell import SOLE, OwnCell
from duly_hsc.live_config import LiveConfig
from duly_hsc.run_trends import Fenced, RunTrends
from duly_hsc.servicer import HscServicer
from duly_hsc.settings import HscSettings
from duly_hsc.stores import HscStores, open_stores
from duly_hsc.wait_nodes import WaitNodes


@dataclass(frozen=True, slots=True)
class UnitSettings:
    """The settings that the units of a process share."""

    hsc: HscSettings
    timing: Timing
    rpc: RpcSettings
    live: TriggerSettings


@dataclass(frozen=True, slots=True)
class HscUnit:
    """What the HSC has of one store."""

    stores: HscStores
    loops: Store
    """For loops."""
    servicer: HscServicer
    settings: UnitSettings
    store_settings: StoreSettings
    config: LiveConfig
    gates: GateCache
    counts: BreakerCounts
    trends: RunTrends
    pace: Pace
    listeners: ListenerGroup | None
    """Listens once for the services of this process; None: there are no others."""
    seldom: bool
    """Whether the process reports itself as usual in another store."""

    async def run(self, health: Server, address: str, stop: asyncio.Event) -> None:
        """Follow the store until `stop`; it has just answered when this begins.

        Args:
            health: told whether the store answers.
            address: where this process serves, for operators to read.
            stop: ends it.
        """
        servicer, loops, config = self.servicer, self.loops, self.config
        follower = HealthFollower(health, self._followed, self.store_settings.unhealthy_after, pace=self.pace)
        wait_nodes = WaitNodes(loops, servicer, stop)

        def may_have_changed() -> None:
            config.may_have_changed()
            wait_nodes.may_have_changed()

        listener = Listener(
            self.store_settings,
            servicer.work.note_due,
            may_have_changed,
            on_gate=self.gates.may_have_changed,
            pace=self.pace,
            group=self.listeners,
        )
        async with (
            reporting(
                loops, AS_HSC, address, config.age.now, zone=self.settings.rpc.zone, seldom=self.seldom
            ),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(follower.run(stop))
            group.create_task(listener.run(stop))
            group.create_task(repeat("live settings", config.run_once, stop, config.wake))
            group.create_task(repeat("gates", self.gates.run_once, stop, self.gates.wake))
            group.create_task(repeat("run counts", self.counts.run_once, stop, self.counts.wake))
            group.create_task(repeat("trends", self.trends.run_once, stop, asyncio.Event()))
            group.create_task(repeat("wait nodes", wait_nodes.run_once, stop, wait_nodes.wake))

    @property
    def _followed(self) -> tuple[Store, ...]:
        """Return the pools, the one first that is to be asked whether Postgres answers."""
        return (self.loops, *self.stores.all) if self.pace.gives_back else self.stores.all

    def close(self) -> None:
        """Answer who waits for work, and end the streams: nothing is claimed from now on."""
        self.servicer.work.close()
        self.servicer.streams.close()

    async def finish(self) -> None:
        """Hand back what nobody gets, and write what is counted."""
        await self.servicer.work.finish()
        await self.trends.run_once()


@asynccontextmanager
async def open_unit(
    settings: UnitSettings,
    store_settings: StoreSettings,
    notifications: LocalNotifications | None,
    log_level: LogLevelFollower | None,
    cell: OwnCell = SOLE,
    pace: Pace = USUAL,
    fenced: Fenced | None = None,
) -> AsyncIterator[HscUnit]:
    """Open the connections of a unit.

    Args:
        settings: those that units share.
        store_settings: of the store.
        notifications: shared with other services of this process that have the same store; None: there are none.
        log_level: follows the settings in this store; None: the process follows those of another one.
        cell: the one that the store is.
        pace: of the loops that look at the store, where there are no notifications.
        fenced: what other units of this cell counted and could not add; None: there are none.
    """
    hsc = settings.hsc
    pace = pace if notifications is None else notifications.pace
    async with (
        open_stores(store_settings, hsc, settings.timing, cell, gives_back=pace.gives_back) as stores,
        AsyncExitStack() as closing,
    ):
        loops = stores.results
        if notifications is not None and pace.gives_back:
            loops = await closing.enter_async_context(notifications.loops.lend(store_settings))
        config = LiveConfig(loops, settings.live, log_level, settings.timing, hsc=hsc, pace=pace)
        gates = GateCache(loops, pace=pace)
        counts = BreakerCounts(loops, lambda: gates.breaker_lambdas, pace)
        trends = RunTrends(loops, fenced=fenced)
        servicer = HscServicer(
            stores,
            hsc,
            config.lease_timeouts,
            Notifier(stores.results, notifications),
            config.now,
            settings.rpc,
            gates=gates,
            counts=counts,
            trends=trends,
            live_hsc=config.hsc,
        )
        config.on_change(servicer.work.settings_changed)
        gates.on_change(servicer.work.gates_changed)
        with ExitStack() as leaving:
            if notifications is not None:
                leaving.callback(notifications.subscribe(servicer.work))
                leaving.callback(notifications.ask_for_looks(servicer.work))
            yield HscUnit(
                stores,
                loops,
                servicer,
                settings,
                store_settings,
                config,
                gates,
                counts,
                trends,
                pace,
                None if notifications is None else notifications.listeners,
                seldom=pace.gives_back and log_level is None,
            )
