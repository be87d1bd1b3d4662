"""The demo's application: `fileindex`, which also writes each execution to a log that Duly has no part in.

A line is one `write` to a file opened for appending: it is whole or absent, and it stays when the process is killed.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import duly
import fileindex

LAMBDA = "fileindex.index"
LOG_VARIABLE = "FILEINDEX_LOG"
"""Names the folder of the log."""
LOG_FILE = "executions.jsonl"
_HANGS_FOR_S = 60

app = duly.App(owner="duly demo", version="1")


@dataclass
class Job(fileindex.File):
    """A file to index, and what the first attempt does."""

    first: Literal["indexes", "fails", "hangs"] = "indexes"
    """`hangs`: it waits until its Executor is killed."""


@app.callback(LAMBDA, backoff=duly.Backoff(initial=timedelta(milliseconds=200)))
def index(job: Job, ctx: duly.TaskContext) -> dict[str, object]:
    """Return the facts about the file, as `fileindex.index` does."""
    with logged(Path(os.environ[LOG_VARIABLE]), ctx):
        if ctx.attempt == 1 and job.first == "fails":
            raise duly.RetriableFailure("the demo lets this first attempt fail")
        if ctx.attempt == 1 and job.first == "hangs":
            time.sleep(_HANGS_FOR_S)
        return fileindex.index(job)


@contextmanager
def logged(folder: Path, ctx: duly.TaskContext) -> Iterator[None]:
    """Log the start and the end of an execution, and whether it was alone, that is: got the task's file lock.

    The kernel drops that lock when the process is dead, not before.
    """
    lock = os.open(folder / ctx.task_id, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    log = os.open(folder / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(event: str, **fields: object) -> None:
        key = {"event": event, "task_id": ctx.task_id, "fence": ctx.fence, "executor": os.getppid()}
        now = {"at_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "wall_s": time.time()}
        os.write(log, json.dumps(key | now | fields).encode() + b"\n")

    try:
        write("started", alone=_lock(lock))
        try:
            yield
        except BaseException:
            write("failed")
            raise
        write("succeeded")
    finally:
        os.close(log)
        os.close(lock)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
