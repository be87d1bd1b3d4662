"""The course of a run: schedule a task per file, kill an Executor on the way, wait for all, collect what is known."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from threading import Event

import duly
from duly_local.demo.display import Display
from duly_local.demo.executions import ExecutionLog
from duly_local.demo.files import Facts, Input, identity_of, read_facts
from duly_local.demo.killing import Killing, kill_an_executor
from duly_local.demo.workload import LAMBDA, PlannedTask

_LOOK_EVERY = timedelta(milliseconds=20)
_KILL_AT = 0.4
"""The part of all tasks that is done when an Executor is killed."""
_STALLED_AFTER = timedelta(seconds=60)
"""When no task was done for so long, what is not final counts as lost."""
_SLOWEST_BYTES_S = 20_000_000
"""A file may take as long as reading it at this rate does."""
_SUCCESSOR_WITHIN = timedelta(seconds=20)


@dataclass(slots=True)
class Course:
    """What happened; durations in seconds."""

    planned: Sequence[PlannedTask]
    task_ids: list[str] = field(default_factory=list)
    """Of the planned tasks, in their order."""
    tasks: list[duly.Task | None] = field(default_factory=list)
    """As the Frontend tells them at the end; None: it does not know the task."""
    killing: Killing | None = None
    schedule_s: float = 0
    run_s: float = 0
    """From the first call that schedules to the end of the last task."""


async def schedule(client: duly.AsyncClient, planned: Sequence[PlannedTask]) -> Course:
    """Schedule them all; returns when all are durable."""
    started = time.monotonic()
    receipts = await client.schedule_many(
        duly.NewTask(LAMBDA, {"path": task.path}, task.priority, delay=task.delay) for task in planned
    )
    course = Course(planned, [receipt.task_id for receipt in receipts])
    course.schedule_s = time.monotonic() - started
    return course


async def follow(
    client: duly.AsyncClient,
    course: Course,
    log: ExecutionLog,
    display: Display,
    *,
    largest: int,
    worker: int | None,
) -> None:
    """Watch until all are final, or nothing gets done any more.

    `largest`: bytes of the largest file; `worker`: the Controller to kill an Executor of, or none.
    """
    started = time.monotonic()
    patience = _STALLED_AFTER.total_seconds() + largest / _SLOWEST_BYTES_S
    kill_at = int(_KILL_AT * len(course.task_ids))
    waiting = asyncio.create_task(client.wait_many(course.task_ids))
    moved_at, done = started, 0
    try:
        while not waiting.done() and time.monotonic() - moved_at < patience:
            await asyncio.wait({waiting}, timeout=_LOOK_EVERY.total_seconds())
            log.catch_up()
            if len(log.succeeded) != done:
                moved_at, done = time.monotonic(), len(log.succeeded)
            killed = course.killing.callback_processes if course.killing else ()
            display.show(done, sum(execution.pid not in killed for execution in log.running()))
            if worker is not None and course.killing is None and done >= kill_at:
                course.killing = _kill(worker, log, display, started)
            elif course.killing and course.killing.successor is None and course.killing.look_for_successor():
                display.note(_replaced(course.killing))
        if waiting.done():
            course.tasks = list(waiting.result())
            course.run_s = time.monotonic() - started + course.schedule_s
        else:
            course.tasks = await client.get_many(course.task_ids)
    finally:
        waiting.cancel()
    await _await_successor(course, display)


def compare_with_files(found: Input, stop: Event) -> Mapping[str, Facts | None]:
    """Hash every file directly; None for one that changed since it was found. For a thread: `stop` ends it early."""
    facts: dict[str, Facts | None] = {}
    for file in found.files:
        if stop.is_set():
            break
        path = found.directory / file.path
        try:
            read = read_facts(path)
        except OSError:
            read = None
        # Looked at after reading: whatever the callback may have read before was this very content.
        facts[file.path] = read if identity_of(path) == file.identity else None
    return facts


def _kill(worker: int, log: ExecutionLog, display: Display, started: float) -> Killing | None:
    killing = kill_an_executor(worker, log)
    if killing is not None:
        gone = f"{killing.gone_after_s * 1000:.0f} ms" if killing.gone_after_s is not None else "never"
        callbacks = ", ".join(map(str, killing.callback_processes)) or "none"
        display.note(
            f"  {killing.killed_at - started:4.1f} s  kill -9 of Executor {killing.executor}, "
            f"which runs {killing.running} callbacks"
        )
        display.note(f"          it and its callback process {callbacks} are gone after {gone}")
    return killing


def _replaced(killing: Killing) -> str:
    return f"          Executor {killing.successor} took its place after {killing.replaced_after_s:.1f} s"


async def _await_successor(course: Course, display: Display) -> None:
    deadline = time.monotonic() + _SUCCESSOR_WITHIN.total_seconds()
    killing = course.killing
    while killing and killing.successor is None and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_EVERY.total_seconds())
        if killing.look_for_successor():
            display.note(_replaced(killing))
