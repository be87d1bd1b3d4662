"""A whole move, as `duly cells move` runs it: find both sides, then step after step until it is done."""

import time
from collections.abc import Callable
from datetime import timedelta

from duly_core.cells.directory import Directory, newest
from duly_core.cells.moving.copies import read_copy
from duly_core.cells.moving.errors import MoveError
from duly_core.cells.moving.mover import LONGEST_FENCE, Mover, Tell, source_of
from duly_core.cells.moving.sides import Side, without_password
from duly_core.cells.moving.steps import Step

_LOOK_EVERY = timedelta(seconds=1)
"""While Postgres copies."""
_SAY_EVERY = timedelta(seconds=10)

AddPassword = Callable[[str], str]
"""Returns an address with the password that belongs to it."""


def find_mover(
    known: Directory,
    cell: str,
    target: str,
    add_password: AddPassword,
    *,
    source_seen_from_target: str = "",
    longest_fence: timedelta = LONGEST_FENCE,
    compares: bool = True,
    tell: Tell = lambda _: None,
) -> Mover | None:
    """Return what moves a cell to a target; None: it is there, and no move is left to complete.

    Raises:
        MoveError: there is no such cell.
        DirectoryError: the target's directory contradicts what is known.
        StoreUnavailableError: the target does not answer.
    """
    if cell not in known.cells:
        raise MoveError(f"there is no cell {cell}: there are {', '.join(sorted(known.cells))}")
    place = known.cells[cell]
    with Side(target, place.schema, "target") as side:
        copy = read_copy(side)
        directory = newest([copy.directory] if copy is not None and copy.own == cell else [], known) or known
        source = directory.cells[cell].address
        if source == without_password(target):
            source = source_of(side, place)
            if not source:
                return None
    return Mover(
        directory,
        cell,
        add_password(source),
        target,
        {name: add_password(each.address) for name, each in directory.cells.items()},
        source_seen_from_target=source_seen_from_target,
        longest_fence=longest_fence,
        compares=compares,
        tell=tell,
    )


def run(mover: Mover, tell: Tell) -> None:
    """Do all steps that are left.

    Raises:
        MoveError: the move cannot go on; the message says what holds.
        StoreUnavailableError: a server does not answer; run it again.
    """
    said_at = float("-inf")

    def seldom(line: str) -> None:
        nonlocal said_at
        if not line.startswith("copy:"):
            tell(line)
        elif time.monotonic() - said_at >= _SAY_EVERY.total_seconds():
            said_at = time.monotonic()
            tell(line)

    mover.tell = seldom
    with mover:
        while (step := mover.run_once()) is not Step.DONE:
            if step is Step.COPY:
                time.sleep(_LOOK_EVERY.total_seconds())
