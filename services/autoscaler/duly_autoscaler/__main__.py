"""Wiring of the autoscaler process: settings, store, lease, drivers, rounds."""

import duly_core.rpc.environment  # noqa: F401 (before anything imports gRPC)  # isort: skip

import asyncio
import os
from contextlib import AsyncExitStack
from datetime import timedelta
from uuid import uuid4

from duly_autoscaler.drivers.keda import KEDA, KedaDriver
from duly_autoscaler.drivers.open_drivers import open_drivers
from duly_autoscaler.events import log
from duly_autoscaler.keda import ExternalScalerServicer, PlanReader
from duly_autoscaler.leadership import Leadership
from duly_autoscaler.rounds import Rounds
from duly_autoscaler.settings import AutoscalerSettings
from duly_core.fleet.services import reporting
from duly_core.gates.cache import GateCache
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import AUTOSCALER
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.start import Migration
from duly_core.process.identity import host_name
from duly_core.process.loop import repeat
from duly_core.process.service import Serve, run_service
from duly_core.rpc.server import RpcServer
from duly_core.rpc.settings import RpcSettings

_LEAST_MOST_AGE = timedelta(minutes=1)
"""A younger plan is told to KEDA in any case: another autoscaler may be about to take over."""


def build(**overrides: object) -> Serve:
    """Read the settings."""
    settings = AutoscalerSettings.load(**overrides)
    store_settings = StoreSettings.load()
    rpc_settings = RpcSettings.load()
    specs = settings.driver_specs

    async def serve(stop: asyncio.Event) -> None:
        server = RpcServer(settings.listen, [], rpc_settings.for_health(settings.listen))
        address = await server.start()
        if not await Migration().done(store_settings, stop, AUTOSCALER):
            await server.stop()
            return
        async with Store(store_settings) as store, AsyncExitStack() as at_the_end:
            drivers = open_drivers(specs, settings.drain_timeout)
            for driver in drivers.values():
                at_the_end.push_async_callback(driver.close)
            holder = f"{host_name()}:{os.getpid()}:{uuid4().hex[:8]}"
            leadership = Leadership(store, holder, settings.lease)
            at_the_end.push_async_callback(leadership.give_up)
            gates = GateCache(store)
            rounds = Rounds(store, leadership, drivers, gates, settings.interval, settings.driver_timeout)
            at_the_end.push_async_callback(rounds.close)
            log.info("autoscaler runs", address=address, holder=holder, drivers=sorted(drivers))
            servers = [server]
            if settings.keda_address:
                drivers[KEDA] = KedaDriver()
                plans = PlanReader(store)
                at_the_end.push_async_callback(plans.close)
                most_age = max(_LEAST_MOST_AGE, 3 * (settings.interval + settings.lease))
                scaler = ExternalScalerServicer(plans, settings.interval, most_age, stop)
                keda = RpcServer(settings.keda_address, [scaler], rpc_settings)
                log.info("answers KEDA", address=await keda.start())
                at_the_end.push_async_callback(keda.stop)
                servers.append(keda)
            unhealthy_after = store_settings.unhealthy_after
            async with reporting(store, "autoscaler", address), asyncio.TaskGroup() as group:
                for each in servers:
                    group.create_task(HealthFollower(each, [store], unhealthy_after).run(stop))
                group.create_task(repeat("gates", gates.run_once, stop, gates.wake))
                group.create_task(repeat("lease", leadership.run_once, stop, asyncio.Event()))
                group.create_task(repeat("plans", rounds.run_once, stop, asyncio.Event()))
        await server.stop()

    return serve


def main(**overrides: object) -> None:
    """Run until told to stop."""
    run_service("autoscaler", lambda: build(**overrides))


if __name__ == "__main__":
    main()
