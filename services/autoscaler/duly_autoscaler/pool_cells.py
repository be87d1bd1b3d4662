"""In which cells a pool may have lambdas. No I/O."""

from duly_core.cells.directory import Directory
from duly_core.lambdas.names import NAMESPACE_MARK
from duly_core.pools.rules import Pool


def cells_of(pool: Pool, directory: Directory) -> set[str]:
    """Return the names of the cells in which lambdas of a pool may live.

    A name is of one cell. A prefix without a namespace covers lambdas of the default namespace, and of each namespace that begins so.
    """
    return {cell for pattern in pool.lambdas for cell in _cells_of(pattern, directory)}


def _cells_of(pattern: str, directory: Directory) -> set[str]:
    prefix = pattern.removesuffix("*")
    if prefix == pattern or NAMESPACE_MARK in prefix:
        return {directory.cell_of_lambda(prefix)}
    listed = {cell for namespace, cell in directory.namespaces.items() if namespace.startswith(prefix)}
    return {directory.default_cell, *listed}
