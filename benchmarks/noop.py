"""The applications under measurement: callbacks that do nothing but note when they started, or take their time."""

import os
import time

import duly
from benchmarks.marks import mark

LAMBDAS = "DULY_BENCH_LAMBDAS"
"""How many lambdas that do nothing there are besides `bench.noop`."""

app = duly.App(owner="benchmarks", version="1")


@app.callback("bench.noop", raw=True)
def noop(payload: bytes) -> None:
    """Nothing: what is measured is Duly."""
    mark(payload)


def _taking(seconds: float) -> None:
    @app.callback(f"bench.takes.{round(seconds * 1000)}ms", raw=True)
    def take(payload: bytes) -> None:
        mark(payload)
        time.sleep(seconds)


for _seconds in (0.001, 0.1, 10.0):
    _taking(_seconds)

for _number in range(int(os.environ.get(LAMBDAS, "0"))):
    app.callback(f"bench.many.{_number}", raw=True)(noop)
