"""The threads that run callbacks, and what each of them does right now."""

import asyncio
import queue
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from duly.context import TaskContext
from duly.invoke import run
from duly.registry import App
from duly.v1 import callback_pb2, hsc_pb2, task_pb2
from duly_core.board import Board
from duly_core.clock import since_boot_ns
from duly_core.task import TaskId
from duly_executor.callback.outbox import Outbox


class Slots:
    """Starts what it is given in order, each callback on a free thread; async ones on one loop."""

    def __init__(self, app: App, board: Board, process: int, outbox: Outbox) -> None:
        self._callbacks = app.callbacks
        self._board = board
        self._process = process
        self._outbox = outbox
        self._waiting: queue.SimpleQueue[callback_pb2.CallbackStart] = queue.SimpleQueue()
        self._stop: dict[TaskId, Callable[[], None]] = {}
        self._cancelled: set[TaskId] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        if any(callback.is_async for callback in self._callbacks.values()):
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="duly-async", daemon=True).start()
        for slot in range(board.slots):
            threading.Thread(target=self._serve, args=(slot,), name=f"duly-slot-{slot}", daemon=True).start()

    def start(self, starts: list[callback_pb2.CallbackStart]) -> None:
        """Run these as soon as slots are free."""
        for start in starts:
            self._waiting.put(start)

    def cancel(self, task_id: TaskId) -> None:
        """Ask a callback to stop; one that has not started does not start."""
        self._cancelled.add(task_id)
        stop = self._stop.get(task_id)
        if stop is not None:
            stop()

    def recall(self) -> None:
        """Give back what waits for a slot."""
        while True:
            try:
                start = self._waiting.get_nowait()
            except queue.Empty:
                return
            self._outbox.unstarted(start.task.claim.task_id)

    def _serve(self, slot: int) -> None:
        while True:
            start = self._waiting.get()
            task = start.task
            task_id = task.claim.task_id
            now = since_boot_ns()
            if now >= start.start_before_boottime_ns:
                self._outbox.unstarted(task_id)
                continue
            self._board.started(self._process, slot, task_id, now)
            self._outbox.result(self._run(task, task_id))
            self._board.ended(self._process, slot)

    def _run(self, task: hsc_pb2.ClaimedTask, task_id: TaskId) -> hsc_pb2.TaskResult:
        callback = self._callbacks.get(getattr(task, "lambda"))
        if callback is None:
            return hsc_pb2.TaskResult(
                claim=task.claim,
                outcome=hsc_pb2.OUTCOME_RETRIABLE_FAILURE,
                failure_kind=task_pb2.FAILURE_KIND_NO_CALLBACK,
                failure_message="this host's application has no callback of that name",
            )
        context = TaskContext.for_task(task, lambda done, note: self._outbox.progress(task_id, done, note))
        self._stop[task_id] = context.request_cancel
        try:
            if task_id in self._cancelled:
                context.request_cancel()
            return run(
                callback, task, context, lambda coroutine: self._run_async(coroutine, task_id, context)
            )
        finally:
            del self._stop[task_id]
            self._cancelled.discard(task_id)

    def _run_async(self, coroutine: Coroutine[Any, Any, Any], task_id: TaskId, context: TaskContext) -> Any:
        assert self._loop is not None  # noqa: S101 (made whenever a callback is async)
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)

        def stop() -> None:
            context.request_cancel()
            future.cancel()

        self._stop[task_id] = stop
        if context.cancelled:
            stop()
        return future.result()
