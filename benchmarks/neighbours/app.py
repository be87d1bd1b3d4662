"""The application under measurement: good tasks note when they start; the others misbehave."""

import os
import signal
import threading
import time
from datetime import timedelta

import duly

app = duly.App(owner="benchmarks", version="1")

STARTS = "DULY_BENCH_STARTS"
_SOON = duly.Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(milliseconds=100))
WORK = timedelta(milliseconds=50)
"""So long that slots, and not this machine's processors, limit the pool."""
_starts = os.open(os.environ.get(STARTS, os.devnull), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)


@app.callback("neighbours.good", max_crashes=1_000, backoff=_SOON)
def good(_payload: None, ctx: duly.TaskContext) -> None:
    """Note the start, and work a little."""
    os.write(_starts, f"{ctx.task_id} {time.time_ns()} {os.getpid()}\n".encode())
    ctx.wait_cancelled(WORK)


@app.callback("neighbours.blocked", max_runtime=timedelta(seconds=1), max_attempts=2, backoff=_SOON)
def blocked() -> None:
    """Block in C for ever: nothing interrupts it."""
    threading.Event().wait()


@app.callback("neighbours.looping", max_runtime=timedelta(seconds=1), max_attempts=2, backoff=_SOON)
def looping() -> None:
    """Run Python for ever."""
    while True:
        time.sleep(WORK.total_seconds())


@app.callback("neighbours.exiting", backoff=_SOON)
def exiting() -> None:
    """End the process, and leave a word of it."""
    os._exit(9)


@app.callback("neighbours.killed", backoff=_SOON)
def killed() -> None:
    """End the process without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
