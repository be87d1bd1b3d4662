"""Brings what operators changed while a cell was away to that cell, as soon as it is back."""

from collections.abc import Callable, Mapping
from datetime import timedelta

from duly_core.cells.directory import Directory
from duly_core.cells.late_changes import CaughtUp, catch_up, settle
from duly_core.postgres.pool import Store
from duly_frontend import events
from duly_frontend.cells.cell_units import CellUnit

_EVERY = timedelta(seconds=60)
"""A cell that is back begins a round at once. Another Frontend may have seen a cell away that this one did not."""
_AGAIN = timedelta(seconds=2)
"""After a round in which a cell did not answer that seemed to."""


class LateChanges:
    """One round brings all cells that answer up to date."""

    def __init__(
        self, units: Mapping[str, CellUnit], pools: Mapping[str, Store], directory: Callable[[], Directory]
    ) -> None:
        """Make one.

        Args:
            units: by cell; some of them may not answer.
            pools: by cell, connections for loops.
            directory: returns the newest one.
        """
        self._units = units
        self._pools = pools
        self._directory = directory
        self._refused: Mapping[str, tuple[str, ...]] = {}

    async def run_once(self) -> timedelta:
        """Bring each cell what it lacks. What a cell cannot take is logged once, and tried again. What all cells have is settled."""
        directory = self._directory()
        serving = [cell for cell, unit in self._units.items() if unit.is_serving]
        stores = {cell: self._pools[cell] for cell in serving if cell in self._pools}
        done = await catch_up(stores)
        log_brought(done)
        for cell, refused in done.refused.items():
            if refused != self._refused.get(cell):
                events.log.warning(
                    "a cell that was away does not take changes of operators", cell=cell, reasons=refused
                )
        self._refused = done.refused
        if done.is_whole and not done.is_settled and stores.keys() == directory.cells.keys():
            await settle(stores, directory.version)
        return _EVERY if done.is_whole else _AGAIN


def log_brought(done: CaughtUp) -> None:
    """Log what a round brought to each cell."""
    for cell, things in done.brought.items():
        named = [f"{kind} {name}".strip() for kind, name in things]
        events.log.info("changes of operators brought to a cell that was away", cell=cell, changes=named)
