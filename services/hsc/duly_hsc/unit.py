"""What the HSC has of one store: its connections, caches and loops, and what answers the calls that concern it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

from duly_core.config.live_sections import TriggerSettings
from duly_core.config.timing import Timing
from duly_core.fleet.services import AS_HSC, reporting
from duly_core.gates.cache import GateCache
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.health import HealthFollower, Server
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Listener, Notifier
from duly_core.postgres.settings import StoreSettings
from duly_core.process.loop import repeat
from duly_core.rpc.settings import RpcSettings
from duly_hsc.breaker_counts import BreakerCounts
from duly_hsc.live_config import LiveConfig
from duly_hsc.own_cell import SOLE, OwnCell
from duly_hsc.run_trends import RunTrends
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
    servicer: HscServicer
    settings: UnitSettings
    store_settings: StoreSettings
    config: LiveConfig
    gates: GateCache
    counts: BreakerCounts
    trends: RunTrends

    async def run(self, health: Server, address: str, stop: asyncio.Event) -> None:
        """Follow the store until `stop`; it has just answered when this begins.

        Args:
            health: told whether the store answers.
            address: where this process serves, for operators to read.
            stop: ends it.
        """
        servicer, results, config = self.servicer, self.stores.results, self.config
        follower = HealthFollower(health, self.stores.all, self.store_settings.unhealthy_after)
        wait_nodes = WaitNodes(results, servicer, stop)

        def may_have_changed() -> None:
            config.may_have_changed()
            wait_nodes.may_have_changed()

        listener = Listener(
            self.store_settings,
            servicer.work.note_due,
            may_have_changed,
            on_gate=self.gates.may_have_changed,
        )
        async with (
            reporting(results, AS_HSC, address, config.age.now, zone=self.settings.rpc.zone),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(follower.run(stop))
            group.create_task(listener.run(stop))
            group.create_task(repeat("live settings", config.run_once, stop, config.wake))
            group.create_task(repeat("gates", self.gates.run_once, stop, self.gates.wake))
            group.create_task(repeat("run counts", self.counts.run_once, stop, asyncio.Event()))
            group.create_task(repeat("trends", self.trends.run_once, stop, asyncio.Event()))
            group.create_task(repeat("wait nodes", wait_nodes.run_once, stop, wait_nodes.wake))

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
) -> AsyncIterator[HscUnit]:
    """Open the connections of a unit.

    Args:
        settings: those that units share.
        store_settings: of the store.
        notifications: shared with other services of this process that have the same store; None: there are none.
        log_level: follows the settings in this store; None: the process follows those of another one.
        cell: the one that the store is.
    """
    hsc = settings.hsc
    async with open_stores(store_settings, hsc, settings.timing, cell) as stores:
        config = LiveConfig(stores.results, settings.live, log_level, settings.timing, hsc=hsc)
        gates = GateCache(stores.results)
        counts = BreakerCounts(stores.results, lambda: gates.breaker_lambdas)
        trends = RunTrends(stores.results)
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
            yield HscUnit(stores, servicer, settings, store_settings, config, gates, counts, trends)
