"""The applications under measurement: callbacks that do nothing but note when they started, or take their time."""

import os
import time
from dataclasses import dataclass

import duly
from benchmarks.marks import mark, mark_number

LAMBDAS = "DULY_BENCH_LAMBDAS"
"""How many lambdas that do nothing there are besides `bench.noop`."""

app = duly.App(owner="benchmarks", version="1")


@app.callback("bench.noop", raw=True)
def noop(payload: bytes) -> None:
    """Nothing: what is measured is Duly."""
    mark(payload)


@dataclass
class Numbered:
    """What `bench.json` takes: decoded and checked before the callback runs."""

    number: int
    padding: str


@app.callback("bench.json")
def typed(task: Numbered) -> None:
    """As noop, with a payload of JSON that its signature says."""
    mark_number(task.number)


def _taking(seconds: float) -> None:
    @app.callback(f"bench.takes.{round(seconds * 1000)}ms", raw=True)
    def take(payload: bytes) -> None:
        mark(payload)
        time.sleep(seconds)


for _seconds in (0.001, 0.1, 10.0):
    _taking(_seconds)

for _number in range(int(os.environ.get(LAMBDAS, "0"))):
    app.callback(f"bench.many.{_number}", raw=True)(noop)
