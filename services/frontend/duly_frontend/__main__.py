"""Wiring of the Frontend process: settings, store, servicers, server."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
from datetime import timedelta

from duly_core.access.audit_log import StoredAuditLog
from duly_core.access.authorizer import open_authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.settings import AuthSettings
from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.cells.follower import DirectoryFollower
from duly_core.cells.settings import CellSettings
from duly_core.config.live_sections import LiveSloSettings, TriggerSettings
from duly_core.config.timing import Timing
from duly_core.notifications.settings import NotificationSettings
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_frontend.load_limits import call_load
from duly_frontend.notifications.deliveries import Deliveries
from duly_frontend.settings import FrontendSettings
from duly_frontend.unit import Shared, open_unit

_KNOWN_WITHIN = timedelta(seconds=1)
"""A store that has not said by then whether it is a cell is away: the server starts, and refuses calls."""


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
    cells = CellSettings.load()
    migration = migration or Migration()

    async def serve(stop: asyncio.Event) -> None:
        shared = Shared(
            settings=settings,
            rpc=rpc_settings,
            auth=auth_settings,
            attachments=attachment_settings,
            blobs=BlobThreads(blob_store) if blob_store is not None else None,
            timing=timing,
            telemetry=telemetry,
            trigger=trigger,
            slo=slo,
            deliveries=deliveries,
            migration=migration,
            calls=call_load(settings),
        )
        follower = DirectoryFollower(store_settings, cells.seeds, serve=cells.serve, spreads=True)
        if await follower.is_sole(_KNOWN_WITHIN):
            await _serve_sole_store(shared, store_settings, notifications, stop)
        else:
            from duly_frontend.cells.serving import serve_late  # a sole store needs none of it

            await serve_late(shared, store_settings, follower, follower.first(stop), notifications, stop)
        if deliveries is not None:
            await deliveries.close()
        if shared.blobs is not None:
            shared.blobs.close()

    return serve


async def _serve_sole_store(
    shared: Shared, store: StoreSettings, notifications: LocalNotifications | None, stop: asyncio.Event
) -> None:
    async with open_unit(shared, store, notifications) as unit:
        server = RpcServer(
            shared.settings.listen,
            unit.servicers.all,
            shared.rpc,
            unit.accepted.observe,
            open_authorizer(shared.auth, AccessCache(unit.stores.reads)),
            StoredAuditLog(unit.stores.writes),
            shared.settings.health_listen,
            shared.calls,
        )
        address = await server.start()
        await unit.run(stop, server, address)
        unit.close()
        await server.stop()
        await unit.accepted.run_once()


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("frontend", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
