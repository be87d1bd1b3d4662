"""Makes the cells of a local stack, and has the directory say where they are after another port or folder."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from string import ascii_lowercase

from duly_core.cells.administration import Administration, CellState
from duly_core.cells.directory import Directory, DirectoryError
from duly_core.cells.moving.sides import without_password
from duly_core.cells.store import StoredDirectory
from duly_core.errors import DulyError, SettingsError, StoreUnavailableError
from duly_core.postgres.dsn import describe
from duly_core.postgres.password import full_address
from duly_core.postgres.schema.check import SchemaState, look_at_schema
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.settings import StoreSettings, direct

NAMES = ascii_lowercase
"""The names of cells, in this order."""


class CellMaker:
    """Works on one store, by the commands of `duly cells`. Each step can be cut short, and is completed by the next run."""

    def __init__(self, settings: StoreSettings, say: Callable[[str], None]) -> None:
        """Make one; `say` is told each step."""
        self._settings = settings
        self._say = say
        self._administration = Administration(direct(settings))
        self._address = without_password(settings.dsn)

    def run(self, wanted: int | None, former: Collection[str]) -> Directory | None:
        """Return the directory, once there are as many cells as wanted; None: there are none, and none are wanted.

        Args:
            wanted: how many cells there are to be; None: as many as there are.
            former: addresses that this Postgres had before. Cells that are in it, and have one of these, get its present one.

        Raises:
            SettingsError: there are more than wanted, or this is a pooler. Nothing was changed.
            DirectoryError: a cell does not answer, or is being moved.
            DulyError: for one of these reasons the addresses cannot be corrected.
            MoveError: Postgres refuses it.
            StoreUnavailableError: Postgres does not answer.
        """
        copy = self._administration.own_copy()
        if copy is None and wanted is None:
            return None
        if wanted is not None:
            self._check(copy, wanted)
        directory = copy.directory if copy is not None else self._begin()
        directory = self._correct_addresses(directory, {without_password(each) for each in former})
        return directory if wanted is None else self._make(wanted)

    def _begin(self) -> Directory:
        _bring_up_to_date(direct(self._settings))
        directory = self._administration.init(NAMES[0], self._address)
        self._say(f"the store is cell {NAMES[0]}")
        return directory

    def _make(self, wanted: int) -> Directory:
        source = self._administration.source_of_copies()
        found = self._administration.look()
        directory = found.directory
        here = [state for state in found.states if state.cell.address == self._address and not state.away]
        to_make = _to_make(directory, wanted, here, self._address)
        if to_make:
            for state in here:
                if state.copy is not None:  # of an earlier release, maybe
                    _bring_up_to_date(self._administration.settings_of(state.cell))
        for name, schema in to_make:
            directory = self._administration.add(name, self._address, schema)
            self._say(f"cell {name} is schema {schema}")
        self._copy(directory, source)
        return directory

    def _check(self, copy: StoredDirectory | None, wanted: int) -> None:
        if self._settings.pooled:
            raise SettingsError(
                "--cells makes schemas, and a pooler (store.pooled) is no way to do so: use `duly cells init` and `duly cells add`"
            )
        names = sorted(copy.directory.cells) if copy is not None else []
        if len(names) > wanted:
            raise SettingsError(
                f"there are {len(names)} cells ({', '.join(names)}), and --cells {wanted} would be fewer: duly up removes none. Start it "
                f"with --cells {len(names)}, or without --cells; then `duly cells remove {names[-1]}` takes out one without namespaces"
            )

    def _correct_addresses(self, directory: Directory, former: Collection[str]) -> Directory:
        stale = [
            name
            for name, cell in sorted(directory.cells.items())
            if cell.address in former and cell.address != self._address
        ]
        if not stale:
            return directory
        try:
            directory = self._administration.set_address(stale, self._address, or_not_made_yet=True)
        except (DirectoryError, StoreUnavailableError) as error:
            raise DulyError(
                f"Postgres has another port or folder than before, and the directory of cells still has the former one for "
                f"{', '.join(stale)}: {error}. It is corrected when all cells answer and none is being moved; or stop what "
                f"has the former port, {'; '.join(sorted(map(describe, former)))}, and start again"
            ) from error
        self._say(f"wrote the new address of cells {', '.join(stale)} into the directory")
        return directory

    def _copy(self, directory: Directory, source: str) -> None:
        """Give all cells here what operators own: a start may have been cut short before it did."""
        for name, cell in sorted(directory.cells.items()):
            if name == source or cell.address != self._address:
                continue
            copied = asyncio.run(self._administration.copy_what_operators_own(directory, name, source))
            for refusal in copied.refused:
                self._say(f"not copied to cell {name}: {refusal}")


def _bring_up_to_date(settings: StoreSettings) -> None:
    if asyncio.run(look_at_schema(settings)) is not SchemaState.USABLE:
        migrate(full_address(settings))


def _to_make(
    directory: Directory, wanted: int, here: Sequence[CellState], address: str
) -> list[tuple[str, str]]:
    """Return the names and schemas of the cells to make: those that were begun, and then new ones."""
    begun = [(state.cell.name, state.cell.schema) for state in here if state.copy is None]
    taken = {cell.schema for cell in directory.cells.values() if cell.address == address}
    free = [
        (name, schema)
        for name in NAMES
        if name not in directory.cells and (schema := f"duly_{name}") not in taken
    ]
    return begun + free[: wanted - len(directory.cells)]
