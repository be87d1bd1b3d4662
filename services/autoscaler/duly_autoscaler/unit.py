"""What an autoscaler has of one store: what there is to do is read in each, and one of them has lease, pools and plans."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, Protocol
from uuid import uuid4

from duly_autoscaler.drivers.port import Driver
from duly_autoscaler.events import log
from duly_autoscaler.leadership import Leadership
from duly_autoscaler.loads import CellLoads
from duly_autoscaler.rounds import Rounds
from duly_autoscaler.settings import AutoscalerSettings
from duly_core.cells.units import Place
from duly_core.fleet.services import reporting
from duly_core.gates.cache import GateCache
from duly_core.postgres.health import HealthFollower
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import AUTOSCALER
from duly_core.postgres.start import Migration
from duly_core.process.identity import host_name
from duly_core.process.loop import repeat
from duly_core.rpc.server import RpcServer

AUTOSCALES: Final = "autoscaler"
"""How it reports, and is named in metrics."""


class Health(Protocol):
    """Takes the health of a unit."""

    async def set_serving(self, *, serving: bool) -> None:
        """Answer health checks so from now on."""
        ...


class Servers:
    """The servers of the process: what is said of its health all of them say."""

    def __init__(self, servers: list[RpcServer]) -> None:
        self.all = servers

    async def set_serving(self, *, serving: bool) -> None:
        """Answer health checks so from now on."""
        for each in self.all:
            await each.set_serving(serving=serving)

    async def set_cell_serving(self, cell: str, *, serving: bool) -> None:
        """Answer health checks of one cell so from now on."""
        for each in self.all:
            await each.set_cell_serving(cell, serving=serving)


class Unit:
    """`run` works on one store; a process with cells runs it for each."""

    def __init__(
        self, settings: AutoscalerSettings, drivers: Mapping[str, Driver], loads: CellLoads, address: str
    ) -> None:
        """Make one.

        Args:
            settings: of the process.
            drivers: by name.
            loads: takes what there is to do in each store.
            address: where health checks are answered.
        """
        self._settings = settings
        self._drivers = drivers
        self._loads = loads
        self._address = address
        self._holder = f"{host_name()}:{os.getpid()}:{uuid4().hex[:8]}"
        self._migration = Migration()
        self.home_store: Store | None = None
        """The one that has lease, pools and plans; None: it does not answer yet."""

    async def run(
        self,
        place: Place,
        health: Health,
        stop: asyncio.Event,
        home: str,
        pools: dict[str, Store] | None = None,
    ) -> None:
        """Read what there is to do in one store, and plan if it is the home cell, until `stop`.

        Args:
            place: the store.
            health: told whether it answers.
            stop: ends it.
            home: the name of the cell that has lease, pools and plans; empty: the sole store.
            pools: open connections of the cells, by name: those of this store are there while it runs.

        Raises:
            SettingsError: the store's address, schema or rights are unusable.
        """
        if not await self._migration.done(place.store, stop, AUTOSCALER):
            return
        async with Store(place.store) as store, AsyncExitStack() as at_the_end:
            gates = GateCache(store)
            at_the_end.enter_context(self._loads.reading(place.cell, store, gates))
            if pools is not None:
                pools[place.cell] = store
                at_the_end.callback(pools.pop, place.cell, None)
            async with asyncio.TaskGroup() as group:
                following = HealthFollower(health, [store], place.store.unhealthy_after)
                group.create_task(following.run(stop))
                group.create_task(repeat("gates", gates.run_once, stop, gates.wake))
                if place.cell == home:
                    group.create_task(self._lead(store, home, stop))

    async def _lead(self, store: Store, home: str, stop: asyncio.Event) -> None:
        """Take the lease when it is free, and plan while it is held."""
        settings = self._settings
        leadership = Leadership(store, self._holder, settings.lease)
        rounds = Rounds(
            store, leadership, self._drivers, self._loads, settings.interval, settings.driver_timeout, home
        )
        self.home_store = store
        log.info("autoscaler runs", address=self._address, holder=self._holder, drivers=sorted(self._drivers))
        try:
            async with reporting(store, AUTOSCALES, self._address), asyncio.TaskGroup() as group:
                group.create_task(repeat("lease", leadership.run_once, stop, asyncio.Event()))
                group.create_task(repeat("plans", rounds.run_once, stop, asyncio.Event()))
        finally:
            if self.home_store is store:
                self.home_store = None
            await rounds.close()
            await leadership.give_up()
