"""One run of a callback in a slot, and the means to ask it to stop."""

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from duly.callbacks import Callback
from duly.context import TaskContext
from duly.invoke import run
from duly.v1 import hsc_pb2


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


def _run(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        try:
            loop.run_forever()
        except BaseException:
            # asyncio lets SystemExit out of the loop: one callback must not end that of all the others
            logging.getLogger("duly.callback").exception("something left the callbacks' loop; it goes on")


class Attempt:
    """What a slot runs now."""

    __slots__ = ("_cancel_on_loop", "_context", "_loop", "task")

    def __init__(self, task: hsc_pb2.ClaimedTask, context: TaskContext, loop: AsyncLoop) -> None:
        self.task = task
        self._loop = loop
        self._context = context
        self._cancel_on_loop: Callable[[], object] | None = None

    def run(self, callback: Callback) -> hsc_pb2.TaskResult:
        """Run the callback to its end."""
        return run(callback, self.task, self._context, self._run_async)

    def _run_async(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.submit(self._cancellable(coroutine)).result()

    def stop(self) -> None:
        """Ask the callback to stop; any thread may."""
        self._context.request_cancel()
        cancel = self._cancel_on_loop
        if cancel is not None:
            cancel()

    async def _cancellable(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """A cancelled coroutine has ended only when it says so: it may have something to clean up."""
        loop, own = asyncio.get_running_loop(), asyncio.current_task()
        assert own is not None  # noqa: S101 (a coroutine that was submitted runs in a task)
        self._cancel_on_loop = lambda: loop.call_soon_threadsafe(own.cancel)
        try:
            if self._context.cancelled:  # `stop` came before it could see the line above
                own.cancel()
            return await coroutine
        finally:
            self._cancel_on_loop = None
