"""The application under measurement: a callback that does nothing but note when it started."""

import duly
from benchmarks.marks import mark

app = duly.App(owner="benchmarks", version="1")


@app.callback("bench.noop", raw=True)
def noop(payload: bytes) -> None:
    """Nothing: what is measured is Duly."""
    mark(payload)
