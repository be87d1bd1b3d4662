"""The cells that this HSC serves now, and what is owed to those that are away."""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import structlog

from duly_core.cells.directory import Directory
from duly_core.errors import CellFencedError, NotInCellError, OverloadedError, StoreUnavailableError
from duly_hsc.cells.own_cell import OwnCell
from duly_hsc.cells.pause import Pause
from duly_hsc.servicer import HscServicer

log = structlog.get_logger()

_LOOK_EVERY = timedelta(seconds=1)
_MOST_OWED = 1_000
"""Prefixes for one cell: more are forgotten, and their claims run out."""
_OWED_FOR = 600.0
"""Seconds; claims under older ones have run out."""
_AT_A_TIME = 500
_MOST_SPLITS = 1_024


@dataclass(frozen=True, slots=True)
class ServedCell:
    """A cell whose store this HSC has connections to."""

    name: str
    servicer: HscServicer
    pause: Pause


class ServedCells:
    """`run_once` hands back what is owed."""

    def __init__(
        self,
        directory: Callable[[], Directory],
        look_again: Callable[[], object] = lambda: None,
        now: Callable[[], float] | None = None,
        only: Collection[str] = (),
    ) -> None:
        """Make one.

        Args:
            directory: tells the newest that is known.
            look_again: called when a call names a cell that is not known here: the directory may be an old one.
            now: tells seconds on a clock that never goes back; None: the loop's.
            only: the names of the cells that this HSC serves; empty: all.
        """
        self._directory = directory
        self._look_again = look_again
        self._now = now or (lambda: asyncio.get_running_loop().time())
        self._only = tuple(only)
        self._cells: dict[str, ServedCell] = {}
        self.is_closed = False
        """Calls that wait for work are answered without any."""
        self._owed: defaultdict[str, OrderedDict[bytes, float]] = defaultdict(OrderedDict)
        self._splits: dict[frozenset[str], dict[str, frozenset[str]]] = {}
        self._splits_of: Directory | None = None

    @contextmanager
    def serving(self, name: str, servicer: HscServicer) -> Iterator[None]:
        """Send the calls for a cell to this servicer while the block lasts."""
        cell = self._cells[name] = ServedCell(name, servicer, Pause(self._now))
        try:
            yield
        finally:
            if self._cells.get(name) is cell:  # and not that of its next address
                del self._cells[name]

    @property
    def default(self) -> str:
        """The name of the default cell."""
        return self._directory().default_cell

    def names(self) -> list[str]:
        """Return the names of all cells, whether they are served here or not."""
        return sorted(self._directory().cells)

    def get(self, name: str) -> ServedCell | None:
        """Return a cell by its name (empty: the default cell); None: it is not served here, or not yet."""
        return self._cells.get(name or self.default)

    def the(self, name: str) -> ServedCell:
        """Return a cell by its name (empty: the default cell).

        Raises:
            StoreUnavailableError: it is not served here, or not yet.
        """
        cell = self.get(name)
        if cell is not None:
            return cell
        if name and name not in self._directory().cells:
            self._look_again()
            raise StoreUnavailableError(
                f"this HSC knows no cell {name[:32]!r}: its directory is of version {self._directory().version}"
            )
        raise self.reason_of(name or self.default)

    def reason_of(self, name: str) -> StoreUnavailableError:
        """Return why a cell of the directory is not served here."""
        if self._only and name not in self._only:
            return StoreUnavailableError(f"this HSC does not serve cell {name} (cells.serve): ask another")
        return StoreUnavailableError(f"cell {name} is away: this HSC waits for its Postgres")

    def close(self) -> None:
        """Answer the calls that wait for work, and those that come from now on, without any."""
        self.is_closed = True

    @contextmanager
    def naming(self, cell: ServedCell) -> Iterator[None]:
        """Let the error of a cell that does not answer name it.

        Raises:
            StoreUnavailableError: it does not answer.
            NotInCellError: it does not own the namespace; the directory is read again.
        """
        try:
            yield
        except StoreUnavailableError as error:
            cell.pause.failed()
            if isinstance(error, CellFencedError):  # it moves: the directory will say where to
                self._look_again()
            raise StoreUnavailableError(f"cell {cell.name}: {error}") from error
        except NotInCellError:
            self._look_again()
            raise

    def split(self, lambdas: frozenset[str]) -> dict[str, frozenset[str]]:
        """Return lambdas by the name of the cell in which they live."""
        directory = self._directory()
        if directory is not self._splits_of:
            self._splits.clear()
            self._splits_of = directory
        found = self._splits.get(lambdas)
        if found is None:
            by_cell: defaultdict[str, set[str]] = defaultdict(set)
            for name in lambdas:
                by_cell[directory.cell_of_lambda(name)].add(name)
            found = {cell: frozenset(names) for cell, names in sorted(by_cell.items())}
            if len(self._splits) >= _MOST_SPLITS:
                self._splits.clear()
            self._splits[lambdas] = found
        return found

    def cell_of(self, lambda_name: str) -> str:
        """Return the name of the cell in which a lambda lives."""
        return self._directory().cell_of_lambda(lambda_name)

    def own(self, name: str) -> OwnCell:
        """Return what the unit of a cell has to know of the others."""

        def other_cell_of(lambda_name: str) -> str:
            other = self.cell_of(lambda_name)
            return "" if other == name else other

        return OwnCell(name, other_cell_of)

    def owe(self, name: str, prefixes: Iterable[bytes]) -> None:
        """Note that what was claimed in a cell under these prefixes is to be handed back once it answers."""
        owed, now = self._owed[name], self._now()
        for prefix in prefixes:
            owed[prefix] = now
            owed.move_to_end(prefix)
        while len(owed) > _MOST_OWED:
            owed.popitem(last=False)

    async def run_once(self) -> timedelta:
        """Hand back what is owed to cells that may answer by now; return when to come back."""
        for name in [name for name, owed in self._owed.items() if owed]:
            self._forget_old(name)
            cell = self._cells.get(name)
            prefixes = list(self._owed[name])[:_AT_A_TIME]
            if cell is None or not prefixes or not cell.pause.may_try():
                continue
            with suppress(StoreUnavailableError, OverloadedError):
                await self.hand_back(cell, prefixes)
        return _LOOK_EVERY

    async def hand_back(self, cell: ServedCell, prefixes: Sequence[bytes]) -> None:
        """Hand back what was claimed in a cell under these prefixes; if it does not answer, it is owed.

        Raises:
            StoreUnavailableError: it is owed.
            OverloadedError: the same.
        """
        self.owe(cell.name, prefixes)
        try:
            await cell.servicer.release_under(prefixes)
        except StoreUnavailableError:
            cell.pause.failed()
            raise
        cell.pause.answered()
        for prefix in prefixes:
            self._owed[cell.name].pop(prefix, None)

    def _forget_old(self, name: str) -> None:
        owed, oldest = self._owed[name], self._now() - _OWED_FOR
        while owed and next(iter(owed.values())) < oldest:
            owed.popitem(last=False)
