"""One run of a callback in a slot, and the means to ask it to stop, and to interrupt it."""

import asyncio
import concurrent.futures
import ctypes
import logging
import operator
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from itertools import starmap, tee
from typing import Any, Protocol

from duly.callbacks.callback import Callback
from duly.callbacks.invoke import interrupted, run
from duly.callbacks.invoke_batch import run_batch, stopped
from duly.callbacks.outcomes import Interrupted
from duly.context import TaskContext
from duly_wire.v1 import hsc_pb2


class AsyncLoop:
    """The one loop on which a process runs its async callbacks; it begins with the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine there; its outcome."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="duly-async", daemon=True).start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[[], None]) -> None:
        """Call this in the loop's thread, once that is free; at once if no loop runs yet."""
        with self._lock:
            loop = self._loop
        if loop is None:
            function()
        else:
            loop.call_soon_threadsafe(function)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except BaseException:
            # asyncio lets SystemExit out of the loop: one callback must not end that of all the others
            logging.getLogger("duly.callback").exception("something left the callbacks' loop; it goes on")


_set_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
"""Raises an exception in another thread at its next bytecode, or takes back what is not raised yet (None)."""


_LOCKING = dict.fromkeys(
    function.__code__
    for function in (
        threading.Condition.__enter__,
        threading.Condition.__exit__,
        threading.Condition._acquire_restore,  # type: ignore[attr-defined]  # noqa: SLF001
        threading.Condition._release_save,  # type: ignore[attr-defined]  # noqa: SLF001
        logging.Handler.acquire,
        logging.Handler.release,
    )
)
"""Functions that take or release a lock that others share, in Python: an exception in them may leave it locked."""
_CAREFUL_FOR = timedelta(seconds=0.5)
"""Longer than a thread waits for a processor of a busy machine: until it runs, each look finds it at the same place."""
_LOOK_AGAIN = timedelta(milliseconds=1)
_CODE = operator.attrgetter("f_code")


def _raise_outside_locks(thread: int) -> bool:
    """Raise Interrupted in a thread, unless it runs one of the functions above.

    Return whether it is raised. The look and the raising are one chain of C calls, between which no other thread runs.
    """
    frames = map(operator.itemgetter(thread), starmap(sys._current_frames, [()]))  # noqa: SLF001 (no public way)
    exceptions, chosen = tee(map(_LOCKING.get, map(_CODE, frames), [ctypes.py_object(Interrupted)]))
    list(map(_set_exception, [ctypes.c_ulong(thread)], exceptions))
    return next(chosen) is not None


class Stoppable(Protocol):
    """What an attempt asks of its context; that of a batch stands for many."""

    @property
    def cancelled(self) -> bool:
        """Whether it is to stop."""

    @property
    def interrupted(self) -> bool:
        """Whether it was interrupted."""

    def request_cancel(self) -> None:
        """Let it be cancelled."""

    def note_interruption(self) -> None:
        """Let it be interrupted."""


class Attempt:
    """What a slot runs now: a task, or a batch of tasks in one call."""

    __slots__ = ("_armed", "_cancel_on_loop", "_context", "_lock", "_loop", "_thread", "task")

    def __init__(self, task: hsc_pb2.ClaimedTask, context: Stoppable, loop: AsyncLoop) -> None:
        self.task = task
        self._loop = loop
        self._context = context
        self._cancel_on_loop: Callable[[], object] | None = None
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._armed = False
        """Whether an exception may be raised in the thread: not outside the callback, where nobody expects it."""

    def run(self, callback: Callback, context: TaskContext) -> hsc_pb2.TaskResult:
        """Run the callback to its end, in the thread that made this object."""
        try:
            try:
                self._armed = True
                return run(callback, self.task, context, self._run_async)
            finally:
                self._disarm()  # the exception, which is raised once at most, may come while this runs
        except Interrupted:
            self._disarm()
            return interrupted(self.task, context)

    def run_batch(
        self, callback: Callback, tasks: Sequence[hsc_pb2.ClaimedTask], contexts: Sequence[TaskContext]
    ) -> list[hsc_pb2.TaskResult]:
        """As `run`, for many tasks in one call."""
        try:
            try:
                self._armed = True
                return run_batch(callback, tasks, contexts, self._run_async)
            finally:
                self._disarm()
        except Interrupted:
            self._disarm()
            return stopped(tasks, contexts)

    def _disarm(self) -> None:
        """Let no exception be raised in this thread from now on, nor one that is on its way."""
        if self._armed:
            with self._lock:
                self._armed = False
                if self._context.interrupted:
                    _set_exception(ctypes.c_ulong(self._thread), None)

    def _run_async(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        with self._lock:
            self._armed = False  # it is cancelled on its loop instead; this thread waits for the end of that
        return self._loop.submit(self._cancellable(coroutine)).result()

    def stop(self) -> None:
        """Ask the callback to stop; any thread may."""
        self._context.request_cancel()
        cancel = self._cancel_on_loop
        if cancel is not None:
            cancel()

    def note_interruption(self) -> None:
        """Nothing to do before `interrupt`: a task that runs alone is told by it."""

    def interrupt(self) -> None:
        """Raise Interrupted in the callback, once; an async one is cancelled. Another thread calls this."""
        if not self._interrupt(carefully=True):
            threading.Thread(target=self._interrupt_in_time, name="duly-interrupt", daemon=True).start()

    def _interrupt_in_time(self) -> None:
        """Interrupt it once it has left code that locks. If it stays there, it most likely waits: interrupt it then too."""
        deadline = time.monotonic() + _CAREFUL_FOR.total_seconds()
        while time.monotonic() < deadline:
            time.sleep(_LOOK_AGAIN.total_seconds())
            if self._interrupt(carefully=True):
                return
        self._interrupt(carefully=False)

    def _interrupt(self, *, carefully: bool) -> bool:
        """Do so, unless it may harm others; whether it is done."""
        with self._lock:
            if self._context.interrupted:
                return True
            if self._armed:
                if not carefully:
                    _set_exception(ctypes.c_ulong(self._thread), ctypes.py_object(Interrupted))
                elif not _raise_outside_locks(self._thread):
                    return False
            self._context.note_interruption()
        cancel = self._cancel_on_loop
        if cancel is not None:
            cancel()
        return True

    async def _cancellable(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """A cancelled coroutine has ended only when it says so: it may have something to clean up."""
        loop, own = asyncio.get_running_loop(), asyncio.current_task()
        assert own is not None  # noqa: S101 (a coroutine that was submitted runs in a task)
        self._cancel_on_loop = lambda: loop.call_soon_threadsafe(own.cancel)
        try:
            if (
                self._context.cancelled or self._context.interrupted
            ):  # `stop` came before it could see the line above
                own.cancel()
            return await coroutine
        finally:
            self._cancel_on_loop = None
