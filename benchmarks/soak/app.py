"""The callbacks of a soak: each notes the task's number and, for plain and delayed tasks, how late it started."""

import math
import os
import struct
import time
from datetime import timedelta
from typing import Any

import duly

app = duly.App(owner="benchmarks", version="1")

NOTES = "DULY_BENCH_NOTES"
"""Names the file that callbacks append to."""
NOTE = struct.Struct("<qd")
"""A task's number, and its lateness in seconds or NaN."""

_SOON = duly.Backoff(initial=timedelta(milliseconds=100), maximum=timedelta(milliseconds=200))
_BUSY = timedelta(milliseconds=5)


def _open_notes() -> int:
    path = os.environ.get(NOTES)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600) if path else -1


_notes = _open_notes()


def _note(payload: dict[str, Any]) -> None:
    """Append one note. One write of few bytes to a file opened for appending is never torn."""
    due_at = payload.get("due_at")
    lateness = math.nan if due_at is None else time.time() - due_at
    os.write(_notes, NOTE.pack(payload["number"], lateness))


@app.callback("soak.plain", backoff=_SOON)
def plain(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a small result."""
    _note(payload)
    return {"number": payload["number"]}


@app.callback("soak.busy", backoff=_SOON)
def busy(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Hold units of a resource for some milliseconds."""
    ctx.wait_cancelled(_BUSY)
    _note(payload)


@app.callback("soak.fails-once", backoff=_SOON)
def fails_once(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Fail in the first attempt, succeed in the second one."""
    if ctx.attempt == 1:
        raise duly.RetriableFailure("the first attempt always fails")
    _note(payload)


@app.callback("soak.dies", backoff=_SOON)
def dies(payload: dict[str, Any]) -> None:
    """End as a dead letter."""
    _note(payload)
    raise duly.FatalFailure("this task is to become a dead letter")
