"""Serves several cells: a unit for each, and the router before them. One server, which serves as long as one cell answers."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from duly_core.access.audit_log import CellsAuditLog, StoredAuditLog
from duly_core.access.authorizer import open_authorizer
from duly_core.access.cache import AccessCache
from duly_core.attachments.blobs import BlobThreads
from duly_core.attachments.open_blobs import open_blobs
from duly_core.cells.directory import Directory
from duly_core.cells.follower import DirectoryFollower
from duly_core.cells.health import CellHealth, CellsHealth
from duly_core.cells.own_store import OwnStore
from duly_core.cells.units import Place, Units
from duly_core.postgres.local_notifications import LocalNotifications
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.problems.problem import FoundProblem
from duly_core.process.loop import repeat, wait_for
from duly_core.rpc.server import RpcServer
from duly_frontend.cells import merging
from duly_frontend.cells.away import cells_away
from duly_frontend.cells.cell_units import CellUnit, handlers_of
from duly_frontend.cells.late_changes import LateChanges
from duly_frontend.cells.routed import LateHandlers, RoutedServicers
from duly_frontend.cells.router import Router
from duly_frontend.slo.accepted_calls import AcceptedCalls
from duly_frontend.unit import Shared, open_unit

_DRAINED_WITHIN = timedelta(seconds=8)
"""How long the stores of cells are kept for calls that are under way when the process stops."""
_MOVE_ENDS_WITHIN = timedelta(minutes=1)
"""A cell that is fenced for longer is a problem: who moved it is gone."""


class UnitHealth:
    """Tells the router and the server whether a cell answers."""

    def __init__(self, unit: CellUnit, health: CellHealth, back: asyncio.Event) -> None:
        """Make one; `back` is set when the cell answers again."""
        self._unit = unit
        self._health = health
        self._back = back

    async def set_serving(self, *, serving: bool) -> None:
        """Tell both."""
        if serving and not self._unit.is_serving:
            self._back.set()
        await self._unit.set_serving(serving=serving)
        await self._health.set_serving(serving=serving)


@dataclass(frozen=True, slots=True)
class _Units:
    """The units that are open, by their cells."""

    by_cell: dict[str, CellUnit] = field(default_factory=dict)
    audit_logs: dict[str, StoredAuditLog] = field(default_factory=dict)

    def add(self, unit: CellUnit, audit_log: StoredAuditLog) -> None:
        self.by_cell[unit.name] = unit
        self.audit_logs[unit.name] = audit_log

    def remove(self, cell: str) -> None:
        del self.by_cell[cell]
        del self.audit_logs[cell]

    def tells(self, cell: str, directory: Directory) -> bool:
        """Whether the board of this cell says which cells are away: one of those that answer does."""
        order = sorted(directory.cells, key=lambda name: (name != directory.default_cell, name))
        serving = (name for name in order if name in self.by_cell and self.by_cell[name].is_serving)
        return next(serving, "") == cell

    def plans_at(self, cell: str, default: str, own: Store) -> Store | None:
        """Return the store that has the autoscaler's plans, for a cell: that of the default cell; None: it does not answer."""
        home = self.by_cell.get(default)
        return own if cell == default else home.reads if home is not None and home.is_serving else None

    def others(self, own: str) -> list[Store]:
        """Return the stores of other cells that answer: they have the same tokens and grants as the own one."""
        return [unit.reads for cell, unit in self.by_cell.items() if unit.is_serving and cell != own]


async def serve_late(
    shared: Shared,
    own: StoreSettings,
    follower: DirectoryFollower,
    found: Awaitable[Directory | None],
    notifications: LocalNotifications | None,
    stop: asyncio.Event,
) -> None:
    """Serve cells, or a sole store of which it was not known at the start that it is one, until `stop`.

    Args:
        shared: by all units.
        own: the process's own store.
        follower: of the directory.
        found: the directory; None: a sole store.
        notifications: shared with the other services of this process; None: there are no others.
        stop: ends it.
    """
    late = LateHandlers()
    rpc = shared.rpc
    async with OwnStore(follower) as own_store:
        accepted = AcceptedCalls(own_store.now)
        routed = RoutedServicers(
            late.handler, rpc.call_timeout, rpc.max_message_bytes, shared.calls.calls, accepted.observe
        )
        units = _Units()
        server = RpcServer(
            shared.settings.listen,
            routed.all,
            rpc,
            accepted.observe,
            open_authorizer(
                shared.auth,
                AccessCache(own_store.now, lambda: units.others(follower.own_cell), follower.wake.set),
            ),
            CellsAuditLog(StoredAuditLog(own_store.now), lambda: units.audit_logs),
            shared.settings.health_listen,
            shared.calls,
        )
        address = await server.start()
        counting = asyncio.ensure_future(repeat("accepted calls", accepted.run_once, stop, asyncio.Event()))
        try:
            serving = _Serving(shared, late, notifications, accepted, server, routed, address, units)
            if await found is not None:
                await own_store.follow()
                await serving.cells(follower, stop)
            elif stop.is_set():
                await serving.end()
            else:
                await serving.sole_store(own, stop)
        finally:
            counting.cancel()
            if not stop.is_set():
                await server.stop()
        await accepted.run_once()


@dataclass(frozen=True, slots=True)
class _Serving:
    """What it takes to serve, once it is known what."""

    shared: Shared
    late: LateHandlers
    notifications: LocalNotifications | None
    accepted: AcceptedCalls
    server: RpcServer
    routed: RoutedServicers
    address: str
    units: _Units

    async def sole_store(self, own: StoreSettings, stop: asyncio.Event) -> None:
        async with open_unit(self.shared, own, self.notifications, self.accepted) as unit:
            self.late.serve_by(handlers_of(unit.servicers.all).__getitem__)
            await unit.run(stop, self.server, self.address)
            unit.close()
            await self.end()

    async def end(self) -> None:
        """Let calls that are under way end; stores are kept until then."""
        self.routed.close()
        await self.server.stop()

    async def cells(self, follower: DirectoryFollower, stop: asyncio.Event) -> None:
        router = Router(
            lambda: known_of(follower),
            lambda: follower.own_cell,
            merging,
            follower.run_once,
            self.shared.rpc.max_message_bytes,
        )
        router.units = self.units.by_cell
        self.late.serve_by(router.handler)

        drained, back = asyncio.Event(), asyncio.Event()
        late = LateChanges(self.units.by_cell, follower.pools, partial(known_of, follower))

        async def drain() -> None:
            await stop.wait()
            await self.end()
            drained.set()

        async def run_unit(place: Place, health: CellHealth, stop_unit: asyncio.Event) -> None:
            local = None if self.notifications is None else self.notifications.of_store(place.key)
            default = known_of(follower).default_cell
            attachments = self.shared.attachments.of_cell(place.cell, default)
            blob_store = open_blobs(attachments)
            blobs = BlobThreads(blob_store) if blob_store is not None else None
            shared = replace(
                self.shared,
                attachments=attachments,
                blobs=blobs,
                other_problems=partial(self._cells_away, follower, place.cell),
                plans_at=partial(self.units.plans_at, place.cell, default),
            )
            async with open_unit(
                shared, place.store, local, self.accepted, leads=place.leads, pace=place.pace
            ) as unit:
                cell = CellUnit(
                    place.cell, handlers_of(unit.servicers.all), unit.stores.reads, router.look_soon
                )
                self.units.add(cell, StoredAuditLog(unit.stores.writes))
                follower.pools[place.cell] = unit.loops
                try:
                    await unit.run(stop_unit, UnitHealth(cell, health, back), self.address)
                    unit.close()
                    if stop.is_set():
                        await wait_for(drained, _DRAINED_WITHIN)
                finally:
                    if router.units.get(place.cell) is cell:
                        self.units.remove(place.cell)
                        del follower.pools[place.cell]
                    unit.close()
                    if blobs is not None:
                        blobs.close()

        draining = asyncio.ensure_future(drain())
        bringing = asyncio.ensure_future(repeat("late changes", late.run_once, stop, back))
        try:
            await Units(follower, CellsHealth(self.server, "frontend"), run_unit).run(stop)
        finally:
            stop.set()
            await draining
            await bringing

    def _cells_away(self, follower: DirectoryFollower, cell: str, now: datetime) -> list[FoundProblem]:
        directory = known_of(follower)
        if not self.units.tells(cell, directory):
            return []
        said = {name: look.problem for name, look in follower.looks.items()}
        units = self.units.by_cell.values()
        gone = [unit.name for unit in units if unit.has_served and not unit.is_serving]
        since = asyncio.get_running_loop().time() - _MOVE_ENDS_WITHIN.total_seconds()
        fenced = [name for name, seen_at in follower.fenced_since.items() if seen_at <= since]
        return cells_away(directory, said, gone, now, fenced)


def known_of(follower: DirectoryFollower) -> Directory:
    """Return the newest directory, which is there from the first on."""
    if follower.now is None:
        raise AssertionError
    return follower.now
