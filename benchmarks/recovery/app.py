"""The applications under measurement. Each callback notes when it starts; the backoff after a crash is next to none."""

import ctypes
import os
import re
import time
from datetime import timedelta
from typing import Any

import duly

app = duly.App(owner="benchmarks", version="1")
neighbours = duly.App(owner="benchmarks", version="1")

STARTS = "DULY_BENCH_STARTS"

_AT_ONCE = duly.Backoff(initial=timedelta(milliseconds=1), maximum=timedelta(milliseconds=1))
_LOOK = timedelta(milliseconds=5)
_LITTLE = timedelta(milliseconds=20)
"""So long that slots, and not this machine's processors, limit a pool."""
_A_WHILE_US = 1_500_000
_EVIL = re.compile(r"(a+)+b")


def _open_starts() -> int:
    path = os.environ.get(STARTS)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path else -1


_starts = _open_starts()


def _note(ctx: duly.TaskContext) -> None:
    os.write(_starts, f"{ctx.task_id} {time.time_ns()} {os.getpid()}\n".encode())


@app.callback("recovery.hold", max_crashes=1_000, backoff=_AT_ONCE)
def hold(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Run until a file appears; a second attempt takes as long as it is told, by default no time."""
    _note(ctx)
    if ctx.attempt > 1:
        ctx.wait_cancelled(timedelta(seconds=payload.get("again", 0)))
    while ctx.attempt == 1 and not os.path.exists(payload["until"]) and not ctx.wait_cancelled(_LOOK):  # noqa: PTH110 (it is asked often)
        pass


@app.callback("recovery.start")
def start(_payload: None, ctx: duly.TaskContext) -> None:
    """Note the start: tasks flow."""
    _note(ctx)


@app.callback("recovery.hot")
def hot(payload: dict[str, Any], ctx: duly.TaskContext) -> int:
    """Hold the GIL, in one of three ways, again and again for so long; how often."""
    _note(ctx)
    end = time.monotonic() + payload["seconds"]
    rounds = 0
    while time.monotonic() < end:
        match payload["way"]:
            case "regex":
                _EVIL.match("a" * 24)
            case "sum":
                sum(range(50_000_000))
            case "C call":
                ctypes.PyDLL(None).usleep(_A_WHILE_US)
        rounds += 1
    return rounds


@app.callback("recovery.poison", backoff=_AT_ONCE)
def poison() -> None:
    """End the process, with all that runs in it."""
    os._exit(9)


@app.callback("recovery.good", max_crashes=1_000, backoff=_AT_ONCE)
def good(_payload: None, ctx: duly.TaskContext) -> None:
    """A little work in the pool that is poisoned."""
    _work(ctx)


@neighbours.callback("recovery.elsewhere")
def elsewhere(_payload: None, ctx: duly.TaskContext) -> None:
    """The same in a pool of its own."""
    _work(ctx)


def _work(ctx: duly.TaskContext) -> None:
    ctx.wait_cancelled(_LITTLE)
    _note(ctx)
