"""Keeps a unit of a service running for each cell: started, stopped and given another address as the directory changes.

A unit is what a service has of one store: connections, caches, loops. Each runs in a task of its own. So one that fails, or whose
Postgres is away, slows no other.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

import structlog

from duly_core.cells.directory import Directory
from duly_core.cells.health import CellHealth, CellsHealth
from duly_core.errors import DulyError, SettingsError
from duly_core.postgres.dsn import describe
from duly_core.postgres.settings import StoreSettings
from duly_core.process.current_cell import cell_fenced, current_cell
from duly_core.process.loop import backoff, repeat, wait_for, wait_for_either, worth_logging
from duly_core.process.pace import QUIET, Lively, Pace

log = structlog.get_logger()

_LAST_WORDS = timedelta(seconds=10)
"""How long a unit may take to stop."""
_LOOK_AGAIN = timedelta(minutes=1)
"""After which the directory that is known is looked at even if nobody told of a change."""
_LONGEST_BACKOFF = timedelta(seconds=30)
_RAN_WELL = 60.0
"""Seconds; a unit that ran for so long is started at once when it fails."""


@dataclass(frozen=True, slots=True)
class Place:
    """The store that a unit works on."""

    cell: str
    """Empty: a sole store."""
    store: StoreSettings
    leads: bool = True
    """Whether the process itself follows the settings in this store: of all that it serves, one."""
    pace: Pace = field(default_factory=Pace, compare=False)
    """How often its loops look at the store."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Return what services of one process call the store: the key of `LocalNotifications.of_store`."""
        return self.cell, self.store.dsn, self.store.schema_name


class Follower(Protocol):
    """Follows the directory."""

    @property
    def now(self) -> Directory | None:
        """The newest that is known."""
        ...

    @property
    def wake(self) -> asyncio.Event:
        """Set when there may be a newer one."""
        ...

    async def run_once(self) -> timedelta:
        """Look for a newer one."""
        ...

    def on_change(self, callback: Callable[[Directory], None]) -> None:
        """Call `callback` with each newer one."""
        ...

    def settings_of(self, cell: str) -> StoreSettings:
        """Return the settings of a cell's store."""
        ...


RunUnit = Callable[[Place, CellHealth, asyncio.Event], Coroutine[Any, Any, None]]
"""Runs a unit until the event is set."""


@dataclass(slots=True)
class _Running:
    place: Place
    stop: asyncio.Event
    task: asyncio.Task[None]


class Units:
    """`run` keeps a unit for each cell."""

    def __init__(
        self, follower: Follower, health: CellsHealth, run_unit: RunUnit, serve: Collection[str] = ()
    ) -> None:
        """Make one.

        Args:
            follower: knows the directory already.
            health: told of each cell.
            run_unit: runs a unit. When it fails, it is started again.
            serve: the names of the cells to serve; empty: all.
        """
        self._follower = follower
        self._health = health
        self._run_unit = run_unit
        self._serve = tuple(serve)
        self._running: dict[str, _Running] = {}
        self._applied: Directory | None = None
        """The directory by which units run."""
        self._ending: set[asyncio.Task[None]] = set()
        self._lively = Lively()

    async def run(self, stop: asyncio.Event) -> None:
        """Keep the units until `stop`, then stop them.

        Raises:
            SettingsError: a cell that is to be served is not in the directory.
        """
        self._check_names()
        changed = asyncio.Event()
        self._follower.on_change(lambda _: changed.set())
        following = asyncio.ensure_future(
            repeat("cell directory", self._follower.run_once, stop, self._follower.wake)
        )
        try:
            while not stop.is_set():
                changed.clear()
                self._apply()
                await wait_for_either(stop, changed, _LOOK_AGAIN)
        finally:
            following.cancel()
            for cell in list(self._running):
                self._end(cell)
            await asyncio.wait({following, *self._ending}, timeout=(2 * _LAST_WORDS).total_seconds())

    def _check_names(self) -> None:
        directory = self._follower.now
        cells = directory.cells if directory else {}
        if unknown := sorted(set(self._serve) - set(cells)):
            raise SettingsError(
                f"cells.serve: there is no cell {unknown[0]}: the directory has {', '.join(sorted(cells))}"
            )

    def _wanted(self, directory: Directory) -> dict[str, Place]:
        names = sorted(name for name in directory.cells if not self._serve or name in self._serve)
        leader = directory.default_cell if directory.default_cell in names else next(iter(names), "")
        return {
            name: Place(name, self._follower.settings_of(name), name == leader, Pace(QUIET, self._lively))
            for name in names
        }

    def _apply(self) -> None:
        """Start and stop units, so that there is one for each cell."""
        directory = self._follower.now
        if directory is None or directory is self._applied:
            return
        self._applied = directory
        wanted = self._wanted(directory)
        for cell, running in list(self._running.items()):
            if wanted.get(cell) != running.place:
                self._end(cell)
        for cell, place in wanted.items():
            if cell not in self._running:
                stop = asyncio.Event()
                log.info("cell served", cell=cell, store=describe(place.store.dsn))
                self._running[cell] = _Running(place, stop, asyncio.ensure_future(self._keep(place, stop)))

    def _end(self, cell: str) -> None:
        ended = self._running.pop(cell)
        ended.stop.set()
        ending = asyncio.ensure_future(self._finish(cell, ended))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _finish(self, cell: str, ended: _Running) -> None:
        """Wait for a unit that was told to stop, and cancel it when it takes too long."""
        await asyncio.wait({ended.task}, timeout=_LAST_WORDS.total_seconds())
        if not ended.task.done():
            log.warning("cell's unit does not stop; cancelled", cell=cell)
            ended.task.cancel()
            await asyncio.wait({ended.task}, timeout=1)
        if cell not in self._running:
            await self._health.forget(cell)

    async def _keep(self, place: Place, stop: asyncio.Event) -> None:
        """Run one unit, again and again if it fails."""
        current_cell.set(place.cell)
        cell_fenced.set(self._follower.wake.set)
        structlog.contextvars.bind_contextvars(cell=place.cell)
        health = self._health.of(place.cell)
        loop = asyncio.get_running_loop()
        failures = 0
        while not stop.is_set():
            await health.set_serving(serving=False)
            began_at = loop.time()
            reason = "it ended"
            try:
                await self._run_unit(place, health, stop)
            except DulyError as error:  # what another process says as it ends: the other cells go on here
                reason = str(error)
            except Exception:
                log.exception("cell's unit failed unexpectedly")
                reason = "see the traceback above"
            if stop.is_set():
                return
            failures = 1 if loop.time() - began_at > _RAN_WELL else failures + 1
            if worth_logging(failures):
                log.error("cell not served; trying again", reason=reason, failures=failures)
            await health.set_serving(serving=False)
            await wait_for(stop, backoff(failures, _LONGEST_BACKOFF))
