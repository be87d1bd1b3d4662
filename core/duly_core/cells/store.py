"""Keep a copy of the directory in a store: read it, and write the next version of it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import AsyncConnection, Connection
from psycopg.rows import TupleRow

from duly_core.cells.directory import Cell, Directory, DirectoryError
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import load

CELLS = load("cells/cells.sql")
_READ = CELLS["read_directory"].sql.encode()
_SIGNS = CELLS["signs_of_a_cell"].sql.encode()
_LOOK_INTO = CELLS["look_into_schema"].sql.encode()
_LOCK = CELLS["lock_directory"].sql.encode()
_BEGIN = CELLS["begin_directory"].sql.encode()
_WRITE = CELLS["write_directory"].sql.encode()


@dataclass(frozen=True, slots=True)
class StoredDirectory:
    """A copy of the directory, and what its store says of itself."""

    directory: Directory
    own: str
    """The name of the cell that the store is."""
    fenced: bool
    """Whether the store refuses writes, because its cell moves."""


async def read(store: Store) -> StoredDirectory | None:
    """Return the copy of a store; None: it is a sole store.

    Raises:
        StoreUnavailableError: ask again.
    """
    async with store.connection() as connection:
        try:
            rows = await fetch(connection, CELLS["read_directory"], {})
        except psycopg.errors.UndefinedTable:
            return None
    return _stored(rows)


async def read_on(connection: AsyncConnection[TupleRow]) -> StoredDirectory | None:
    """Do the same on a connection of one's own. A store whose schema knows of no cells is a sole one.

    Raises:
        psycopg.Error: Postgres did not do it.
    """
    try:
        rows = await (await connection.execute(_READ)).fetchall()
    except psycopg.errors.UndefinedTable:  # none yet, or of an older release
        return None
    return _stored(rows)


async def signs_on(connection: AsyncConnection[TupleRow]) -> tuple[bool, dict[str, Directory]]:
    """Look for what says that a store without a directory was a cell.

    Returns whether it has guards, and the directories of other schemas of its database, as far as this user may read them.

    Raises:
        psycopg.Error: Postgres did not do it.
    """
    ((has_guards, schemas),) = await (await connection.execute(_SIGNS)).fetchall()
    found = {}
    for schema in schemas:
        with suppress(psycopg.ProgrammingError):  # of an older release, or partly not for this user
            async with connection.transaction():
                await connection.execute(_LOOK_INTO, {"schema": schema})
                copy = await read_on(connection)
            if copy is not None:
                found[schema] = copy.directory
    return has_guards, found


def read_now(connection: Connection[TupleRow]) -> StoredDirectory | None:
    """Do the same, for commands.

    Raises:
        psycopg.Error: Postgres did not do it; no such table: it has no schema, or that of an older release.
    """
    return _stored(connection.execute(_READ).fetchall())


async def write(
    connection: AsyncConnection[TupleRow], directory: Directory, own: str, before: int | None
) -> bool:
    """Write a version if the copy is still of the version `before` (None: there is none yet); return whether it was written.

    What is written is the store's own view: `own` is the name of the cell that it is.

    Raises:
        DirectoryError: the copy is of another installation, or of another cell. Nothing is written.
        psycopg.Error: Postgres did not do it.
    """
    async with connection.transaction():
        found = await (await connection.execute(_LOCK)).fetchall()
        if not _may_write(found, directory, own, before):
            return False
        if before is None:
            await connection.execute(_BEGIN, _parameters(directory, own))
        await connection.execute(_WRITE, _parameters(directory, own))
        return True


def write_now(connection: Connection[TupleRow], directory: Directory, own: str, before: int | None) -> bool:
    """Do the same, for commands; the caller ends the transaction.

    Raises:
        DirectoryError: the copy is of another installation, or of another cell. Nothing is written.
        psycopg.Error: Postgres did not do it.
    """
    found = connection.execute(_LOCK).fetchall()
    if not _may_write(found, directory, own, before):
        return False
    if before is None:
        connection.execute(_BEGIN, _parameters(directory, own))
    connection.execute(_WRITE, _parameters(directory, own))
    return True


def _may_write(found: Sequence[TupleRow], directory: Directory, own: str, before: int | None) -> bool:
    if not found:
        return before is None
    ((installation, version, own_cell),) = found
    if UUID(installation) != directory.installation:
        raise DirectoryError(f"the store belongs to another installation, {installation}")
    if own_cell != own:
        raise DirectoryError(f"the store is cell {own_cell}, and not {own}")
    return bool(version == before and directory.version > version)


def _parameters(directory: Directory, own: str) -> Mapping[str, Any]:
    cells = sorted(directory.cells.values(), key=lambda cell: cell.name)
    return {
        "installation": str(directory.installation),
        "version": directory.version,
        "own_cell": own,
        "default_cell": directory.default_cell,
        "names": [cell.name for cell in cells],
        "addresses": [cell.address for cell in cells],
        "schemas": [cell.schema for cell in cells],
        "namespaces": list(directory.namespaces),
        "namespace_cells": list(directory.namespaces.values()),
    }


def _stored(rows: Sequence[TupleRow]) -> StoredDirectory | None:
    if not rows:
        return None
    ((installation, version, own, default, fenced, names, addresses, schemas, namespaces, owners),) = rows
    cells = {
        name: Cell(name, address, schema)
        for name, address, schema in zip(names, addresses, schemas, strict=True)
    }
    listed = dict(zip(namespaces, owners, strict=True))
    return StoredDirectory(Directory(UUID(installation), version, cells, listed, default), own, fenced)
