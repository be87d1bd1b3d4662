"""Wiring of the Frontend process: settings, store, servicers, server."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio

from duly_core.access.audit_log import StoredAuditLog
from duly_core.access.authorizer import open_authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.settings import AuthSettings
from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.config.live_sections import TriggerSettings
from duly_core.config.timing import Timing
from duly_core.fleet.services import reporting
from duly_core.lambdas.cache import LambdaCache
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.notifications import Notifier
from duly_core.postgres.rights import FRONTEND
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.loop import repeat
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings, observe_call
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_frontend.access.service import AccessServicer
from duly_frontend.attachments.service import AttachmentServicer
from duly_frontend.events import log
from duly_frontend.explain.service import ExplainServicer
from duly_frontend.fleet.inspection_service import InspectionServicer
from duly_frontend.fleet.service import FleetServicer
from duly_frontend.gates.service import GateServicer
from duly_frontend.graphs.service import GraphServicer
from duly_frontend.lambdas.service import RegistryServicer
from duly_frontend.limits.resource_needs import ResourceCache
from duly_frontend.limits.scheduling_quotas import SchedulingQuotas
from duly_frontend.limits.service import LimitServicer
from duly_frontend.live_settings.follower import LiveConfig
from duly_frontend.live_settings.service import SettingsServicer
from duly_frontend.pools.service import PoolServicer
from duly_frontend.sessions.service import SessionServicer
from duly_frontend.settings import FrontendSettings
from duly_frontend.stores import open_stores
from duly_frontend.task_output.service import OutputServicer
from duly_frontend.tasks.service import FrontendServicer
from duly_frontend.time_tables.service import TimeTableServicer


def build(
    notifications: LocalNotifications | None = None,
    migration: Migration | None = None,
    **overrides: object,
) -> Serve:
    """Read the settings; services of one process share `notifications` and `migration`."""
    settings = FrontendSettings.load(**overrides)
    store_settings = StoreSettings.load()
    rpc_settings = RpcSettings.load()
    auth_settings = AuthSettings.load()
    attachment_settings = AttachmentSettings.load()
    blob_store = open_blobs(attachment_settings)
    timing = Timing.load()
    telemetry = TelemetrySettings.load()
    trigger = TriggerSettings.load()
    migration = migration or Migration()

    async def serve(stop: asyncio.Event) -> None:
        async with open_stores(store_settings, settings) as stores:
            store = stores.writes
            config = LiveConfig(
                stores.reads, settings, trigger, LogLevelFollower("frontend", settings, telemetry), timing
            )
            known = LambdaCache(store)
            notifier = Notifier(store, notifications)
            resources = ResourceCache(stores.reads)
            quotas = SchedulingQuotas(stores.reads)
            frontend = FrontendServicer(
                stores, settings, known, notifier, rpc_settings, resources, quotas, config.now
            )
            limits = LimitServicer(stores, resources, quotas, notifier)
            sessions = SessionServicer(stores, notifier)
            graphs = GraphServicer(stores, settings, known, notifier, rpc_settings, config.now)
            registry = RegistryServicer(stores, known)
            live = SettingsServicer(store, live_settings.own(settings, telemetry, timing), timing)
            explain = ExplainServicer(stores, config.heartbeat_timeout)
            fleet = FleetServicer(stores, known, config.of_hosts)
            time_tables = TimeTableServicer(stores, Notifier(store, notifications), rpc_settings)
            blobs = BlobThreads(blob_store) if blob_store is not None else None
            attachments = AttachmentServicer(
                stores, attachment_settings, known, blobs, stores.load.parts, stores.load.answers
            )
            output = OutputServicer(stores, settings.output_limit, stores.load.output)
            inspection = InspectionServicer(stores, rpc_settings)
            server = RpcServer(
                settings.listen,
                [
                    frontend,
                    graphs,
                    registry,
                    sessions,
                    limits,
                    live,
                    explain,
                    GateServicer(stores),
                    PoolServicer(stores),
                    time_tables,
                    fleet,
                    inspection,
                    attachments,
                    output,
                    AccessServicer(store),
                ],
                rpc_settings,
                observe_call,
                open_authorizer(auth_settings, AccessCache(stores.reads)),
                StoredAuditLog(store),
                settings.health_listen,
                stores.load.calls,
            )
            address = await server.start()
            if await migration.done(store_settings, stop, FRONTEND):
                log.info("frontend serves", address=address)
                health = HealthFollower(server, stores.all, store_settings.unhealthy_after)
                async with (
                    reporting(stores.lists, "frontend", address, config.age.now, zone=rpc_settings.zone),
                    asyncio.TaskGroup() as group,
                ):
                    group.create_task(health.run(stop))
                    group.create_task(repeat("live settings", config.run_once, stop, asyncio.Event()))
            frontend.close()
            graphs.close()
            output.close()
            fleet.close()
            await server.stop()
            if blobs is not None:
                blobs.close()

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("frontend", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
