"""Which pools an autoscaler plans for in an installation with cells: those all of whose lambdas live in its own cell. No I/O."""

from collections.abc import Iterable, Mapping, Sequence

from duly_core.cells.directory import Directory
from duly_core.cells.store import StoredDirectory
from duly_core.lambdas.names import NAMESPACE_MARK
from duly_core.pools.rules import Pool


def of_other_cells(pools: Iterable[Pool], stored: StoredDirectory | None) -> Mapping[str, Sequence[str]]:
    """Return the pools that may have lambdas in other cells, with the names of these cells.

    The store of one cell does not say what tasks wait in another: a plan by it would end workers that are busy there.
    """
    if stored is None:
        return {}
    found = {}
    for pool in pools:
        cells = {cell for pattern in pool.lambdas for cell in _cells_of(pattern, stored.directory)}
        if others := sorted(cells - {stored.own}):
            found[pool.name] = others
    return found


def _cells_of(pattern: str, directory: Directory) -> set[str]:
    prefix = pattern.removesuffix("*")
    if prefix == pattern or NAMESPACE_MARK in prefix:
        return {directory.cell_of_lambda(prefix)}
    listed = {cell for namespace, cell in directory.namespaces.items() if namespace.startswith(prefix)}
    return {directory.default_cell, *listed}
