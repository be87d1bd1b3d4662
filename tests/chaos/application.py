"""What the callback processes of a chaos run execute: callbacks of every temper, each written down in the journal."""

import asyncio
import ctypes
import hashlib
import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import duly
from tests.chaos.contents import content, sha256_of
from tests.chaos.journal import Journal, Running
from tests.chaos.kinds import BY_NAME, EVENT_KEY, TaskKind
from tests.chaos.scarce import choose_session, choose_tenant

app = duly.App(owner="duly chaos", version="1")

_FOLDER = Path(os.environ["DULY_CHAOS_JOURNAL"])
_journal = Journal(
    _FOLDER, durable=False, host=os.environ.get("DULY_CHAOS_HOST", "")
)  # the machine stays up: what is written is there
_BACKOFF = duly.Backoff(initial=timedelta(milliseconds=100), factor=2, maximum=timedelta(seconds=2))
_SOON = timedelta(milliseconds=300)
_NAP_S = 0.1
_TURN_S = 0.5
_BEYOND_MAX_RUNTIME_S = 60
_GRANDCHILD_S = "120"
_LOOK_S = 0.05

# Processes that crash on purpose leave no cores.
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


_Callback = Callable[[dict[str, Any], duly.TaskContext], Any]
_callbacks: dict[str, _Callback] = {}


def _callback(name: str) -> Callable[[_Callback], _Callback]:
    """Keep it for its kind; a kind that has a lambda of its own registers that."""

    def keep(function: _Callback) -> _Callback:
        _callbacks[name] = function
        return _lambda(BY_NAME[name])(function) if BY_NAME[name].alone else function

    return keep


def _lambda(kind: TaskKind) -> Any:
    return app.callback(
        kind.lambda_name,
        max_attempts=kind.max_attempts,
        max_crashes=kind.max_crashes,
        max_runtime=kind.max_runtime,
        backoff=_BACKOFF,
    )


@_lambda(BY_NAME["quick"])
def work(payload: dict[str, Any], ctx: duly.TaskContext) -> Any:
    """What the payload names."""
    return _callbacks[payload["kind"]](payload, ctx)


@_lambda(BY_NAME["nap_async"])
async def work_async(payload: dict[str, Any], ctx: duly.TaskContext) -> Any:
    """The same on the loop."""
    return await _callbacks[payload["kind"]](payload, ctx)


@_callback("quick")
def quick(payload: dict[str, Any], ctx: duly.TaskContext) -> int:
    """Nothing but its journal."""
    with _journal.execution(ctx, edit=payload.get("edit", 0)):
        return ctx.attempt


@_callback("expiring")
def expiring(_: dict[str, Any], ctx: duly.TaskContext) -> int:
    """As quick, if it comes to it."""
    with _journal.execution(ctx):
        return ctx.attempt


@_callback("nap")
def nap(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """A little work."""
    with _journal.execution(ctx, edit=payload.get("edit", 0)):
        time.sleep(_NAP_S)


@_callback("careful")
def careful(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """The same, and quarantined if it is charged with few crashes."""
    with _journal.execution(ctx):
        time.sleep(_NAP_S)


@app.callback(
    BY_NAME["batched"].lambda_name,
    max_attempts=BY_NAME["batched"].max_attempts,
    max_crashes=BY_NAME["batched"].max_crashes,
    backoff=_BACKOFF,
    batch=duly.Batch(size=10, wait=_SOON),
)
def batched(payloads: list[dict[str, Any]], ctxs: list[duly.TaskContext]) -> None:
    """A little work for many at once."""
    with ExitStack() as executions:
        for payload, ctx in zip(payloads, ctxs, strict=True):
            executions.enter_context(_journal.execution(ctx, edit=payload.get("edit", 0)))
        time.sleep(_NAP_S)


@_callback("fair")
def fair(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Takes long enough that others wait for its slot."""
    with _journal.execution(ctx):
        time.sleep(_TURN_S)


@_callback("nap_async")
async def nap_async(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """The same on the loop."""
    with _journal.execution(ctx):
        await asyncio.sleep(_NAP_S)


@_callback("long")
def long(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Several heartbeats long; tells its progress."""
    with _journal.execution(ctx):
        for part in range(10):
            time.sleep(payload["ms"] / 10_000)
            ctx.progress(part / 10, f"part {part}")


@_callback("fails_once")
def fails_once(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Says that it failed."""
    with _journal.execution(ctx):
        if ctx.attempt == 1:
            raise duly.RetriableFailure("the first attempt")


@_callback("raises_once")
async def raises_once(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Has a mistake in it."""
    with _journal.execution(ctx):
        if ctx.attempt == 1:
            raise ZeroDivisionError("the first attempt")


@_callback("fails_always")
def fails_always(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Until its attempts are used up."""
    with _journal.execution(ctx):
        raise duly.RetriableFailure("every attempt")


@_callback("says_fatal")
def says_fatal(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Never again."""
    with _journal.execution(ctx):
        raise duly.FatalFailure("for good")


@_callback("long_again")
def long_again(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Fails once, then takes its time: somebody else's claim is there while the first token is known."""
    with _journal.execution(ctx):
        if ctx.attempt == 1:
            raise duly.RetriableFailure("the first attempt")
        time.sleep(payload["ms"] / 1000)


@_callback("asks_later")
def asks_later(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Failed, and says when to try again."""
    with _journal.execution(ctx):
        if ctx.attempt == 1:
            raise duly.RetriableFailure("not yet", retry_after=_SOON)


@_callback("snoozes_once")
def snoozes_once(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Not now: no failure."""
    with _journal.execution(ctx):
        if ctx.fence == 1:
            raise duly.Snooze(_SOON)


@_callback("waits")
def waits(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """For an event that its client sends, perhaps before it is waited for, and more than once."""
    with _journal.execution(ctx):
        ctx.wait_for(EVENT_KEY.format(ctx.task_id), type=str, timeout=timedelta(days=1))


@_callback("exits_once")
def exits_once(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Takes its process along."""
    with _journal.execution(ctx):
        if ctx.attempt == 1:
            os._exit(3)


@_callback("segfaults_once")
def segfaults_once(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """As a broken library would."""
    with _journal.execution(ctx):
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(_BEYOND_MAX_RUNTIME_S)


@_callback("poison")
def poison(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Takes its process along, every time."""
    with _journal.execution(ctx):
        os._exit(4)


@_callback("overruns_once")
def overruns_once(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Hangs."""
    with _journal.execution(ctx):
        if ctx.attempt == 1:
            time.sleep(_BEYOND_MAX_RUNTIME_S)


@_callback("grandchild")
def grandchild(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Starts a process that would outlive it by far, and ends it; when it is killed, it cannot."""
    with _journal.execution(ctx, inherited=payload["shares"]) as running:
        child = subprocess.Popen(
            ["sleep", _GRANDCHILD_S],
            stdin=subprocess.DEVNULL,
            pass_fds=(running.lock,) if payload["shares"] else (),
        )
        try:
            time.sleep(payload["ms"] / 1000)
        finally:
            child.kill()
            child.wait()


@_callback("daemon")
def daemon(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Crashes, and leaves an orphan with the lock: of another session, with nothing in its environment."""
    with _journal.execution(ctx, inherited=True) as running:
        if ctx.attempt == 1:
            subprocess.run(
                ["/usr/bin/setsid", "--fork", "/bin/sleep", _GRANDCHILD_S],
                env={},
                stdin=subprocess.DEVNULL,
                pass_fds=(running.lock,),
                check=True,
            )
            time.sleep(payload["ms"] / 1000)
            os._exit(5)


@_callback("grows")
def grows(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Adds two nodes to its graph: one that runs, and one that is skipped."""
    with _journal.execution(ctx):
        work_of = BY_NAME["quick"].lambda_name
        first = ctx.add_node(work_of, {"kind": "quick"}, label=f"{ctx.label}+1", after=ctx.node(ctx.label))
        ctx.add_node(work_of, {"kind": "quick"}, label=f"{ctx.label}+2", after=first.failed)


@_callback("begets")
def begets(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Schedules a task in a session, with a resource, which is there with its own success alone."""
    with _journal.execution(ctx):
        random = Random(ctx.task_id)
        child = {"kind": "quick"}
        session, needs = choose_session(random), [choose_tenant(random)]
        ctx.schedule(BY_NAME["quick"].lambda_name, child, session=session, resources=needs)


@_callback("gil")
def gil(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Holds the interpreter's lock all the time, as a library written in C may."""
    with _journal.execution(ctx):
        ctypes.PyDLL(None).usleep(payload["ms"] * 1000)


@_callback("cancellable")
def cancellable(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Stops when it is asked to."""
    with _journal.execution(ctx):
        until = time.monotonic() + payload["ms"] / 1000
        while time.monotonic() < until:
            ctx.raise_if_cancelled()
            time.sleep(_LOOK_S)


@_callback("stubborn")
def stubborn(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Does not stop when it is asked to."""
    with _journal.execution(ctx):
        time.sleep(payload["ms"] / 1000)


@_callback("reads_file")
def reads_file(payload: dict[str, Any], ctx: duly.TaskContext) -> dict[str, Any]:
    """Reads a file, keeps another, and returns a third."""
    with _journal.execution(ctx) as running:
        _read(running, payload["file"], payload["sha"])
        _keep_log(running, ctx)
        if payload["gives_on"]:
            given = {"kind": "gets_file", "file": payload["file"], "sha": payload["sha"]}
            ctx.schedule(BY_NAME["gets_file"].lambda_name, given)
        return _made(running, payload["returns"], ctx)


@_callback("gets_file")
def gets_file(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Reads the file that it was given."""
    with _journal.execution(ctx) as running:
        _read(running, payload["file"], payload["sha"])


@_callback("makes_file")
def makes_file(payload: dict[str, Any], ctx: duly.TaskContext) -> dict[str, Any]:
    """Returns a file."""
    with _journal.execution(ctx) as running:
        return _made(running, payload["returns"], ctx)


@_callback("takes_file")
def takes_file(_: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Reads the files that the nodes before it returned."""
    with _journal.execution(ctx) as running:
        for label in ctx.predecessors:
            result = ctx.result_of(label)
            if result is not None:
                _read(running, result["file"], result["sha"])


@_callback("fails_with_file")
def fails_with_file(payload: dict[str, Any], ctx: duly.TaskContext) -> None:
    """Keeps a log, and fails for good; redriven, it reads its file again."""
    with _journal.execution(ctx) as running:
        _read(running, payload["file"], payload["sha"])
        _keep_log(running, ctx)
        if ctx.fence == 1:
            raise duly.FatalFailure("the first run")


def _keep_log(running: Running, ctx: duly.TaskContext) -> None:
    _journal.file_sent(running)
    ctx.keep(f"{ctx.task_id} {ctx.fence}".encode(), name="run.log")


def _read(running: Running, attachment: duly.Attachment, wanted: str) -> None:
    try:
        got = hashlib.sha256(attachment.read()).hexdigest()
    except (duly.AttachmentMissingError, duly.AttachmentCorruptError) as error:
        _journal.file_read(running, wanted, "", f"{type(error).__name__}: {error}")
        raise
    _journal.file_read(running, wanted, got)


def _made(running: Running, number: int, ctx: duly.TaskContext) -> dict[str, Any]:
    _journal.file_sent(running)
    return {"file": ctx.attach(content(number), name="made"), "sha": sha256_of(number)}
