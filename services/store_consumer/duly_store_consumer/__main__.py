"""Wiring of the Store Consumer process: settings, server, queue sender, a unit for each store."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace

from duly_core.attachments.open_blobs import open_blobs
from duly_core.attachments.settings import AttachmentSettings
from duly_core.cells.follower import DirectoryFollower
from duly_core.cells.health import CellHealth, CellsHealth
from duly_core.cells.settings import CellSettings
from duly_core.cells.units import Place, Units
from duly_core.config.timing import Timing
from duly_core.fleet.services import AS_STORE_CONSUMER
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings
from duly_core.queues.port import QueueSender
from duly_core.queues.settings import QueueSettings
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.unit import Shared, run_unit


def build(
    notifications: LocalNotifications | None = None,
    migration: Migration | None = None,
    **overrides: object,
) -> Serve:
    """Read the settings; services of one process share `notifications` and `migration`."""
    settings = StoreConsumerSettings.load(**overrides)
    store_settings = StoreSettings.load()
    cells_settings = CellSettings.load()
    queue_settings = QueueSettings.load()
    rpc_settings = RpcSettings.load()
    timing = Timing.load()
    telemetry = TelemetrySettings.load()
    attachments = AttachmentSettings.load()
    open_blobs(attachments)  # says now what is wrong with them
    migration = migration or Migration()

    async def serve(stop: asyncio.Event) -> None:
        # serves nothing but health and reflection
        server = RpcServer(settings.listen, [], rpc_settings.for_health(settings.listen))
        address = await server.start()
        async with AsyncExitStack() as at_the_end:
            at_the_end.push_async_callback(server.stop)
            sender: QueueSender | None = None
            if queue_settings.backend != "store":
                from duly_core.queues.sqs.sender import SqsSender  # boto3 is loaded where there is a queue

                opened = await SqsSender.open(queue_settings)
                at_the_end.push_async_callback(opened.close)
                sender = opened
            shared = Shared(
                settings,
                timing,
                attachments,
                migration,
                LogLevelFollower("store-consumer", settings, telemetry),
                rpc_settings.zone,
                sender,
            )
            follower = DirectoryFollower(store_settings, cells_settings.seeds, serve=cells_settings.serve)
            directory = await follower.first(stop)
            if directory is None:
                await run_unit(shared, Place("", store_settings), notifications, server, address, stop)
                return

            async def run_cell(place: Place, health: CellHealth, stop: asyncio.Event) -> None:
                of_cell = replace(shared, attachments=attachments.of_cell(place.cell, directory.default_cell))
                told = notifications and notifications.of_store(place.key)
                await run_unit(of_cell, place, told, health, address, stop, follower.pools)

            health = CellsHealth(server, AS_STORE_CONSUMER)
            await Units(follower, health, run_cell, cells_settings.serve).run(stop)

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("store-consumer", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
