"""What the conformance suite of workers asks a worker to offer: `duly conformance -- duly worker examples.conformance.callbacks:app`."""

import os
import signal
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import duly

app = duly.App(owner="conformance", version="1")


@app.callback("conformance.echo")
def echo(payload: Any) -> Any:
    """Return the payload as it is."""
    return payload


@app.callback("conformance.bytes", raw=True)
def echo_bytes(payload: bytes) -> bytes:
    """Return bytes as they are."""
    return payload


@app.callback("conformance.end")
def end(payload: dict[str, str]) -> duly.CallbackOutcome:
    """End in the way that the payload names."""
    if payload["outcome"] == "snooze":
        return duly.Snooze(timedelta(seconds=5))
    if payload["outcome"] == "fatal":
        return duly.FatalFailure("as asked")
    return duly.RetriableFailure("as asked")


@app.callback("conformance.context")
def context(_: Any, ctx: duly.TaskContext) -> dict[str, Any]:
    """Return what a callback knows of its run."""
    return {"attempt": ctx.attempt, "fence": ctx.fence, "checkpoint": ctx.checkpointed}


@app.callback("conformance.tick")
def tick(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Write "PROCESS FENCE" into a file every 50 ms, until it is cancelled, or may end."""
    ctx.progress(0.5)
    ctx.checkpoint({"at": 1})
    file = Path(payload["file"])
    while not file.with_name(file.name + ".stop").exists():
        with file.open("a") as ticks:
            ticks.write(f"{os.getpid()} {ctx.fence}\n")
        if not payload["stubborn"]:
            ctx.raise_if_cancelled()
        time.sleep(0.05)


@app.callback("conformance.crash")
def crash() -> None:
    """End the process that runs it."""
    os.kill(os.getpid(), signal.SIGKILL)
