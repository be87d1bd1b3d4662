"""Lambdas that do nothing, one in each namespace."""

import duly
from benchmarks.cells.installation import NAMESPACES

app = duly.App(owner="benchmarks", version="1")


def _noop(payload: bytes) -> None:
    """Do nothing."""


for _number in range(NAMESPACES):
    app.callback(f"ns{_number}/noop", raw=True)(_noop)
