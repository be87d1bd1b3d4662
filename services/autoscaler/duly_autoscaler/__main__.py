"""Wiring of the autoscaler process: settings, drivers, servers, a unit for each store."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

from duly_autoscaler.drivers.keda import KEDA, KedaDriver
from duly_autoscaler.drivers.open_drivers import open_drivers
from duly_autoscaler.events import log
from duly_autoscaler.keda import ExternalScalerServicer, PlanReader
from duly_autoscaler.loads import CellLoads
from duly_autoscaler.settings import AutoscalerSettings
from duly_autoscaler.unit import AUTOSCALES, Servers, Unit
from duly_core.cells.follower import DirectoryFollower
from duly_core.cells.health import CellHealth, CellsHealth
from duly_core.cells.settings import CellSettings
from duly_core.cells.units import Place, Units
from duly_core.postgres.settings import StoreSettings
from duly_core.process.service import Serve, run_service
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings

_LEAST_MOST_AGE = timedelta(minutes=1)
"""A younger plan is told to KEDA in any case: another autoscaler may be about to take over."""


def build(**overrides: object) -> Serve:
    """Read the settings."""
    settings = AutoscalerSettings.load(**overrides)
    store_settings = StoreSettings.load()
    cells = CellSettings.load()
    rpc_settings = RpcSettings.load()
    specs = settings.driver_specs

    async def serve(stop: asyncio.Event) -> None:
        health = RpcServer(settings.listen, [], rpc_settings.for_health(settings.listen))
        servers = Servers([health])
        address = await health.start()
        async with AsyncExitStack() as at_the_end:
            at_the_end.push_async_callback(health.stop)
            follower = DirectoryFollower(store_settings, cells.seeds)
            directory = await follower.first(stop)
            if stop.is_set():
                return
            drivers = open_drivers(specs, settings.drain_timeout)
            for driver in drivers.values():
                at_the_end.push_async_callback(driver.close)
            unit = Unit(settings, drivers, CellLoads(lambda: follower.now), address)
            if settings.keda_address:
                drivers[KEDA] = KedaDriver()
                plans = PlanReader(lambda: unit.home_store)
                at_the_end.push_async_callback(plans.close)
                most_age = max(_LEAST_MOST_AGE, 3 * (settings.interval + settings.lease))
                scaler = ExternalScalerServicer(plans, settings.interval, most_age, stop)
                keda = RpcServer(settings.keda_address, [scaler], rpc_settings)
                log.info("answers KEDA", address=await keda.start())
                at_the_end.push_async_callback(keda.stop)
                servers.all.append(keda)
            if directory is None:
                await unit.run(Place("", store_settings), servers, stop, "")
                return

            async def run_cell(place: Place, health: CellHealth, stop: asyncio.Event) -> None:
                await unit.run(place, health, stop, directory.default_cell, follower.pools)

            await Units(follower, CellsHealth(servers, AUTOSCALES), run_cell).run(stop)

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("autoscaler", lambda: build(**overrides))


if __name__ == "__main__":
    main()
