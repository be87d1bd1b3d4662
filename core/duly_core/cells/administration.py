"""What `duly cells` does to the directory: make a store a cell, add and remove cells, give a namespace to one.

A change needs all cells, and the lock at the default cell: so two changes never make one version.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID, uuid4

from psycopg import sql

from duly_core.cells.change_lock import locked
from duly_core.cells.copying import Copied, copy_operators_data
from duly_core.cells.directory import Cell, Directory, DirectoryError, newest
from duly_core.cells.follower import settings_at
from duly_core.cells.guards import GUARDED, add_guards, missing_guards
from duly_core.cells.late_changes import catch_up
from duly_core.cells.moving.checks import is_new, same_release
from duly_core.cells.moving.copies import forward, make_cell, read_copy
from duly_core.cells.moving.errors import MoveError
from duly_core.cells.moving.sides import Side, in_schema, without_password
from duly_core.cells.operators_turn import turns
from duly_core.cells.store import StoredDirectory
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.dsn import signing_in_of
from duly_core.postgres.password import full_address
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import FRONTEND
from duly_core.postgres.schema.migrate import migrate
from duly_core.postgres.service_roles import make_roles
from duly_core.postgres.settings import StoreSettings

DEFAULT_SCHEMA = "public"
_SECRETS = frozenset({"password", "sslpassword"})
_WRITERS_FOR = timedelta(seconds=30)
"""How long a change tries to be alone with the tables of a cell."""
_NO_DIRECTORY = (
    "the store of cell {name} has no directory: run `duly cells add {name}` again, or, if the store was restored from a backup, "
    "restore one of after it became a cell"
)
_USED = sorted({*GUARDED, "task"})
"""Tables whose rows belong to a namespace for good."""
_WHAT_HELPS = (
    "Start its Postgres, or say where it is now: `duly cells set {name} --at ADDRESS`. If it never comes back and no namespace lives in it: "
    "`duly cells remove {name} --is-gone`"
)
_WORDS = {
    "graph_node": "nodes of graphs",
    "lambda_declaration": "lambdas",
    "lambda_ramp": "ramps",
    "start_objective": "objectives",
    "task_assoc": "tasks",
    "time_table": "time tables",
}
"""What a table has; others are called like it."""
_HELD = {
    "breaker": "breakers do not move. Delete them (`duly breakers delete`), and set them after it",
    "start_objective": "objectives do not move. Remove them (`duly slo reset`), and set them after it",
    "gate": "gates do not move. Delete them (`duly gates delete`), and set them after it",
}
"""Tables beside these whose rows are of one namespace, and what to do about them."""
_AGAIN = timedelta(milliseconds=200)
_TABLE_LOCK_TIMEOUT = "set local lock_timeout = '500ms'"
"""Callers of the cell stand behind the lock: it gives up, and is tried again."""


def check_no_password(address: str) -> None:
    """Check that an address says only where a cell is: each service signs in there as it does at its own store.

    Raises:
        DirectoryError: it says more.
    """
    signing_in = signing_in_of(address)
    if not _SECRETS.isdisjoint(signing_in):
        raise DirectoryError(
            "an address of a cell has no password: the services take it from store.password_file, store.password_command or libpq's "
            "password file; write postgresql://HOST/DATABASE"
        )
    if signing_in:
        raise DirectoryError(
            f"an address of a cell has no {', '.join(sorted(signing_in))}: user, TLS and the rest are those of [store], of each process "
            "its own; write postgresql://HOST/DATABASE"
        )


@dataclass(frozen=True, slots=True)
class CellState:
    """A cell as a command finds it."""

    cell: Cell
    copy: StoredDirectory | None
    """What the store there says; None: it is no cell, or does not answer."""
    schema_version: str = ""
    unguarded: tuple[str, ...] = ()
    """Tables that lack the guard against rows of other cells' namespaces."""
    away: str = ""
    """Why it does not answer; empty: it does."""


@dataclass(frozen=True, slots=True)
class Cells:
    """All cells, as a command finds them."""

    directory: Directory
    """The newest."""
    states: tuple[CellState, ...]
    """By name, sorted."""
    own: str
    """The name of the cell of the settings."""

    def problems(self) -> list[str]:
        """Say what is wrong, each with what helps."""
        problems = []
        versions = {state.schema_version for state in self.states if state.schema_version}
        for state in self.states:
            problems += _problems_of(state, self.directory)
        if len(versions) > 1:
            told = ", ".join(
                f"{each.cell.name}: {each.schema_version}" for each in self.states if each.schema_version
            )
            problems.append(
                f"cells have schemas of different releases ({told}): run `duly migrate` for the older ones"
            )
        return problems


def _problems_of(state: CellState, directory: Directory) -> list[str]:
    name, copy = state.cell.name, state.copy
    if state.away:
        return [f"cell {name} does not answer: {state.away}. {_WHAT_HELPS.format(name=name)}"]
    if copy is None:
        return [_NO_DIRECTORY.format(name=name)]
    problems = []
    if copy.own != name:
        problems.append(
            f"the directory says that cell {name} is there, and the store says that it is cell {copy.own}"
        )
    elif copy.directory.installation != directory.installation:
        problems.append(f"the store of cell {name} is of another installation, {copy.directory.installation}")
    elif copy.directory.version < directory.version:
        owned = [namespace for namespace, cell in copy.directory.namespaces.items() if cell == name]
        lost = [namespace for namespace in owned if directory.cell_of(namespace) != name]
        half = f", and still takes tasks of {', '.join(lost)}" if lost else ""
        problems.append(
            f"cell {name} has version {copy.directory.version} of the directory, and the newest is {directory.version}{half}: "
            "`duly cells sync` brings it up to date; an old version after a restore from a backup means that what was written "
            "since then is lost there"
        )
    elif copy.directory.digest() != directory.digest():
        problems.append(
            f"cell {name} has another directory of the same version {directory.version}: one of them lies"
        )
    if copy.fenced:
        problems.append(
            f"cell {name} is fenced, and refuses every write: a move has not ended. Run `duly cells move {name}` again, or with --abort"
        )
    if state.unguarded:
        problems.append(f"cell {name} lacks guards on {', '.join(state.unguarded)}: run `duly cells sync`")
    return problems


class Administration:
    """Changes the directory; each method is one command."""

    def __init__(self, settings: StoreSettings) -> None:
        """Make one; `settings` are those of any cell, past a pooler."""
        self._settings = settings
        self._dsn = full_address(settings)
        self._schema = settings.schema_name or DEFAULT_SCHEMA

    def settings_of(self, cell: Cell) -> StoreSettings:
        """Return the settings of a cell: signing in is as at the own store."""
        return settings_at(self._settings, cell)

    async def copy_what_operators_own(self, directory: Directory, name: str, source_name: str = "") -> Copied:
        """Copy settings, grants, tokens, resources, gates, pools and calendars of a cell (empty: the default one) to another one.

        What was changed while one of both was away comes first to the one that lacks it: the copy would undo it. What that one does
        not take stays as it is in both, and is named.

        Raises:
            StoreUnavailableError: a cell does not answer, or cannot say what was changed; nothing was copied, or not all.
        """
        source_name = source_name or directory.default_cell
        source = Store(self.settings_of(directory.cells[source_name]))
        stores = {source_name: source, name: Store(self.settings_of(directory.cells[name]))}
        async with source, stores[name] as target, turns(stores) as missed:
            for cell, reason in missed.items():
                raise StoreUnavailableError(
                    f"what operators own was not copied to cell {name}: cell {cell}: {reason}"
                )
            caught = await catch_up(stores, has_turns=True)
            if not caught.is_whole:
                raise StoreUnavailableError(
                    f"what operators own was not copied to cell {name}: it or cell {source_name} does not answer, lacks a migration, or was "
                    "changed meanwhile. `duly cells check` says what helps; then run it again"
                )
            left = [thing for things in caught.left.values() for thing in things]
            copied = await copy_operators_data(source, target, left)
        newer = tuple(
            f"cell {name} has a newer change, which cell {source_name} does not take: {reason}"
            for reason in caught.refused.get(source_name, ())
        )
        return Copied(copied.changed, (*caught.refused.get(name, ()), *newer, *copied.refused))

    def init(self, name: str, address: str = "") -> Directory:
        """Make the store the first cell of an installation: all namespaces live in it.

        `address` is where the services find it; empty: as this command does.

        Raises:
            DirectoryError: it is a cell, or the name is invalid.
            MoveError: Postgres refuses it.
            StoreUnavailableError: it does not answer.
        """
        with Side(self._dsn, self._schema, "store") as side:
            if read_copy(side) is not None:
                raise DirectoryError(f"{side.where} is a cell already: `duly cells` shows them")
            if side.version() is None:
                raise DirectoryError(f"{side.where} has no schema of Duly: run `duly migrate`")
            cell = Cell(name, without_password(address or self._dsn), self._schema)
            directory = Directory(UUID(bytes=uuid4().bytes), 0, {}, {}, name).with_cell(cell)
            self._alone(side, lambda: self._make(side, directory, name))
            return directory

    def own_copy(self) -> StoredDirectory | None:
        """Return the directory as the store has it; None: it is no cell, but a sole store.

        Raises:
            StoreUnavailableError: the store does not answer.
        """
        with Side(self._dsn, self._schema, "store") as side:
            return read_copy(side)

    def address_of(self, cell: Cell) -> str:
        """Return the address of a cell with its password and its schema.

        Raises:
            StoreUnavailableError: the password cannot be read.
        """
        return full_address(self.settings_of(cell))

    def look(self, but_for: Collection[str] = ()) -> Cells:
        """Read all cells, but for some whose addresses lead nowhere.

        Raises:
            DirectoryError: the store is no cell, or directories contradict each other.
            StoreUnavailableError: the store does not answer.
        """
        with Side(self._dsn, self._schema, "cell") as side:
            own = read_copy(side)
        if own is None:
            raise DirectoryError(
                f"{side.where} is no cell, but a sole store: `duly cells init NAME` makes it one"
            )
        states = self._states(own.directory, but_for)
        copies = [
            state.copy.directory
            for state in states
            if _is_of(state, own.directory) and state.copy is not None
        ]
        directory = newest(copies, own.directory)
        if directory is not None and directory.version > own.directory.version:
            states = self._states(directory, but_for)
        return Cells(directory or own.directory, states, own.own)

    def _states(self, directory: Directory, but_for: Collection[str]) -> tuple[CellState, ...]:
        return tuple(
            self._state(cell) for name, cell in sorted(directory.cells.items()) if name not in but_for
        )

    def _state(self, cell: Cell) -> CellState:
        with self._side(cell) as side:
            try:
                copy = read_copy(side)
                version = side.version()
                with side.translated():
                    unguarded = missing_guards(side.connection) if copy is not None else []
            except (StoreUnavailableError, MoveError) as error:
                return CellState(cell, None, away=str(error))
            return CellState(cell, copy, version[0] if version else "", tuple(unguarded))

    def _side(self, cell: Cell) -> Side:
        return Side(full_address(self.settings_of(cell)), cell.schema, f"cell {cell.name}")

    def add(self, name: str, address: str, schema: str) -> Directory:
        """Make an empty schema at an address a cell; the schema is made if it is missing. A repeat completes what was begun.

        Raises:
            DirectoryError: the name or the place is taken or invalid, a cell does not answer, or it is being moved.
            MoveError: the schema is not empty, or of another release.
            StoreUnavailableError: the place does not answer.
        """
        check_no_password(address)
        cell = Cell(name, without_password(address), schema)
        with self._changing() as (found, sides):
            there = found.directory.cells.get(name)
            if there is not None and there != cell:
                raise DirectoryError(
                    f"cell {name} is at {there.address}, schema {there.schema}: `duly cells move` moves it"
                )
            directory = found.directory if there is not None else found.directory.with_cell(cell)
            with self._side(cell) as side:
                if side.version() is None:
                    side.run(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
                    migrate(in_schema(side))
                    if _has_roles(sides[found.directory.default_cell]):
                        make_roles(in_schema(side))
                same_release(sides[found.directory.default_cell], side)
                copy = read_copy(side)
                if copy is not None and (copy.own, copy.directory.installation) != (
                    name,
                    directory.installation,
                ):
                    raise DirectoryError(
                        f"{side.where} is cell {copy.own} of installation {copy.directory.installation} already"
                    )
                if copy is not None and there is None:  # it was removed: its store stayed
                    _check_is_there(side, copy, name, directory)
                    self._write({**sides, name: side}, directory)
                if copy is None:
                    if there is None:  # else it is this cell, and was restored from before it was one
                        is_new(side)
                    self._write(sides, directory)
                    self._alone(side, lambda: self._make(side, directory, name))
            return directory

    def assign(self, namespace: str, cell: str) -> Directory:
        """Have a namespace live in a cell from now on; nothing of it may be in its present one.

        Raises:
            DirectoryError: there is no such cell, the namespace is not empty, a cell does not answer, or it is being moved.
            StoreUnavailableError: a cell was lost meanwhile; run it again.
        """
        with self._changing() as (found, sides):
            before = found.directory.cell_of(namespace)
            directory = found.directory.with_namespace(namespace, cell)
            if cell not in sides:
                raise DirectoryError(_NO_DIRECTORY.format(name=cell))
            if before == cell and namespace in found.directory.namespaces:
                self._write(sides, found.directory)  # completes what another command began
                return found.directory
            if before == cell:
                self._write(sides, directory)
                return directory
            owner = sides[before]
            self._alone(owner, lambda: self._give_away(owner, namespace, directory, before))
            self._write(sides, directory)
            return directory

    def remove(self, name: str, *, is_gone: bool = False) -> Directory:
        """Take a cell without namespaces out of the directory. Its store stays, and is no part of the installation any more.

        Raises:
            DirectoryError: there is none, namespaces live in it, a cell does not answer, or it is being moved.
        """
        with self._changing(but_for=[name] if is_gone else []) as (found, sides):
            self._check_no_namespaces(found.directory, name, is_gone=is_gone)
            directory = found.directory.without_cell(name)
            self._write({each: side for each, side in sides.items() if each != name}, directory)
            return directory

    def _check_no_namespaces(self, directory: Directory, name: str, *, is_gone: bool) -> None:
        living = sorted(namespace for namespace, cell in directory.namespaces.items() if cell == name)
        if not living:
            return
        if is_gone:
            what = f"restore it from a backup, and say where it is: `duly cells set {name} --at ADDRESS`"
        else:
            what = (
                f"give those that were never used to another cell (`duly cells assign {living[0]} {directory.default_cell}`). One that is used "
                f"does not move: to empty its Postgres, move the cell (`duly cells move {name} --to ADDRESS`)"
            )
        more = f" and {len(living) - 5} more" if len(living) > 5 else ""
        raise DirectoryError(f"cell {name} has namespaces: {', '.join(living[:5])}{more}: {what}")

    def set_address(
        self, names: Collection[str], address: str, *, or_not_made_yet: bool = False
    ) -> Directory:
        """Say where cells of one server are now: after a failover to another address, or a restore there. Nothing is copied.

        Args:
            names: all cells whose present address leads nowhere.
            address: where they are now.
            or_not_made_yet: also give the address to a cell that has no store there; `add` makes it.

        Raises:
            DirectoryError: there is no such cell, the store there is not this cell, another cell does not answer, or one is being moved.
            StoreUnavailableError: the address does not answer.
        """
        check_no_password(address)
        with self._changing(but_for=names) as (found, sides), ExitStack() as stack:
            directory, told = found.directory, dict(sides)
            for name in names:
                cell = replace(directory.cells[name], address=without_password(address))
                side = stack.enter_context(self._side(cell))
                copy = read_copy(side)
                if copy is not None or not or_not_made_yet:
                    _check_is_there(side, copy, name, directory)
                    told[name] = side
                if cell != directory.cells[name]:
                    directory = directory.with_cell(cell)
            if directory is not found.directory:  # one change, however many cells
                directory = replace(directory, version=found.directory.version + 1)
            self._write(told, directory)
            return directory

    def source_of_copies(self, said: str = "") -> str:
        """Return the name of the cell whose grants and settings `sync` copies to the others: before it, as it hides what was behind.

        Args:
            said: which one the operator names; empty: the default cell, unless its directory says that it was restored or away.

        Raises:
            DirectoryError: there is no such cell, it does not answer, or the default cell may have older rights than the others.
        """
        found = self.look()
        directory = found.directory
        name = said or directory.default_cell
        if name not in directory.cells:
            raise DirectoryError(f"there is no cell {name}: there are {', '.join(sorted(directory.cells))}")
        state = next(each for each in found.states if each.cell.name == name)
        if state.away and said:
            raise DirectoryError(f"cell {name} does not answer: {state.away}")
        is_behind = state.copy is None or state.copy.directory.version < directory.version
        if is_behind and not state.away and not said:
            others = [each for each in sorted(directory.cells) if each != name]
            raise DirectoryError(
                f"the default cell {name} has an older directory than the others: it was away, or was restored from a backup, and may have "
                f"grants and tokens that were removed since. Nothing was written. After a restore: `duly cells sync --from {others[0]}`, "
                f"or another cell that was not restored; else `duly cells sync --from {name}`"
            )
        return name

    def sync(self) -> Cells:
        """Write the newest directory and the guards to all cells that answer, and look again.

        Raises:
            DirectoryError: directories contradict each other.
        """
        found = self.look()
        for state in found.states:
            if state.away or state.copy is None or state.copy.own != state.cell.name:
                continue
            with self._side(state.cell) as side:
                forward(side, found.directory)
                if state.unguarded:
                    self._alone(side, lambda side=side: _guard(side))  # type: ignore[misc]  # bound now
        return self.look()

    def _make(self, side: Side, directory: Directory, name: str) -> None:
        make_cell(side, directory, name)
        _guard(side)

    def _give_away(self, owner: Side, namespace: str, directory: Directory, before: str) -> None:
        tables = sorted([*_USED, *_HELD])
        owner.run(
            sql.SQL("lock table {} in share row exclusive mode").format(
                sql.SQL(", ").join(map(owner.table, tables))
            )
        )
        for table in _USED:
            if _has_rows(owner, table, namespace):
                raise DirectoryError(
                    f"namespace {namespace} has {_WORDS.get(table, f'{table}s')} in cell {before}: a namespace does not move once it is used. Use a new namespace, or "
                    f"move the whole cell to another Postgres: `duly cells move {before} --to ADDRESS`"
                )
        for table, fix in _HELD.items():
            if _has_rows(owner, table, namespace):
                raise DirectoryError(
                    f"namespace {namespace} has {_WORDS.get(table, f'{table}s')} in cell {before}: {fix}"
                )
        forward(owner, directory)

    def _write(self, sides: Mapping[str, Side], directory: Directory) -> None:
        for name in sorted(sides, key=lambda each: each != directory.default_cell):
            forward(sides[name], directory)

    def _alone(self, side: Side, change: Callable[[], None]) -> None:
        """Make a change in a transaction that gives up soon where it waits for writers, and try again."""
        end = time.monotonic() + _WRITERS_FOR.total_seconds()
        while True:
            try:
                with side.connection.transaction():
                    side.run(_TABLE_LOCK_TIMEOUT)
                    change()
            except StoreUnavailableError:
                if time.monotonic() >= end:
                    raise
                time.sleep(_AGAIN.total_seconds())
            else:
                return

    @contextmanager
    def _changing(self, but_for: Collection[str] = ()) -> Iterator[tuple[Cells, Mapping[str, Side]]]:
        """Hold the lock of changes, and give the cells and a connection to each, but for those that are not where they were."""
        directory = self.look(but_for).directory
        for name in but_for:
            if name not in directory.cells:
                raise DirectoryError(
                    f"there is no cell {name}: there are {', '.join(sorted(directory.cells))}"
                )
        with (
            self._arbiter(directory, but_for) as arbiter,
            locked(arbiter, directory),
            ExitStack() as stack,
        ):
            found = self.look(but_for)
            for state in found.states:
                _check_changeable(state)
            yield (
                found,
                {
                    state.cell.name: stack.enter_context(self._side(state.cell))
                    for state in found.states
                    if state.copy is not None
                },
            )

    def _arbiter(self, directory: Directory, but_for: Collection[str]) -> Side:
        """Give the place of the lock: the default cell, else the first one that answers, else the store of the settings."""
        by_turn = sorted(directory.cells, key=lambda each: (each != directory.default_cell, each))
        for name in by_turn:
            if name not in but_for:
                return self._side(directory.cells[name])
        return Side(self._dsn, self._schema, "store")


def _check_is_there(side: Side, copy: StoredDirectory | None, name: str, directory: Directory) -> None:
    """Check that what is at an address is a cell, and serves.

    Raises:
        DirectoryError: it is not, or is where the cell was moved from.
    """
    if copy is None or copy.own != name or copy.directory.installation != directory.installation:
        there = (
            "no cell" if copy is None else f"cell {copy.own} of installation {copy.directory.installation}"
        )
        raise DirectoryError(f"{side.where} is {there}, and not cell {name} of this installation")
    if copy.fenced:
        raise DirectoryError(f"{side.where} is fenced: it is where the cell was moved from")


def _check_changeable(state: CellState) -> None:
    name = state.cell.name
    if state.away:
        raise DirectoryError(
            f"cell {name} does not answer, and a change needs all cells: {state.away}. {_WHAT_HELPS.format(name=name)}"
        )
    if state.copy is not None and state.copy.fenced:
        raise DirectoryError(
            f"cell {name} is fenced: complete its move with `duly cells move {name}`, or give it up with --abort"
        )
    if state.copy is not None and state.copy.own != name:
        raise DirectoryError(
            f"the store of cell {name} says that it is cell {state.copy.own}: `duly cells check` says more"
        )


def _has_roles(side: Side) -> bool:
    """Tell whether `duly migrate --roles` was run there."""
    return bool(
        side.one(
            "select exists (select from pg_roles where rolname = %s and has_table_privilege(oid, %s::regclass, 'select'))",
            [FRONTEND, f"{side.schema}.task"],
        )
    )


def _guard(side: Side) -> None:
    with side.translated():
        add_guards(side.connection)


def _is_of(state: CellState, directory: Directory) -> bool:
    """Tell whether a cell's copy counts: it is of this installation, and of the cell that it should be."""
    return (
        state.copy is not None
        and state.copy.own == state.cell.name
        and state.copy.directory.installation == directory.installation
    )


def _has_rows(side: Side, table: str, namespace: str) -> bool:
    column = GUARDED.get(table, "lambda")
    name = sql.Identifier(column)
    if column == "namespace":
        condition = sql.SQL("{} = {}").format(name, sql.Literal(namespace))
    else:
        # between the slash and the character behind it: such a range can use an index
        condition = sql.SQL('{name} collate "C" >= {begin} and {name} collate "C" < {end}').format(
            name=name, begin=sql.Literal(f"{namespace}/"), end=sql.Literal(f"{namespace}0")
        )
    return bool(
        side.run(sql.SQL("select true from {} where {} limit 1").format(side.table(table), condition))
    )
