"""Finds what is wrong with cells: one that does not answer, or is not what the directory says. No I/O."""

from collections.abc import Collection, Mapping
from datetime import datetime

from duly_core.cells.directory import Directory
from duly_core.lambdas.names import DEFAULT_NAMESPACE
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import FoundProblem, found

_MOST_NAMED = 10
_NO_NAMESPACE = "no namespace: none lives in it"


def cells_away(
    directory: Directory,
    said: Mapping[str, str],
    not_serving: Collection[str],
    now: datetime,
    fenced: Collection[str] = (),
) -> list[FoundProblem]:
    """Return a problem for each cell that is away, or refuses to be written to.

    Args:
        directory: which cells there are.
        said: by the name of the cell, what is wrong with it, in words; empty: nothing.
        not_serving: cells that served, and do not answer any more.
        now: by the clock of the store that keeps the problems.
        fenced: cells whose move fenced them, and has not ended for long.
    """
    problems = []
    for cell in sorted(directory.cells):
        error = said.get(cell, "")
        if error or cell in not_serving:
            problems.append(cell_away(directory, cell, now, error))
        elif cell in fenced:
            error = f"cell {cell} is fenced and refuses every write, for its move has not ended"
            problems.append(cell_away(directory, cell, now, error, fenced="yes"))
    return problems


def cell_away(
    directory: Directory, cell: str, now: datetime, error: str = "", *, fenced: str = ""
) -> FoundProblem:
    """Return the problem that a cell is away; `error` says why, and `fenced` is not empty if its move is to end."""
    namespaces = namespaces_of(directory, cell)
    return found(
        Kind.CELL_AWAY,
        Severity.CRITICAL if namespaces else Severity.WARNING,
        now,
        cell,
        error=error or f"cell {cell} does not answer",
        namespaces=namespaces or _NO_NAMESPACE,
        fenced=fenced,
    )


def cell_late(directory: Directory, cell: str, now: datetime) -> FoundProblem:
    """Return the problem that a cell did not answer one call: it may be slow only, and its tasks run."""
    return found(
        Kind.CELL_AWAY,
        Severity.WARNING,
        now,
        cell,
        error=f"cell {cell} did not answer this time",
        namespaces=namespaces_of(directory, cell) or _NO_NAMESPACE,
        late="yes",
    )


def namespaces_of(directory: Directory, cell: str) -> str:
    """Return the namespaces that live in a cell, in words; empty: none."""
    names = sorted(name for name, home in directory.namespaces.items() if home == cell)
    if cell == directory.default_cell:
        names.insert(0, f"{DEFAULT_NAMESPACE} and all namespaces that are not listed")
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
