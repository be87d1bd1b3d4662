"""The threads that run callbacks, and what each of them does right now."""

import logging
import os
import queue
import threading
import time
from collections.abc import Iterable, Sequence

from duly.callbacks.app import App
from duly.callbacks.callback import Callback
from duly.callbacks.invoke import one_line
from duly.context import TaskContext
from duly.errors import describe
from duly_core.host.slot_board import SlotWriter
from duly_core.process import failpoints
from duly_executor.callback import output
from duly_executor.callback.attempt import AsyncLoop, Attempt
from duly_executor.callback.batch import BatchContext, BatchTask
from duly_executor.callback.exit_recorder import ExitRecorder
from duly_executor.callback.frontend_calls import FrontendCalls
from duly_executor.callback.kept_output import KeptOutput
from duly_executor.callback.priority_queue import PriorityQueue
from duly_executor.callback.report_sender import ReportSender
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2, task_pb2


class Slots:
    """Starts what it is given, best priorities first, each callback on a free thread; async ones on one loop.

    A set and a dict say what may start and what runs. They need no lock: what is done to one of them is done at once
    (the keys are bytes), and in an order in which a cancel finds the task in one of the two.
    """

    def __init__(
        self,
        app: App,
        board: SlotWriter,
        report_sender: ReportSender,
        exit_recorder: ExitRecorder,
        frontend_calls: FrontendCalls,
        kept_output: KeptOutput | None,
    ) -> None:
        self._callbacks = app.callbacks
        self._board = board
        self._report_sender = report_sender
        self._keep = report_sender.checkpoint
        self._exit_recorder = exit_recorder
        self._frontend_calls = frontend_calls
        self._kept_output = kept_output
        self._codec = app.codec
        self._pid = os.getpid()
        self._loop = AsyncLoop()
        self._waiting = PriorityQueue()
        self._may_start: set[TaskId] = set()
        self._running: dict[TaskId, Attempt | BatchTask] = {}
        self._batches: dict[TaskId, Sequence[hsc_pb2.ClaimedTask]] = {}
        """Batches that wait for a slot, by their first task."""
        self._has_batches = any(each.batch for each in app.callbacks.values())
        for slot in range(board.slots):
            threading.Thread(target=self._serve, args=(slot,), name=f"duly-slot-{slot}", daemon=True).start()

    def start(self, tasks: Iterable[hsc_pb2.ClaimedTask], before_boot_ns: int) -> None:
        """Run these as soon as slots are free, if that is before this instant of CLOCK_BOOTTIME."""
        if self._has_batches:
            tasks = self._without_batch_lambdas(tasks, before_boot_ns)
        line = [(task, task.claim.task_id, before_boot_ns) for task in tasks]
        self._may_start.update([task_id for _, task_id, _ in line])
        for each in line:
            self._waiting.put(each)

    def start_batch(self, tasks: Sequence[hsc_pb2.ClaimedTask], before_boot_ns: int) -> None:
        """Run these in one call as soon as a slot is free."""
        task_ids = [task.claim.task_id for task in tasks]
        self._may_start.update(task_ids)
        self._batches[task_ids[0]] = [*tasks]  # a field of a message makes its items again with each look
        self._waiting.put((tasks[0], task_ids[0], before_boot_ns))

    def _without_batch_lambdas(
        self, tasks: Iterable[hsc_pb2.ClaimedTask], before_boot_ns: int
    ) -> Iterable[hsc_pb2.ClaimedTask]:
        """Return tasks without those whose callbacks take batches: they come alone, and run as batches of one."""
        others = []
        for task in tasks:
            callback = self._callback_of(task)
            if callback is not None and callback.batch is not None:
                self.start_batch([task], before_boot_ns)
            else:
                others.append(task)
        return others

    def cancel(self, task_id: TaskId) -> None:
        """Ask a callback to stop; one that has not started does not start."""
        self._may_start.discard(task_id)
        attempt = self._running.get(task_id)
        if attempt is not None:
            attempt.stop()

    def interrupt(self, task_ids: Iterable[TaskId]) -> None:
        """End callbacks that ran too long, or did not stop as they were asked to; of a batch, its one call."""
        attempts = [attempt for each in task_ids if (attempt := self._running.get(each)) is not None]
        for attempt in attempts:
            attempt.note_interruption()
        for attempt in attempts:
            attempt.interrupt()

    def recall(self) -> None:
        """Give back what waits for a slot. The async callbacks' loop answers: a loop that is blocked answers nothing."""
        while True:
            try:
                _, task_id, _ = self._waiting.get(block=False)
            except queue.Empty:
                self._loop.call(self._report_sender.recalled)
                return
            for each in self._batch_of(task_id) or (task_id,):
                self._may_start.discard(each)
                self._report_sender.unstarted(each)

    def _batch_of(self, task_id: TaskId) -> list[TaskId]:
        """Take a batch out that waits; the ids of its tasks. Empty: this task is no batch's first."""
        return [task.claim.task_id for task in self._batches.pop(task_id, ())]

    def _serve(self, slot: int) -> None:
        self._exit_recorder.slot(slot)
        try:
            self._serve_for_ever(slot)
        except (
            BaseException
        ):  # a slot less, and a task that nobody reports: rather a process that starts again
            logging.getLogger("duly.callback").exception("a slot cannot go on")
            os._exit(os.EX_SOFTWARE)

    def _serve_for_ever(self, slot: int) -> None:
        while True:
            task, task_id, before_boot_ns = self._waiting.get()
            if self._has_batches and (tasks := self._batches.pop(task_id, None)) is not None:
                self._serve_batch(slot, tasks, before_boot_ns)
                continue
            result = self._attempt(slot, task, task_id, before_boot_ns)
            if os.getpid() != self._pid:
                os._exit(0)  # a fork that came back out of its callback: this life is its parent's to lead
            if result is None:
                self._report_sender.unstarted(task_id)
                continue
            self._report_sender.result(task_id, result)
            self._board.ended(slot)

    def _attempt(
        self, slot: int, task: hsc_pb2.ClaimedTask, task_id: TaskId, before_boot_ns: int
    ) -> hsc_pb2.TaskResult | None:
        """Its end; None if it is not to start, or not any more."""
        callback = self._callback_of(task)
        is_kept = callback is not None and callback.keep_output
        speaker = output.Speaker(task, self._kept_output if is_kept else None, self._codec)
        context = TaskContext.for_task(
            task,
            lambda done, note: self._report_sender.progress(task_id, done, note),
            self._keep,
            self._frontend_calls,
            speaker.keep,
        )
        attempt = self._running[task_id] = Attempt(task, context, self._loop)
        try:
            self._may_start.remove(task_id)
        except KeyError:
            del self._running[task_id]
            return None
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        result = None
        if now < before_boot_ns:
            self._board.started(slot, task_id, now)
            _begin(speaker)
            result = self._run(attempt, callback, context)
            _end(speaker)
        del self._running[task_id]
        return result

    def _callback_of(self, task: hsc_pb2.ClaimedTask) -> Callback | None:
        return self._callbacks.get(getattr(task, "lambda").partition("@")[0])

    def _serve_batch(self, slot: int, tasks: Sequence[hsc_pb2.ClaimedTask], before_boot_ns: int) -> None:
        """Run a batch to its end, and report each of its tasks."""
        results = self._attempt_batch(slot, tasks, before_boot_ns)
        if os.getpid() != self._pid:
            os._exit(0)
        if results:
            self._report_sender.batch_ended(results)
        self._board.ended(slot)

    def _attempt_batch(
        self, slot: int, tasks: Sequence[hsc_pb2.ClaimedTask], before_boot_ns: int
    ) -> list[hsc_pb2.TaskResult]:
        """The ends of those that are to start still. What the call prints is kept with the first of them."""
        results: list[hsc_pb2.TaskResult] = []
        batch = BatchContext()
        attempt = Attempt(tasks[0], batch, self._loop)
        callback = self._callback_of(tasks[0])
        speaker = None
        running: list[hsc_pb2.ClaimedTask] = []
        contexts: list[TaskContext] = []
        for task in tasks:
            task_id = task.claim.task_id
            if speaker is None or not contexts:
                is_kept = callback is not None and callback.keep_output
                speaker = output.Speaker(task, self._kept_output if is_kept else None, self._codec)
            context = self._context_of(task, speaker)
            self._running[task_id] = BatchTask(attempt, batch, context)
            try:
                self._may_start.remove(task_id)
            except KeyError:
                del self._running[task_id]
                self._report_sender.unstarted(task_id)
                continue
            running.append(task)
            contexts.append(context)
        batch.contexts = contexts
        now = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if running and speaker is not None and now < before_boot_ns:
            self._board.started(slot, running[0].claim.task_id, now, len(running))
            _begin(speaker)
            results = self._run_batch(attempt, callback, running, contexts)
            _end(speaker)
        for task in running:
            del self._running[task.claim.task_id]
            if not results:
                self._report_sender.unstarted(task.claim.task_id)
        return results

    def _context_of(self, task: hsc_pb2.ClaimedTask, speaker: output.Speaker) -> TaskContext:
        task_id = task.claim.task_id
        return TaskContext.for_task(
            task,
            lambda done, note: self._report_sender.progress(task_id, done, note),
            self._keep,
            self._frontend_calls,
            speaker.keep,
        )

    def _run_batch(
        self,
        attempt: Attempt,
        callback: Callback | None,
        tasks: Sequence[hsc_pb2.ClaimedTask],
        contexts: Sequence[TaskContext],
    ) -> list[hsc_pb2.TaskResult]:
        if callback is None or callback.batch is None:
            return [_failed(task, task_pb2.FAILURE_KIND_NO_CALLBACK, _NO_CALLBACK) for task in tasks]
        try:
            return attempt.run_batch(callback, tasks, contexts)
        except Exception as error:
            logging.getLogger("duly.callback").exception("the batch cannot be run")
            return [_unusable(task, error) for task in tasks]

    def _run(self, attempt: Attempt, callback: Callback | None, context: TaskContext) -> hsc_pb2.TaskResult:
        task = attempt.task
        if callback is None:
            return _failed(
                task,
                task_pb2.FAILURE_KIND_NO_CALLBACK,
                _NO_CALLBACK,
            )
        try:
            return attempt.run(callback, context)
        except Exception as error:
            # whatever a task is made of, its slot lives on
            logging.getLogger("duly.callback").exception("the task cannot be run")
            return _unusable(task, error)


def _begin(speaker: output.Speaker) -> None:
    failpoints.hit_here("callback.user_code.before")
    output.begin(speaker)


def _end(speaker: output.Speaker) -> None:
    output.end(speaker)
    failpoints.hit_here("callback.user_code.after")


_NO_CALLBACK = "this host's application has no callback of that name"


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
