"""Wiring of the HSC process: settings, store, servicer, server."""

import asyncio

from duly.v1 import hsc_pb2, hsc_pb2_grpc
from duly_core.rpc.server import RpcServer, Service
from duly_core.rpc.settings import RpcSettings
from duly_core.service import Serve, run_service
from duly_core.store.health import HealthFollower
from duly_core.store.hints import Hinter
from duly_core.store.local_hints import LocalHints
from duly_core.store.settings import StoreSettings
from duly_core.store.start import Migration
from duly_core.telemetry import observe_call
from duly_core.timing import Timing
from duly_hsc import events
from duly_hsc.servicer import HscServicer
from duly_hsc.settings import HscSettings
from duly_hsc.stores import open_stores


def build(
    hints: LocalHints | None = None,  # noqa: ARG001 (what takes it comes with the store backend)
    migration: Migration | None = None,
    **overrides: object,
) -> Serve:
    """Read the settings.

    Args:
        hints: connects the services of this process; None: the others are processes of their own.
        migration: shared with the other services of this process.
        overrides: settings of [hsc].
    """
    settings = HscSettings.load(**overrides)
    timing = Timing.load()
    store_settings = StoreSettings.load()
    rpc_settings = RpcSettings.load()
    migration = migration or Migration()

    async def serve(stop: asyncio.Event) -> None:
        async with open_stores(store_settings, settings, timing) as stores:
            servicer = HscServicer(stores, settings, timing, Hinter(stores.results))
            service = Service(
                hsc_pb2.DESCRIPTOR.services_by_name["HscService"].full_name,
                lambda grpc: hsc_pb2_grpc.add_HscServiceServicer_to_server(servicer, grpc),
            )
            server = RpcServer(settings.listen, [service], rpc_settings, observe_call)
            address = await server.start()
            if await migration.done(store_settings, stop):
                events.serving(address)
                await HealthFollower(
                    server, [stores.beats, stores.results, stores.claims], store_settings.unhealthy_after
                ).run(stop)
            await server.stop()

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("hsc", lambda: build(None, None, **overrides))


if __name__ == "__main__":
    main()
