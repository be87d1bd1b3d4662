"""Serves several cells: a unit for each, and the router before them. One server, which serves as long as one cell answers."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from datetime import timedelta

from duly_core.access.audit_entries import AuditLog
from duly_core.access.audit_log import CellsAuditLog, StoredAuditLog
from duly_core.access.cache import AccessCache
from duly_core.cells.directory import Directory
from duly_core.cells.follower import DirectoryFollower
from duly_core.cells.health import CellHealth, CellsHealth
from duly_core.cells.own_store import OwnStore
from duly_core.cells.units import Place, Units
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import HSC
from duly_core.postgres.start import Migration
from duly_core.process.loop import repeat, wait_for
from duly_core.rpc.server import RpcServer
from duly_hsc.cells.router import HscRouter
from duly_hsc.cells.served import ServedCells
from duly_hsc.events import log
from duly_hsc.run_trends import Fenced
from duly_hsc.unit import HscUnit, UnitSettings, open_unit

MakeServer = Callable[[object, AccessCache, AuditLog], RpcServer]
"""Makes the server of a servicer."""

_DRAINED_WITHIN = timedelta(seconds=8)
"""How long the stores of the cells are kept for calls that are under way when the process stops."""


class LookAgain:
    """Has the directory read again, at most once at a time."""

    def __init__(self, follower: DirectoryFollower) -> None:
        """Make one."""
        self._follower = follower
        self._looking: asyncio.Future[timedelta] | None = None

    def __call__(self) -> None:
        """Begin to look, if nobody looks."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._follower.run_once())


async def serve_cells(
    settings: UnitSettings,
    follower: DirectoryFollower,
    make_server: MakeServer,
    log_level: LogLevelFollower,
    notifications: LocalNotifications | None,
    migration: Migration,
    only: Collection[str],
    stop: asyncio.Event,
) -> None:
    """Serve the cells of the directory, which is known, until `stop`.

    Args:
        settings: those that units share.
        follower: of the directory.
        make_server: makes the server.
        log_level: follows the settings in one of the cells.
        notifications: shared with the other services of this process; None: there are no others.
        migration: makes stores ready.
        only: the names of the cells to serve; empty: all.
        stop: ends it.
    """

    def directory() -> Directory:
        if follower.now is None:
            raise AssertionError
        return follower.now

    cells = ServedCells(directory, LookAgain(follower), only=only)
    units: dict[str, HscUnit] = {}
    audit_logs: dict[str, StoredAuditLog] = {}
    fenced: defaultdict[str, Fenced] = defaultdict(list)

    def others() -> list[Store]:
        return [unit.stores.results for name, unit in units.items() if name != follower.own_cell]

    drained = asyncio.Event()
    async with OwnStore(follower) as own_store:
        router = HscRouter(cells, settings.rpc, settings.hsc.max_items_per_call)
        server = make_server(
            router,
            AccessCache(own_store.now, others, follower.wake.set),
            CellsAuditLog(StoredAuditLog(own_store.now), lambda: audit_logs),
        )
        address = await server.start()
        log.info("hsc serves", address=address, cells=sorted(directory().cells))

        async def run_unit(place: Place, health: CellHealth, stop_unit: asyncio.Event) -> None:
            told = None if notifications is None else notifications.of_store(place.key)
            level = log_level if place.leads else None
            own_cell = cells.own(place.cell)
            async with open_unit(
                settings, place.store, told, level, own_cell, place.pace, fenced[place.cell]
            ) as unit:
                if await migration.done(place.store, stop_unit, HSC):
                    with cells.serving(place.cell, unit.servicer):
                        follower.pools[place.cell] = unit.loops
                        units[place.cell] = unit
                        audit_logs[place.cell] = StoredAuditLog(unit.stores.results)
                        try:
                            await unit.run(health, address, stop_unit)
                            unit.close()
                            if stop.is_set():  # calls that are under way still write
                                await wait_for(drained, _DRAINED_WITHIN)
                        finally:
                            if units.get(place.cell) is unit:
                                del follower.pools[place.cell], units[place.cell], audit_logs[place.cell]
                unit.close()
                await unit.finish()

        async def drain() -> None:
            await stop.wait()
            cells.close()
            router.streams.close()
            await server.stop()
            drained.set()

        draining = asyncio.ensure_future(drain())
        owed = asyncio.ensure_future(repeat("owed releases", cells.run_once, stop, asyncio.Event()))
        try:
            await Units(follower, CellsHealth(server, "hsc"), run_unit, only).run(stop)
        finally:
            stop.set()
            await asyncio.wait({draining, owed})
