"""Wiring of the HSC process: settings, store, servicer, server."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
from datetime import timedelta

from duly_core.access.audit_entries import AuditLog
from duly_core.access.audit_log import StoredAuditLog
from duly_core.access.authorizer import open_authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.settings import AuthSettings
from duly_core.cells.follower import DirectoryFollower
from duly_core.cells.settings import CellSettings
from duly_core.config.live_sections import TriggerSettings
from duly_core.config.timing import Timing
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.rights import HSC
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.service import Serve, run_service
from duly_core.process.telemetry import TelemetrySettings, observe_call
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings
from duly_hsc.events import log
from duly_hsc.settings import HscSettings
from duly_hsc.unit import UnitSettings, open_unit
from duly_hsc.waiting import Waiting, WaitingServicer

_KNOWN_WITHIN = timedelta(seconds=1)
"""A store that has not said by then whether it is a cell is away: the server starts, and refuses calls."""


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
    cells = CellSettings.load()
    migration = migration or Migration()
    shared = UnitSettings(settings, timing, rpc_settings, live_settings)

    def make_server(servicer: object, access: AccessCache, audit_log: AuditLog, listen: str) -> RpcServer:
        return RpcServer(
            listen,
            [servicer],
            rpc_settings,
            observe_call,
            open_authorizer(auth_settings, access),
            audit_log,
            settings.health_listen,
        )

    async def serve(stop: asyncio.Event) -> None:
        log_level = LogLevelFollower("hsc", settings, telemetry)
        follower = DirectoryFollower(store_settings, cells.seeds, serve=cells.serve)
        waiting = Waiting(
            lambda: RpcServer(
                settings.listen,
                [WaitingServicer()],
                rpc_settings,
                observe_call,
                health_listen=settings.health_listen,
            )
        )
        found = asyncio.ensure_future(follower.first(stop, waiting.start))
        await asyncio.wait({found}, timeout=_KNOWN_WITHIN.total_seconds())
        if not found.done():
            await waiting.start()
        try:
            directory = await found
        finally:
            listen = await waiting.stop() or settings.listen
        if directory is not None:
            from duly_hsc.cells.serving import serve_cells  # a sole store needs none of it

            await serve_cells(
                shared,
                follower,
                lambda servicer, access, audit_log: make_server(servicer, access, audit_log, listen),
                log_level,
                notifications,
                migration,
                cells.serve,
                stop,
            )
            return
        async with open_unit(shared, store_settings, notifications, log_level) as unit:
            results = unit.stores.results
            server = make_server(unit.servicer, AccessCache(results), StoredAuditLog(results), listen)
            address = await server.start()
            if await migration.done(store_settings, stop, HSC):
                log.info("hsc serves", address=address)
                await unit.run(server, address, stop)
            unit.close()
            await server.stop()
            await unit.finish()

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("hsc", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
