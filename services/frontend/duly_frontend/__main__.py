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
from duly_core.config.live_sections import LiveSloSettings, TriggerSettings
from duly_core.config.timing import Timing
from duly_core.fleet.services import AS_FRONTEND, AS_HSC, AS_STORE_CONSUMER, reporting
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.notifications.settings import NotificationSettings
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.rights import FRONTEND
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.loop import repeat
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_frontend.events import log
from duly_frontend.live_settings.follower import LiveConfig
from duly_frontend.notifications.deliveries import Deliveries
from duly_frontend.notifications.notifier import notifiers_of
from duly_frontend.problems.board import ProblemBoard
from duly_frontend.servicers import Servicers
from duly_frontend.settings import FrontendSettings
from duly_frontend.slo.accepted_calls import AcceptedCalls
from duly_frontend.stores import open_stores


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
    slo = LiveSloSettings.load()
    notified = NotificationSettings.load()
    deliveries = Deliveries(notified, settings.public_url) if notified.targets else None
    migration = migration or Migration()

    async def serve(stop: asyncio.Event) -> None:
        async with open_stores(store_settings, settings) as stores:
            config = LiveConfig(
                stores.reads,
                settings,
                trigger,
                LogLevelFollower("frontend", settings, telemetry),
                timing,
                slo,
            )
            blobs = BlobThreads(blob_store) if blob_store is not None else None
            accepted = AcceptedCalls(stores.lists)
            servicers = Servicers(
                stores,
                settings,
                attachments=attachment_settings,
                blobs=blobs,
                timing=timing,
                rpc=rpc_settings,
                notifications=notifications,
                own_settings=live_settings.own(settings, telemetry, timing),
                live=config.now,
                heartbeat_timeout=config.heartbeat_timeout,
                host_settings=config.of_hosts,
                deliveries=deliveries,
                auth=auth_settings,
                slo=config.slo,
                accepted=accepted,
            )
            server = RpcServer(
                settings.listen,
                servicers.all,
                rpc_settings,
                accepted.observe,
                open_authorizer(auth_settings, AccessCache(stores.reads)),
                StoredAuditLog(stores.writes),
                settings.health_listen,
                stores.load.calls,
            )
            address = await server.start()
            if await migration.done(store_settings, stop, FRONTEND):
                log.info("frontend serves", address=address)
                health = HealthFollower(server, stores.all, store_settings.unhealthy_after)
                async with (
                    reporting(stores.lists, AS_FRONTEND, address, config.age.now, zone=rpc_settings.zone),
                    asyncio.TaskGroup() as group,
                ):
                    group.create_task(health.run(stop))
                    group.create_task(repeat("live settings", config.run_once, stop, asyncio.Event()))
                    board = ProblemBoard(
                        stores.lists,
                        expected_services=(AS_STORE_CONSUMER, AS_HSC),
                        cert_file=rpc_settings.cert_file,
                    )
                    group.create_task(repeat("problem board", board.run_once, stop, asyncio.Event()))
                    group.create_task(repeat("accepted calls", accepted.run_once, stop, asyncio.Event()))
                    # a loop for each target: one that does not answer delays no other
                    for notifier in notifiers_of(stores.lists, deliveries):
                        group.create_task(repeat("notifications", notifier.run_once, stop, asyncio.Event()))
            servicers.close()
            await server.stop()
            await accepted.run_once()
            if deliveries is not None:
                await deliveries.close()
            if blobs is not None:
                blobs.close()

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("frontend", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
