"""Page tokens of several cells: where the next page begins in each of them. No I/O."""

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

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

    def of(self, cell: str) -> str | None:
        """Return the cell's own token; None: it has no more."""
        return None if cell in self.ended else self.by_cell.get(cell, self.otherwise)

    def write(self) -> str:
        """Return the token of all cells."""
        cells = defaultdict(list)
        for cell, token in self.by_cell.items():
            cells[token].append(cell)
        text = json.dumps([dict(cells), sorted(self.ended), self.otherwise], separators=(",", ":"))
        return _MARK + base64.urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def read(cls, field_name: str, token: str) -> "Places":
        """Return what a token says. One that a single store wrote is for every cell.

        Raises:
            Problem: the token is not one of ours.
        """
        if not token.startswith(_MARK):
            return cls(otherwise=token)
        if len(token) <= _LONGEST:
            try:
                cells, ended, otherwise = json.loads(
                    base64.b64decode(token[len(_MARK) :], b"-_", validate=True)
                )
                by_cell = {str(cell): str(own) for own, names in dict(cells).items() for cell in list(names)}
                return cls(by_cell, frozenset(map(str, list(ended))), str(otherwise))
            except (binascii.Error, ValueError, TypeError, RecursionError):
                pass
        raise Problem(field_name, "not a page token: use the one of the answer before")
