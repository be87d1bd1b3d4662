"""Wiring of the HSC process: settings, store, servicer, server."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio

from duly_core.access.audit_log import StoredAuditLog
from duly_core.access.authorizer import open_authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.settings import AuthSettings
from duly_core.config.live_sections import TriggerSettings
from duly_core.config.timing import Timing
from duly_core.fleet.services import AS_HSC, reporting
from duly_core.gates.cache import GateCache
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Listener, Notifier
from duly_core.postgres.rights import HSC
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.loop import repeat
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings, observe_call
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_hsc.breaker_counts import BreakerCounts
from duly_hsc.events import log
from duly_hsc.live_config import LiveConfig
from duly_hsc.run_trends import RunTrends
from duly_hsc.servicer import HscServicer
from duly_hsc.settings import HscSettings
from duly_hsc.stores import open_stores
from duly_hsc.wait_nodes import WaitNodes


def build(
    notifications: LocalNotifications | None = None,
    migration: Migration | None = None,
    **overrides: object,
) -> Serve:
    """Read the settings; services of one process share `notifications` and `migration`."""
    settings = HscSettings.load(**overrides)
    timing = Timing.load()
    store_settings = StoreSettings.load()
    rpc_settings = RpcSettings.load()
    auth_settings = AuthSettings.load()
    live_settings = TriggerSettings.load()
    telemetry = TelemetrySettings.load()
    migration = migration or Migration()

    async def serve(stop: asyncio.Event) -> None:
        async with open_stores(store_settings, settings, timing) as stores:
            log_level = LogLevelFollower("hsc", settings, telemetry)
            config = LiveConfig(stores.results, live_settings, log_level, timing, hsc=settings)
            gates = GateCache(stores.results)
            counts = BreakerCounts(stores.results, lambda: gates.breaker_lambdas)
            trends = RunTrends(stores.results)
            servicer = HscServicer(
                stores,
                settings,
                config.lease_timeouts,
                Notifier(stores.results, notifications),
                config.now,
                rpc_settings,
                gates=gates,
                counts=counts,
                trends=trends,
                live_hsc=config.hsc,
            )
            config.on_change(servicer.work.settings_changed)
            gates.on_change(servicer.work.gates_changed)
            if notifications is not None:
                notifications.subscribe(servicer.work)
                notifications.ask_for_looks(servicer.work)
            authorizer = open_authorizer(auth_settings, AccessCache(stores.results))
            audit_log = StoredAuditLog(stores.results)
            server = RpcServer(
                settings.listen,
                [servicer],
                rpc_settings,
                observe_call,
                authorizer,
                audit_log,
                settings.health_listen,
            )
            address = await server.start()
            if await migration.done(store_settings, stop, HSC):
                log.info("hsc serves", address=address)
                health = HealthFollower(
                    server,
                    stores.all,
                    store_settings.unhealthy_after,
                )
                wait_nodes = WaitNodes(stores.results, servicer, stop)

                def may_have_changed() -> None:
                    config.may_have_changed()
                    wait_nodes.may_have_changed()

                listener = Listener(
                    store_settings,
                    servicer.work.note_due,
                    may_have_changed,
                    on_gate=gates.may_have_changed,
                )
                async with (
                    reporting(stores.results, AS_HSC, address, config.age.now, zone=rpc_settings.zone),
                    asyncio.TaskGroup() as group,
                ):
                    group.create_task(health.run(stop))
                    group.create_task(listener.run(stop))
                    group.create_task(repeat("live settings", config.run_once, stop, config.wake))
                    group.create_task(repeat("gates", gates.run_once, stop, gates.wake))
                    group.create_task(repeat("run counts", counts.run_once, stop, asyncio.Event()))
                    group.create_task(repeat("trends", trends.run_once, stop, asyncio.Event()))
                    group.create_task(repeat("wait nodes", wait_nodes.run_once, stop, wait_nodes.wake))
            servicer.work.close()
            servicer.streams.close()
            await server.stop()
            await servicer.work.finish()
            await trends.run_once()

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("hsc", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
