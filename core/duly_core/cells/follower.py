"""Follows the directory: reads the copies of all cells, takes the newest, and spreads it to cells that are behind."""

import asyncio
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import structlog
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from duly_core.cells import store as copies
from duly_core.cells.directory import Cell, Directory, DirectoryError
from duly_core.cells.settings import read_seed
from duly_core.cells.store import StoredDirectory
from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.connection import Connection
from duly_core.postgres.dsn import describe, parse, place_of, signing_in_of
from duly_core.postgres.pool import Store, connect_arguments_now
from duly_core.postgres.settings import StoreSettings
from duly_core.process.loop import backoff, wait_for, worth_logging

log = structlog.get_logger()

_EVERY = timedelta(seconds=30)
"""A change of the directory is seen by then; a call that is refused by a cell has the follower look at once."""
_AGAIN = timedelta(seconds=5)
"""While a cell is away, behind, or contradicts the others."""
_WHILE_FENCED = timedelta(milliseconds=250)
"""While a cell moves: its callers wait for the new address."""
_CELL_WITHIN = timedelta(seconds=2)
"""A cell that has not answered by then counts as away."""


_waiting: dict[tuple[str, str], weakref.ref["DirectoryFollower"]] = {}
"""By store, who waits for it first in this process: the services of a server wait for one store, and one of them says so."""


def _first_to_wait(follower: "DirectoryFollower", store: StoreSettings) -> bool:
    key = store.dsn, store.schema_name
    known = _waiting.get(key)
    if known is None or known() is None:
        _waiting[key] = weakref.ref(follower)
        return True
    return known() is follower


@dataclass(frozen=True, slots=True)
class CellLook:
    """What was found in a cell in the last round."""

    copy: StoredDirectory | None
    """None: the cell did not answer, or has no copy."""
    problem: str = ""
    """In words; empty: none."""


class DirectoryFollower:
    """Knows the newest directory. It never goes back to an older one."""

    def __init__(
        self,
        own: StoreSettings,
        seeds: Sequence[str] = (),
        *,
        serve: Collection[str] = (),
        spreads: bool = False,
    ) -> None:
        """Make one.

        Args:
            own: the store that this process is configured for.
            seeds: where else to read the directory at first (`[cells] seeds`).
            serve: the cells that the process is to serve (`[cells] serve`). With them or seeds the own store is no sole one.
            spreads: whether this process may write the newest version to cells that are behind: a Frontend may.
        """
        self._own = own
        self._seeds = seeds
        self._is_of_cells = bool(seeds or serve)
        self._spreads = spreads
        self._callbacks: list[Callable[[Directory], None]] = []
        self._turn = asyncio.Lock()
        self.wake = asyncio.Event()
        """Set when a cell says that it moves: the next round comes at once."""
        self.now: Directory | None = None
        """The newest directory that was found; None: there is none, the store is a sole one."""
        self.own_cell = ""
        """The name of the cell of the own store; empty: not known yet."""
        self.looks: dict[str, CellLook] = {}
        """What the last round found, by the name of the cell."""
        self.fenced_since: dict[str, float] = {}
        """Cells that are fenced at the place of the directory, and since when they were seen so, on the loop's clock."""
        self.pools: dict[str, Store] = {}
        """Open pools by the name of the cell: copies are read through them rather than through new connections."""

    def on_change(self, callback: Callable[[Directory], None]) -> None:
        """Call this with each newer directory from now on."""
        self._callbacks.append(callback)

    def settings_of(self, cell: str) -> StoreSettings:
        """Return the settings of a cell's store: its address and schema, and all else as of the own store.

        Raises:
            DirectoryError: there is no such cell.
        """
        if self.now is None or cell not in self.now.cells:
            raise DirectoryError(f"there is no cell {cell} in the directory")
        return settings_at(self._own, self.now.cells[cell], is_own=cell == self.own_cell)

    def own_settings(self) -> StoreSettings:
        """Return the settings of the own cell's store, where it is now; those of the configuration until the directory is known.

        If the own cell is not in the directory, the default cell stands for it: all have the same tokens and grants.
        """
        if self.now is None:
            return self._own
        return self.settings_of(self.own_cell if self.own_cell in self.now.cells else self.now.default_cell)

    async def is_sole(self, within: timedelta) -> bool:
        """Return whether the own store answers in time, and is no cell. Says nothing if it does not: `first` does."""
        if self._is_of_cells:
            return False
        try:
            async with asyncio.timeout(within.total_seconds()):
                return await _read_at(self._own) is None and not await self._sign_of_a_cell()
        except (StoreUnavailableError, TimeoutError):
            return False

    async def first(
        self, stop: asyncio.Event, refuse: Callable[[], Awaitable[object]] | None = None
    ) -> Directory | None:
        """Return the directory, as soon as the own store or a seed answers. None: a sole store, or `stop` came first.

        `refuse` is awaited when neither answers: the process then refuses calls, rather than connections.

        Raises:
            SettingsError: an address is none, a right is missing, or the settings or the database say that there are cells and no
                directory is found.
        """
        failures = 0
        while not stop.is_set():
            try:
                found = await _read_at(self._own)
                sign = "" if found is not None or self._is_of_cells else await self._sign_of_a_cell()
            except _RefusedError as error:
                raise SettingsError(
                    f"the user of store.dsn may not read the directory of cells: {error}; run `duly migrate --roles`, and grant the "
                    "service's role to the user (grant duly_frontend to ...)"
                ) from error
            except StoreUnavailableError as error:
                failures += 1
                if await self._ask_seeds():
                    return self.now
                if refuse is not None and failures == 1:
                    await refuse()
                if _first_to_wait(self, self._own) and worth_logging(failures):
                    log.warning("waiting for Postgres (store.dsn)", reason=str(error), failures=failures)
                await wait_for(stop, backoff(failures))
                continue
            if found is None and self._is_of_cells:
                return await self._without_own_directory()
            if sign:
                raise SettingsError(
                    f"the store at {describe(self._own.dsn)}, schema {self._own_schema}, has no directory of cells, and {sign}. As a sole "
                    "store it would take tasks of all namespaces: restore it from a backup, or correct store.dsn and store.schema_name. To "
                    "start with the other cells meanwhile, set cells.seeds to one of them"
                )
            if found is None:
                return None
            self.own_cell = found.own
            self._take(found.directory)
            await self.run_once()
            return self.now
        return None

    async def _sign_of_a_cell(self) -> str:
        """Return what says that the own store, which has no directory, was a cell; empty: nothing does.

        Raises:
            StoreUnavailableError: it does not answer.
        """
        async with _connection(self._own) as connection:
            has_guards, others = await copies.signs_on(connection)
        if has_guards:
            return "its tables have the guards of a cell (triggers duly_cell_guard): it was emptied. Drop them if it is to be a sole store"
        for schema, directory in others.items():
            if cell := self._cell_at_own_place(directory):
                return f"by the directory in schema {schema} of the same database it is cell {cell}: it was emptied, or dropped"
        return ""

    @property
    def _own_schema(self) -> str:
        return self._own.schema_name or "public"

    async def _without_own_directory(self) -> Directory | None:
        """Return the directory of a seed: a store that has lost its own is no sole store, which would take tasks of all namespaces."""
        if await self._ask_seeds():
            return self.now
        raise SettingsError(
            f"the store at {describe(self._own.dsn)} has no directory of cells, and cells.seeds or cells.serve is set: correct store.dsn and "
            "store.schema_name, restore the store from a backup, or run `duly cells init` or `duly cells add` for it. If no seed answers, "
            "start this process again when one does. Without cells, remove both settings"
        )

    async def run_once(self) -> timedelta:
        """Read the copies of all cells, take the newest, and spread it; return how long to wait before the next round.

        A copy that contradicts what is known is reported, and not followed.
        """
        async with self._turn:
            if self.now is None:
                return _EVERY
            names = sorted(self.now.cells)
            found = await asyncio.gather(*(self._look(name) for name in names))
            looks = dict(zip(names, found, strict=True))
            self._report_restored(looks)
            looks = self._newest_of(looks)
            directory = self.now
            # what the newest one lacks was taken out: its store keeps an older copy, and gets no other
            looks = {name: look for name, look in looks.items() if name in directory.cells}
            if self._spreads:
                behind = [name for name, look in looks.items() if _is_behind(look, directory)]
                await asyncio.gather(*(self._spread(name, looks) for name in behind))
            self._report(looks)
            well = all(not look.problem and not _is_behind(look, directory) for look in looks.values())
            fenced = {name for name, look in looks.items() if look.copy is not None and look.copy.fenced}
            seen_at = asyncio.get_running_loop().time()
            self.fenced_since = {name: self.fenced_since.get(name, seen_at) for name in sorted(fenced)}
            if fenced:
                return _WHILE_FENCED  # at the address that is known: the new one is not told yet
            return _EVERY if well else _AGAIN

    async def _look(self, name: str) -> CellLook:
        try:
            async with asyncio.timeout(_CELL_WITHIN.total_seconds()):
                pool = self.pools.get(name)
                copy = await (copies.read(pool) if pool is not None else _read_at(self.settings_of(name)))
        except TimeoutError:
            return CellLook(None, f"cell {name} has not answered within {_CELL_WITHIN.total_seconds():g} s")
        except (StoreUnavailableError, SettingsError) as error:
            return CellLook(None, f"cell {name} does not answer: {error}")
        if copy is None:
            return CellLook(None, f"cell {name} has no copy of the directory")
        if copy.own != name:
            return CellLook(None, f"at the address of cell {name} is cell {copy.own}")
        return CellLook(copy)

    def _newest_of(self, looks: dict[str, CellLook]) -> dict[str, CellLook]:
        """Take the newest copy that contradicts no other; return the looks, with what contradicts as a problem."""
        known = self.now
        if known is None:
            return looks
        checked = {name: _checked(name, look, known) for name, look in looks.items()}
        newer: dict[int, dict[str, str]] = {}
        for name, look in checked.items():
            if look.copy is not None and not look.problem and look.copy.directory.version > known.version:
                newer.setdefault(look.copy.directory.version, {})[name] = look.copy.directory.digest()
        for version, digests in sorted(newer.items(), reverse=True):
            if len(set(digests.values())) > 1:
                words = f"the copies of version {version} in cells {', '.join(digests)} differ"
                checked |= {name: CellLook(checked[name].copy, words) for name in digests}
                continue
            look = checked[next(iter(digests))]
            if look.copy is not None:
                self._take(look.copy.directory)
            break
        return checked

    def _take(self, directory: Directory) -> None:
        before, self.now = self.now, directory
        if before is not None:
            log.info("directory of cells changed", version=directory.version, before=before.version)
            for callback in self._callbacks:
                callback(directory)

    async def _spread(self, name: str, looks: dict[str, CellLook]) -> None:
        directory, copy = self.now, looks[name].copy
        if directory is None or copy is None:
            return
        try:
            async with asyncio.timeout(_CELL_WITHIN.total_seconds()):
                async with _connection(self.settings_of(name)) as connection:
                    await copies.write(connection, directory, name, copy.directory.version)
        except (StoreUnavailableError, SettingsError, DirectoryError, TimeoutError) as error:
            looks[name] = CellLook(copy, f"cell {name} does not take version {directory.version}: {error}")
        else:
            log.info("directory of cells written", cell=name, version=directory.version)

    def _report_restored(self, looks: dict[str, CellLook]) -> None:
        """Say so where a cell has an older copy than it had: nothing but a restore from a backup does that."""
        for name, look in looks.items():
            before = self.looks.get(name, CellLook(None)).copy
            if look.copy is None or before is None:
                continue
            if look.copy.directory.version < before.directory.version:
                log.error(
                    "cell has an older directory than before: its store was restored from a backup, and lacks what was written since",
                    cell=name,
                    version=look.copy.directory.version,
                    before=before.directory.version,
                )

    def _report(self, looks: dict[str, CellLook]) -> None:
        """Log what is new, once."""
        for name, look in looks.items():
            before = self.looks.get(name, CellLook(None))
            if look.problem and look.problem != before.problem:
                log.warning("cell", problem=look.problem)
            elif before.problem and not look.problem:
                log.info("cell works again", cell=name)
        self.looks = looks

    async def _ask_seeds(self) -> bool:
        """Take the newest directory that a seed has; return whether there is one."""
        for seed in self._seeds:
            schema, address = read_seed(seed)
            try:
                async with asyncio.timeout(_CELL_WITHIN.total_seconds()):
                    found = await _read_at(_settings_at_seed(self._own, schema, address))
            except (StoreUnavailableError, TimeoutError) as error:
                log.warning("seed of cells does not answer", seed=describe(address), reason=str(error))
                continue
            if found is not None:
                self.now = found.directory
                await self.run_once()
                self.own_cell = self._cell_at_own_place(found.directory)
                return True
        return False

    def _cell_at_own_place(self, directory: Directory) -> str:
        own = place_of(self._own.dsn), self._own_schema
        cells = directory.cells.values()
        return next((cell.name for cell in cells if (place_of(cell.address), cell.schema) == own), "")


def settings_at(own: StoreSettings, cell: Cell, *, is_own: bool = False) -> StoreSettings:
    """Return settings like those of the own store, for a cell's place: signing in is as there, for services have users of their own."""
    place = place_of(cell.address)
    update = {"dsn": make_conninfo(place, **signing_in_of(own.dsn)), "schema_name": cell.schema}
    if not is_own or place not in {place_of(own.dsn), place_of(own.direct_dsn)}:
        update["direct_dsn"] = (
            ""  # leads to another store: that of another cell, or the one from which the cell was moved
        )
    return own.model_copy(update=update)


def _settings_at_seed(own: StoreSettings, schema: str, address: str) -> StoreSettings:
    """Return settings for reading the directory at a seed: one is of this process's own settings, and may say how to sign in."""
    dsn = make_conninfo("", **(signing_in_of(own.dsn) | parse(address)))
    return own.model_copy(update={"dsn": dsn, "schema_name": schema or own.schema_name, "direct_dsn": ""})


def _checked(name: str, look: CellLook, known: Directory) -> CellLook:
    """Return a look with what contradicts the directory that is known."""
    if look.copy is None or look.problem:
        return look
    directory = look.copy.directory
    if directory.installation != known.installation:
        return CellLook(None, f"cell {name} is of another installation, {directory.installation}")
    if directory.version == known.version and directory.digest() != known.digest():
        return CellLook(look.copy, f"cell {name} has another directory of version {known.version}")
    return look


def _is_behind(look: CellLook, directory: Directory) -> bool:
    return look.copy is not None and look.copy.directory.version < directory.version


@asynccontextmanager
async def _connection(settings: StoreSettings) -> AsyncIterator[psycopg.AsyncConnection[TupleRow]]:
    """Give a connection of one's own, for a moment.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or did not do it.
    """
    try:
        async with await Connection.connect(
            **await connect_arguments_now(settings), autocommit=True
        ) as connection:
            yield connection
    except (psycopg.Error, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        is_refused = isinstance(error, psycopg.errors.InsufficientPrivilege)
        raise (_RefusedError if is_refused else StoreUnavailableError)(
            f"Postgres at {describe(settings.dsn)} did not do it: {reason}"
        ) from error


class _RefusedError(StoreUnavailableError):
    """The user lacks a right. It does not come by waiting; a cell that is not the own one is away for this process."""


async def _read_at(settings: StoreSettings) -> StoredDirectory | None:
    async with _connection(settings) as connection:
        return await copies.read_on(connection)
