"""Page tokens of several cells: where the next page begins in each of them. No I/O."""

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from duly_core.rpc.requests.problem import Problem

_MARK = "cells:"
"""No cell's own token has a colon as its sixth character: they are base64, digits, ids, or begin with `attributes:`."""
_LONGEST = 65_536


@dataclass(frozen=True, slots=True)
class Places:
    """Where to go on in each cell."""

    by_cell: Mapping[str, str] = field(default_factory=dict)
    """The cell's own token; empty: its begin."""
    ended: frozenset[str] = frozenset()
    """Cells that have no more."""
    otherwise: str = ""
    """The token for cells that are not named."""
    only: str = ""
    """The cell that the list is of; empty: all."""

    def of(self, cell: str) -> str | None:
        """Return the cell's own token; None: it has no more."""
        return None if cell in self.ended else self.by_cell.get(cell, self.otherwise)

    def write(self) -> str:
        """Return the token of all cells."""
        cells = defaultdict(list)
        for cell, token in self.by_cell.items():
            cells[token].append(cell)
        said = [dict(cells), sorted(self.ended), self.otherwise, *([self.only] if self.only else [])]
        text = json.dumps(said, separators=(",", ":"))
        return _MARK + base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def read(cls, field_name: str, token: str, only: str = "") -> "Places":
        """Return what a token says. One that a single store wrote is for every cell.

        Args:
            field_name: the field of the token.
            token: as a caller sent it.
            only: the cell that the caller names; empty: none.

        Raises:
            Problem: the token is not one of ours, or is of a list of another cell.
        """
        places = cls._parse(field_name, token)
        if token and places.only != only:
            was = f"of cell {places.only}" if places.only else "of all cells"
            raise Problem(field_name, f"it is of a list {was}: name the same cell with each page")
        return replace(places, only=only)

    @classmethod
    def _parse(cls, field_name: str, token: str) -> "Places":
        if not token.startswith(_MARK):
            return cls(otherwise=token)
        if len(token) <= _LONGEST:
            try:
                cells, ended, otherwise, *only = json.loads(
                    base64.b64decode(token[len(_MARK) :], b"-_", validate=True)
                )
                by_cell = {str(cell): str(own) for own, names in dict(cells).items() for cell in list(names)}
                return cls(by_cell, frozenset(map(str, list(ended))), str(otherwise), str(*only))
            except (binascii.Error, ValueError, TypeError, RecursionError):
                pass
        raise Problem(field_name, "not a page token: use the one of the answer before")
