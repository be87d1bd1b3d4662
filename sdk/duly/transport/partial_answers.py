"""Warns a program of an answer that lacks cells."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from duly.errors import PartialAnswerWarning
from duly_wire import missing_cells

if TYPE_CHECKING:
    from collections.abc import Iterable


def warn_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> None:
    """Warn if the trailing metadata of an answer says that it lacks cells, or that a change reaches some later."""
    if not metadata:
        return
    for key in (missing_cells.METADATA, missing_cells.LATER):
        if cells := missing_cells.read(metadata, key):
            # the caller's own line cannot be told: the call runs in a task, or in a thread
            warnings.warn(PartialAnswerWarning(cells, is_late=key == missing_cells.LATER), stacklevel=2)
