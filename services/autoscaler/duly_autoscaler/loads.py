"""What there is to do for pools in all cells; of a cell that is away what it said last counts."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Self

from duly_autoscaler.pool_cells import cells_of
from duly_core.cells.directory import Directory
from duly_core.errors import DulyError, StoreUnavailableError
from duly_core.gates.cache import Gates
from duly_core.pools.load import LoadReader
from duly_core.pools.planner import LambdaLoad
from duly_core.pools.rules import Pool
from duly_core.postgres.pool import Store
from duly_core.process.outcomes import take_outcome

_CELL_WITHIN = timedelta(seconds=1)
"""A cell that has not answered by then is away for this round. Its answer counts in a later one."""


@dataclass(frozen=True, slots=True)
class FoundLoads:
    """What there is to do."""

    now: datetime
    """By the clock of the home cell, as all times here are."""
    loads: Mapping[str, Sequence[LambdaLoad]]
    """By pool."""
    away: Mapping[str, Sequence[str]]
    """By pool the cells that did not answer, and may have tasks of it."""


@dataclass(frozen=True, slots=True)
class _Reading:
    now: datetime
    """By the cell's clock."""
    at: float
    """On the loop's clock."""
    loads: Mapping[str, Sequence[LambdaLoad]]


class _Unit:
    """Reads one cell."""

    def __init__(self, store: Store, gates: Gates) -> None:
        self._reader = LoadReader(store)
        self._gates = gates
        self.reading: asyncio.Task[_Reading] | None = None

    @property
    def unmeasured(self) -> int:
        return self._reader.unmeasured

    async def read(self, pools: Sequence[Pool], ahead: timedelta) -> _Reading:
        now, loads = await self._reader.read(pools, ahead, await self._gates.known())
        return _Reading(now, asyncio.get_running_loop().time(), loads)

    def begin(self, pools: Sequence[Pool], ahead: timedelta) -> asyncio.Task[_Reading]:
        """Begin to read, unless the last reading goes on."""
        if self.reading is None:
            self.reading = asyncio.get_running_loop().create_task(self.read(pools, ahead))
            self.reading.add_done_callback(take_outcome)
        return self.reading


class CellLoads:
    """`reading` has a cell read while a block lasts."""

    def __init__(self, directory: Callable[[], Directory | None]) -> None:
        """Make one; without a directory there is a sole store, whose name is empty."""
        self._directory = directory
        self._units: dict[str, _Unit] = {}
        self._known: dict[str, _Reading] = {}

    @classmethod
    def of_sole_store(cls, store: Store, gates: Gates) -> Self:
        """Make one that reads one store."""
        made = cls(lambda: None)
        made._units[""] = _Unit(store, gates)
        return made

    @property
    def unmeasured(self) -> int:
        """Lambdas of pools beyond those whose arrivals and run times are read."""
        return sum(unit.unmeasured for unit in self._units.values())

    @contextmanager
    def reading(self, cell: str, store: Store, gates: Gates) -> Iterator[None]:
        """Read a cell (empty: the sole store) while the block lasts."""
        unit = self._units[cell] = _Unit(store, gates)
        try:
            yield
        finally:
            if unit.reading is not None:
                unit.reading.cancel()
            if self._units.get(cell) is unit:
                del self._units[cell]

    async def read(self, home: str, pools: Sequence[Pool], ahead: timedelta) -> FoundLoads:
        """Return what there is to do for pools in all cells. A lambda lives in one of them.

        Args:
            home: the cell whose clock counts; empty: the sole store.
            pools: all of them.
            ahead: how far due times are looked at.

        Raises:
            StoreUnavailableError: the home cell does not answer.
        """
        directory = self._directory()
        places = {pool.name: {home} if directory is None else cells_of(pool, directory) for pool in pools}
        others = sorted({cell for cells in places.values() for cell in cells} - {home})
        asked = {
            cell: self._units[cell].begin([pool for pool in pools if cell in places[pool.name]], ahead)
            for cell in others
            if cell in self._units
        }
        unit = self._units.get(home)
        if unit is None:
            raise StoreUnavailableError(f"cell {home} is not read yet")
        here = self._known[home] = await unit.read(
            [pool for pool in pools if home in places[pool.name]], ahead
        )
        if asked:
            await asyncio.wait(asked.values(), timeout=_CELL_WITHIN.total_seconds())
        answered = {home, *(cell for cell, reading in asked.items() if self._took(cell, reading))}
        for gone in [cell for cell in self._known if cell not in (*others, home)]:
            del self._known[gone]
        return FoundLoads(
            here.now,
            {pool.name: self._loads(pool, places[pool.name], here) for pool in pools},
            {pool.name: away for pool in pools if (away := sorted(places[pool.name] - answered))},
        )

    def _took(self, cell: str, reading: asyncio.Task[_Reading]) -> bool:
        """Take what a cell answered; return whether it did."""
        if not reading.done():
            return False
        unit = self._units.get(cell)
        if unit is not None and unit.reading is reading:
            unit.reading = None
        if reading.cancelled():
            return False
        try:
            self._known[cell] = reading.result()
        except DulyError:
            return False
        return True

    def _loads(self, pool: Pool, cells: set[str], here: _Reading) -> list[LambdaLoad]:
        found: list[LambdaLoad] = []
        for cell in sorted(cells):
            known = self._known.get(cell)
            if known is not None:
                passed = timedelta(seconds=here.at - known.at)
                found += [
                    _later(load, here.now - known.now - passed) for load in known.loads.get(pool.name, ())
                ]
        return found


def _later(load: LambdaLoad, by: timedelta) -> LambdaLoad:
    """Return a load with its times by another clock."""
    if not by or not load.due:
        return load
    return replace(load, due=tuple(replace(due, at=due.at + by) for due in load.due))
