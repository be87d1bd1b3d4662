"""Why a move stops."""

from duly_core.errors import DulyError


class MoveError(DulyError):
    """A move cannot go on. The message says whether callers of the cell are served, and which command helps."""


class MoveTakenError(MoveError):
    """Another process moves this cell, or it is on its way to another target."""


class SwitchedError(MoveError):
    """The target is the cell already: the move can only be completed."""
