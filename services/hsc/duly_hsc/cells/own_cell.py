"""Which cell the store of a unit is, and which lambdas live in others."""

from collections.abc import Callable
from typing import NamedTuple


class OwnCell(NamedTuple):
    """The cell that a store is."""

    name: str
    """Empty: it is the sole store of the installation."""
    other_cell_of: Callable[[str], str]
    """Tells in which other cell a lambda lives; empty: in none."""


SOLE = OwnCell("", lambda _: "")
"""A sole store has all lambdas."""
