"""Remembers in which cell tasks and graphs are: their ids do not say it. No I/O."""

from collections.abc import Hashable

MOST = 20_000
"""Ids that are remembered at least; twice as many at most."""


class Locations:
    """A map with a bound: what was noted or found in the last `most` notes is there.

    An entry holds for one caller. Callers make the ids, so another one may have a task of the same id in another cell.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._young: dict[tuple[Hashable, Hashable], str] = {}
        self._old: dict[tuple[Hashable, Hashable], str] = {}

    def note(self, caller: Hashable, task_id: Hashable, cell: str) -> None:
        """Remember the cell of an id."""
        if len(self._young) >= self._most:
            self._old, self._young = self._young, {}
        self._young[caller, task_id] = cell

    def find(self, caller: Hashable, task_id: Hashable) -> str | None:
        """Return the cell of an id; None: it is not remembered."""
        key = caller, task_id
        cell = self._young.get(key)
        if cell is None and (cell := self._old.get(key)) is not None:
            self.note(caller, task_id, cell)
        return cell
