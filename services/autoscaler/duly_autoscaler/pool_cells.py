"""In which cells a pool may have lambdas. No I/O."""

from duly_core.cells.directory import Directory
from duly_core.lambdas.patterns import EVERYTHING
from duly_core.pools.rules import Pool


def cells_of(pool: Pool, directory: Directory) -> set[str]:
    """Return the names of the cells in which lambdas of a pool may live.

    A name is of one cell, and so is a prefix: its `*` stands for no slash, so it covers lambdas of one namespace.
    """
    return {cell for pattern in pool.lambdas for cell in _cells_of(pattern, directory)}


def _cells_of(pattern: str, directory: Directory) -> set[str]:
    if pattern == EVERYTHING:
        return {directory.default_cell, *directory.namespaces.values()}
    return {directory.cell_of_lambda(pattern)}
