"""The application under measurement: callbacks that do nothing, or note when they started."""

import os
import time

import duly

app = duly.App(owner="benchmarks", version="1")

STARTS = "DULY_BENCH_STARTS"


@app.callback("bench.noop", raw=True)
def noop(_payload: bytes) -> None:
    """Nothing: what is measured is Duly."""


def _open_starts() -> int:
    path = os.environ.get(STARTS)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path else -1


_starts = _open_starts()


@app.callback("bench.start", raw=True)
def start(_payload: bytes, ctx: duly.TaskContext) -> None:
    """Note the instant at which the callback was entered."""
    os.write(_starts, f"{ctx.task_id} {time.time_ns()}\n".encode())
