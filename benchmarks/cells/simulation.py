"""What grows with the number of cells: a model from measured costs of one, and a simulation of calls that concern all cells.

Each cell answers in a time that is drawn from measured ones. A call of all cells waits for the slowest, or for its deadline. A cell that
is away answers never. Ids of unknown origin are looked for in all cells.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

DEADLINE_MS = 2_000.0
"""Of one cell in a call of all."""
_CALLS = 20_000
_SEED = 7


@dataclass(frozen=True, slots=True)
class CellCost:
    """What one more idle cell costs, as measured."""

    cpu_ms: float
    """A second."""
    mib: float
    connections: float
    statements: float
    """A second."""
    call_ms: float = 0.0
    """By which a call of all cells is longer than its slowest cell: the calls share processes, and their answers are put together."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """An installation of so many idle cells in one server process, and one Postgres."""

    cells: int
    cpu_percent: float
    """Of a core."""
    mib: float
    connections: float
    statements: float
    list_p50_ms: float
    list_p99_ms: float
    partial_share: float
    """Of the calls of all cells, those that lack a cell, while each cell is away for 0.1 % of the time."""


def slope(few: tuple[int, CellCost], many: tuple[int, CellCost]) -> CellCost:
    """Return what one more cell costs, from two measured installations."""
    (less, one), (more, other) = few, many
    cells = more - less
    return CellCost(
        (other.cpu_ms - one.cpu_ms) / cells,
        (other.mib - one.mib) / cells,
        (other.connections - one.connections) / cells,
        (other.statements - one.statements) / cells,
        (other.call_ms - one.call_ms) / cells,
    )


def call_cost(cells: int, times_ms: Sequence[float], measured_ms: Sequence[float]) -> float:
    """Return by how much the median of measured calls of all cells is longer than that of the slowest of so many draws."""
    return median(measured_ms) - median(fan_out(cells, times_ms, away=0)[0])


def estimate(
    cells: int, first: CellCost, further: CellCost, times_ms: Sequence[float], away: float = 0.001
) -> Estimate:
    """Return what so many cells cost, and how long calls of all of them take."""
    more = cells - 1
    taken, partial = fan_out(cells, times_ms, away, more * further.call_ms)
    return Estimate(
        cells,
        (first.cpu_ms + more * further.cpu_ms) / 10,
        first.mib + more * further.mib,
        first.connections + more * further.connections,
        first.statements + more * further.statements,
        taken[len(taken) // 2],
        taken[int(len(taken) * 0.99)],
        partial,
    )


def fan_out(
    cells: int, times_ms: Sequence[float], away: float, beyond_ms: float = 0.0
) -> tuple[list[float], float]:
    """Simulate calls of all cells; return how long each took, in order, and the share that lack a cell.

    `beyond_ms` is what a call takes beyond its slowest cell.
    """
    drawn = random.Random(_SEED)
    taken, partial = [], 0
    for _ in range(_CALLS):
        slowest = max(drawn.choices(times_ms, k=cells))
        is_partial = drawn.random() < 1 - (1 - away) ** cells or slowest > DEADLINE_MS
        partial += is_partial
        taken.append(DEADLINE_MS if is_partial else slowest + beyond_ms)
    return sorted(taken), partial / _CALLS
