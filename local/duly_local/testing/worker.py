"""A worker in the test's process: it claims through the HSC, runs callbacks in the test's thread, and reports how they ended."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import TYPE_CHECKING, Any
from uuid import UUID

import duly
from duly.callbacks import invoke, invoke_batch
from duly.callbacks import lambda_of as handles
from duly.context import TaskContext
from duly_local.testing.errors import DulyTestError, check_type
from duly_local.testing.frontend_calls import FrontendCalls
from duly_wire.enums import Outcome
from duly_wire.queue_names import QueueName
from duly_wire.v1 import hsc_pb2, task_pb2

if TYPE_CHECKING:
    from duly.callbacks.callback import Callback
    from duly_local.testing.stack import TestStack

MOST_RUNS = 10_000
"""Of one call: a caller that runs so many tasks most likely waits for a task that never ends."""
_TOLD = 5


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a callback."""

    lambda_name: str
    task_id: str
    attempt: int
    """From 1: failures and crashes so far, plus one."""
    at: datetime
    """When, by the stepped clock."""
    outcome: Outcome | None
    """None: the worker vanished, and reported nothing."""
    message: str = ""
    """Of a failure."""

    def __str__(self) -> str:
        ended = "VANISHED" if self.outcome is None else self.outcome.name
        message = f": {self.message}" if self.message else ""
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.lambda_name} {self.task_id}, attempt {self.attempt}: {ended}{message}"


@dataclass(frozen=True, slots=True)
class _Fault:
    """What befalls a run."""

    lambda_name: str
    """Empty: of any lambda."""
    error: BaseException | None = None
    """Raised in place of the callback."""
    crashes: bool = False
    vanishes: bool = False
    after_callback: bool = False


class DulyWorker:
    """Runs the tasks of one application. `runs` has all that it ran, oldest first."""

    def __init__(self, stack: TestStack, app: duly.App, name: str) -> None:
        """Make one; its lambdas are registered already."""
        self.app = app
        self.name = name
        self.runs: list[Run] = []
        self._stack = stack
        self._faults: list[_Fault] = []
        self._async = _AsyncCallbacks()
        self.is_running = False

    # ---- running -----------------------------------------------------------------------------------------

    def run_due(self, *, most: int = MOST_RUNS) -> list[Run]:
        """Run what is due now, one task after the other, until nothing is; return the runs.

        Raises:
            DulyTestError: after `most` runs there was still something due.
        """
        return self._stack.run_due([self], most)

    def run_one(self) -> Run | None:
        """Run one task that is due now, or one batch, the best priority first; None: nothing is due."""
        return next(iter(self._stack.run_due([self], 1, stops=True)), None)

    def claim_and_run(self) -> list[Run]:
        """Run the next task, or the next batch; return nothing if there is none. For the stack, which sees to the rest of what is due."""
        tasks = self._stack.claim(self.name, self._queues())
        if not tasks:
            return []
        queue = getattr(tasks[0], "lambda")
        callback = self.app.callbacks[queue.partition("@")[0]]
        # as in production, a task whose process died runs alone
        if callback.batch is not None and callback.batch.size > 1 and not tasks[0].crashes:
            tasks += self._stack.claim(self.name, [queue], callback.batch.size - 1)
        self.is_running = True
        try:
            runs = self._run(tasks, callback)
        finally:
            self.is_running = False
        self.runs += runs
        return runs

    def close(self) -> None:
        """End the loop of its async callbacks."""
        self._async.close()

    def _queues(self) -> list[str]:
        """Return the queues that it serves: its lambdas in every domain, with any labels, and of the versions that it has."""
        versions = {*self.app.served_versions, *([""] if self.app.serves_unpinned else [])}
        names = [(each, QueueName.parse(each)) for each in self._stack.queues]
        return [
            each
            for each, name in names
            if name.lambda_name in self.app.callbacks and name.version in versions
        ]

    def _run(self, tasks: Sequence[hsc_pb2.ClaimedTask], callback: Callback) -> list[Run]:
        fault = self._next_fault(callback.name)
        is_called = fault is None or fault.error is not None or fault.after_callback
        results = self._call(tasks, callback, fault) if is_called else []
        if fault is not None and fault.crashes:
            results = [_crashed(task) for task in tasks]
        if fault is not None and fault.vanishes:
            results = []
        if results:
            self._stack.report(results)
        now = self._stack.now
        return [_told(task, callback.name, now, result) for task, result in zip_longest(tasks, results)]

    def _call(
        self, tasks: Sequence[hsc_pb2.ClaimedTask], callback: Callback, fault: _Fault | None
    ) -> list[hsc_pb2.TaskResult]:
        if fault is not None and fault.error is not None:
            callback = dataclasses.replace(callback, function=_raising(fault.error))
        beats = [_Beats(self._stack, self.name, task) for task in tasks]
        contexts = [each.context for each in beats]
        if callback.batch is not None:
            results = invoke_batch.run_batch(callback, tasks, contexts, self._async.run)
        else:
            results = [invoke.run(callback, tasks[0], contexts[0], self._async.run)]
        for each, result in zip(beats, results, strict=True):
            if each.kept and result.outcome != hsc_pb2.OUTCOME_SUCCESS:
                result.checkpoint = each.kept
        return results

    # ---- faults ------------------------------------------------------------------------------------------

    def fail_next(
        self,
        error: BaseException | None = None,
        *,
        of: str | Callable[..., Any] = "",
        times: int = 1,
    ) -> None:
        """Let the next runs fail: `error` is raised in place of the callback. None: `RuntimeError("fail_next")`.

        `of` names a lambda, or is its callback; by default the next runs of any lambda fail.
        """
        error = RuntimeError("fail_next") if error is None else error
        check_type("error", error, BaseException, 'ConnectionError("the relay is down")')
        self._add(times, _Fault(self._name(of), error=error))

    def crash_next(
        self, *, of: str | Callable[..., Any] = "", times: int = 1, after_callback: bool = False
    ) -> None:
        """Let the process of the next runs die, which charges a crash to the task.

        `after_callback`: it dies when the callback has done its work and its result is not stored: what it did is done twice.
        """
        self._add(times, _Fault(self._name(of), crashes=True, after_callback=after_callback))

    def vanish_next(
        self, *, of: str | Callable[..., Any] = "", times: int = 1, after_callback: bool = False
    ) -> None:
        """Let the machine of the next runs vanish: nothing is reported, and the tasks run again when their claims have run out."""
        self._add(times, _Fault(self._name(of), vanishes=True, after_callback=after_callback))

    def _name(self, of: str | Callable[..., Any]) -> str:
        name = handles.name_of(of) if of else ""
        if name and name not in self.app.callbacks:
            raise DulyTestError(
                f"the application has no lambda {name!r}; it has: {', '.join(self.app.callbacks) or 'none'}"
            )
        return name

    def _add(self, times: int, fault: _Fault) -> None:
        self._faults += [fault] * times

    def _next_fault(self, lambda_name: str) -> _Fault | None:
        for number, fault in enumerate(self._faults):
            if fault.lambda_name in ("", lambda_name):
                return self._faults.pop(number)
        return None


class _Beats:
    """What a callback reports while it runs goes to the HSC at once, and what the HSC says to it comes back."""

    def __init__(self, stack: TestStack, holder: str, task: hsc_pb2.ClaimedTask) -> None:
        self._stack = stack
        self._holder = holder
        self._task = task
        self.kept = b""
        self.context = TaskContext.for_task(task, self.progress, self.checkpoint, FrontendCalls(stack, task))
        self.context.started_ns = stack.nanoseconds()

    def progress(self, fraction: float, note: str) -> None:
        self._beat(hsc_pb2.HeartbeatItem(claim=self._task.claim, progress=fraction, progress_note=note))

    def checkpoint(self, _task_id: bytes, data: bytes) -> None:
        self.kept = data
        self._beat(hsc_pb2.HeartbeatItem(claim=self._task.claim, checkpoint=data))

    def _beat(self, item: hsc_pb2.HeartbeatItem) -> None:
        verdict = self._stack.beat(self._holder, item)
        if verdict == hsc_pb2.HEARTBEAT_VERDICT_CANCEL_REQUESTED:
            self.context.request_cancel()


class _AsyncCallbacks:
    """One event loop for all async callbacks of a worker, as a callback process has: in this thread, if no loop runs here."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._loop.run_until_complete(coroutine)
        with ThreadPoolExecutor(max_workers=1) as pool:  # an async test runs in this thread
            return pool.submit(copy_context().run, self._loop.run_until_complete, coroutine).result()

    def close(self) -> None:
        if self._loop is not None:
            self._loop.close()


def _crashed(task: hsc_pb2.ClaimedTask) -> hsc_pb2.TaskResult:
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_CRASHED,
        failure_kind=task_pb2.FAILURE_KIND_CRASH,
        failure_message="the callback's process was killed by signal 9",
    )


def _told(
    task: hsc_pb2.ClaimedTask, lambda_name: str, now: datetime, result: hsc_pb2.TaskResult | None
) -> Run:
    return Run(
        lambda_name=lambda_name,
        task_id=str(UUID(bytes=task.claim.task_id)),
        attempt=task.attempt,
        at=now,
        outcome=None if result is None else Outcome(result.outcome),
        message="" if result is None else result.failure_message,
    )


def _raising(error: BaseException) -> Callable[..., Any]:
    def callback(*_: object) -> None:
        raise error

    return callback


def too_many(runs: list[Run], since: datetime, now: datetime, most: int) -> DulyTestError:
    """Return the error for runs that do not end; it names those that came most often."""
    counts = Counter((run.lambda_name, run.task_id) for run in runs).most_common(_TOLD)
    often = "; ".join(f"{name} {task_id}: {count} times" for (name, task_id), count in counts)
    last = "\n".join(f"  {run}" for run in runs[-_TOLD:])
    passed = now - since if now > since else timedelta()
    return DulyTestError(
        f"{most:,} runs, and there is still something due after {passed} of the stepped clock. Does a task snooze or schedule "
        f"itself for ever? Pass most=... if so many are meant.\nMost often: {often}\nThe last runs:\n{last}"
    )
