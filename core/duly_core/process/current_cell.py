"""The cell that the running task works for: what a process shows of its own state is kept apart by it."""

from collections.abc import Callable
from contextvars import ContextVar

current_cell: ContextVar[str] = ContextVar("current_cell", default="")
"""Its name; empty: a sole store, or what is of the process. Tasks that a task starts inherit it."""

cell_fenced: ContextVar[Callable[[], None]] = ContextVar("cell_fenced", default=lambda: None)
"""Called when the store of that cell refuses a write because the cell moves. Connections keep the one of the task that opens them."""

_to_tell: list[Callable[[str], None]] = []


def on_cell_gone(forget: Callable[[str], None]) -> None:
    """Call `forget` with the name of each cell that this process no longer works for."""
    _to_tell.append(forget)


def cell_gone(cell: str) -> None:
    """Tell that this process no longer works for a cell."""
    for forget in _to_tell:
        forget(cell)
