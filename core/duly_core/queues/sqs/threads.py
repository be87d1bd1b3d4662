"""Blocking calls in threads that hold up neither the event loop nor the end of the process.

The threads of `concurrent.futures` (and of `asyncio.to_thread`) are joined when the interpreter
ends: a long poll of twenty seconds would hold it up for twenty seconds. Ours are daemons.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

_T = TypeVar("_T")

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


class AbandonedError(Exception):
    """The threads were stopped while the call ran; it may go on unseen, and nobody gets its result."""


class DaemonThreads:
    """Up to `limit` threads, started when they are needed; further calls wait for their turn."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._started = 0
        self._idle = threading.Semaphore(0)
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._pending: set[asyncio.Future[Any]] = set()
        self._stopped = False

    async def run(self, call: Callable[[], _T]) -> _T:
        """Run a call in a thread; when the caller is cancelled, it goes on and its result is lost.

        Raises:
            AbandonedError: `stop` was called.
        """
        if self._stopped:
            raise AbandonedError
        loop = asyncio.get_running_loop()
        future: asyncio.Future[_T] = loop.create_future()
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        self._jobs.put((loop, future, call))
        if not self._idle.acquire(blocking=False) and self._started < self._limit:
            self._started += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._started}", daemon=True).start()
        return await future

    def stop(self) -> None:
        """Let go of all calls at once, and of each thread when its call ends; idempotent."""
        if self._stopped:
            return
        self._stopped = True
        for future in list(self._pending):
            if not future.done():
                future.set_exception(AbandonedError())
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            loop, future, call = job
            if not future.done():
                _run(loop, future, call)
            del job, future, call  # a thread that waits keeps nothing alive
            self._idle.release()


def _run(loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]", call: Callable[[], Any]) -> None:
    """Run a call and hand its end to the loop."""
    result, failure = None, None
    try:
        result = call()
    except Exception as error:  # noqa: BLE001 (whatever it raises is for the caller)
        failure = error
    try:
        loop.call_soon_threadsafe(_settle, future, result, failure)
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more


def _settle(future: "asyncio.Future[Any]", result: object, failure: Exception | None) -> None:
    if future.done():
        return  # cancelled or abandoned meanwhile
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
