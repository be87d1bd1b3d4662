"""The directory of one side of a move, on its own connection."""

from duly_core.cells.directory import Directory
from duly_core.cells.moving.errors import MoveError
from duly_core.cells.moving.sides import Side
from duly_core.cells.store import StoredDirectory, read_now, write_now


def read_copy(side: Side) -> StoredDirectory | None:
    """Return what a side says; None: it is no cell, or has no schema.

    Raises:
        StoreUnavailableError: it does not answer.
    """
    # asked before: an error would end the caller's transaction
    if side.one("select to_regclass(%s)", [f"{side.schema}.cell_directory"]) is None:
        return None
    with side.translated():
        return read_now(side.connection)


def make_cell(side: Side, directory: Directory, own: str) -> None:
    """Make a store that has no directory the cell `own`, in the caller's transaction.

    Raises:
        StoreUnavailableError: it does not answer.
        MoveError: it has a directory.
    """
    with side.translated():
        if not write_now(side.connection, directory, own, None):
            raise MoveError(f"{side.where} is a cell already")


def forward(side: Side, directory: Directory) -> None:
    """Bring the copy of a store up to a version; one that is as new stays.

    Raises:
        StoreUnavailableError: it does not answer.
        MoveError: it is no cell, or refuses.
        DirectoryError: it is of another installation.
    """
    copy = read_copy(side)
    if copy is None:
        raise MoveError(f"{side.where} is no cell, and is not told")
    if copy.directory.version < directory.version:
        with side.translated(), side.connection.transaction():
            write_now(side.connection, directory, copy.own, copy.directory.version)
