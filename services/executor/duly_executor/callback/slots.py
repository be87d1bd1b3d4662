"""The threads that run callbacks, and what each of them does right now."""

import os
import queue
import threading

from duly.context import TaskContext
from duly.errors import describe
from duly.invoke import one_line
from duly.registry import App
from duly.v1 import callback_pb2, hsc_pb2, task_pb2
from duly_core import failpoints
from duly_core.board import Board
from duly_core.clock import since_boot_ns
from duly_core.task import TaskId
from duly_executor.callback.attempt import AsyncLoop, Attempt
from duly_executor.callback.outbox import Outbox


class Slots:
    """Starts what it is given in order, each callback on a free thread; async ones on one loop."""

    def __init__(self, app: App, board: Board, process: int, outbox: Outbox) -> None:
        self._callbacks = app.callbacks
        self._board = board
        self._process = process
        self._outbox = outbox
        self._pid = os.getpid()
        self._loop = AsyncLoop()
        self._waiting: queue.SimpleQueue[callback_pb2.CallbackStart] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._may_start: set[TaskId] = set()
        self._running: dict[TaskId, Attempt] = {}
        for slot in range(board.slots):
            threading.Thread(target=self._serve, args=(slot,), name=f"duly-slot-{slot}", daemon=True).start()

    def start(self, starts: list[callback_pb2.CallbackStart]) -> None:
        """Run these as soon as slots are free."""
        with self._lock:
            self._may_start.update(start.task.claim.task_id for start in starts)
        for start in starts:
            self._waiting.put(start)

    def cancel(self, task_id: TaskId) -> None:
        """Ask a callback to stop; one that has not started does not start."""
        with self._lock:
            self._may_start.discard(task_id)
            attempt = self._running.get(task_id)
        if attempt is not None:
            attempt.stop()

    def recall(self) -> None:
        """Give back what waits for a slot."""
        while True:
            try:
                start = self._waiting.get_nowait()
            except queue.Empty:
                self._outbox.recalled()
                return
            self._not_started(start.task.claim.task_id)

    def _not_started(self, task_id: TaskId) -> None:
        with self._lock:
            self._may_start.discard(task_id)
        self._outbox.unstarted(task_id)

    def _serve(self, slot: int) -> None:
        while True:
            start = self._waiting.get()
            task_id = start.task.claim.task_id
            try:
                attempt = self._begin(start)
            except Exception as error:  # noqa: BLE001 (whatever a task is made of, its slot lives on)
                with self._lock:
                    self._may_start.discard(task_id)
                self._outbox.result(_unusable(start.task, error))
                continue
            now = since_boot_ns()
            with self._lock:
                starts = task_id in self._may_start and now < start.start_before_boottime_ns
                self._may_start.discard(task_id)
                if starts:
                    self._running[task_id] = attempt
            if not starts:
                self._outbox.unstarted(task_id)
                continue
            self._board.started(self._process, slot, task_id, now)
            if failpoints.on:
                failpoints.hit_here("callback.user_code.before")
            result = self._run(attempt)
            if failpoints.on:
                failpoints.hit_here("callback.user_code.after")
            if os.getpid() != self._pid:
                os._exit(0)  # a fork that came back out of its callback: this life is its parent's to lead
            with self._lock:
                del self._running[task_id]
            self._outbox.result(result)
            self._board.ended(self._process, slot)

    def _begin(self, start: callback_pb2.CallbackStart) -> Attempt:
        task_id = start.task.claim.task_id
        context = TaskContext.for_task(
            start.task, lambda done, note: self._outbox.progress(task_id, done, note)
        )
        return Attempt(start.task, context)

    def _run(self, attempt: Attempt) -> hsc_pb2.TaskResult:
        callback = self._callbacks.get(getattr(attempt.task, "lambda"))
        if callback is None:
            return _failed(
                attempt.task,
                task_pb2.FAILURE_KIND_NO_CALLBACK,
                "this host's application has no callback of that name",
            )
        return attempt.run(callback, self._loop)


def _unusable(task: hsc_pb2.ClaimedTask, error: Exception) -> hsc_pb2.TaskResult:
    return _failed(task, task_pb2.FAILURE_KIND_EXCEPTION, f"the task cannot be run: {describe(error)}")


def _failed(
    task: hsc_pb2.ClaimedTask, kind: task_pb2.FailureKind.ValueType, message: str
) -> hsc_pb2.TaskResult:
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_RETRIABLE_FAILURE,
        failure_kind=kind,
        failure_message=one_line(message),
    )
