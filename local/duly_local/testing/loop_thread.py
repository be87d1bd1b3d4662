"""An event loop in a thread of its own, where the services run while a test runs in its own thread."""

import asyncio
import threading
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Self, TypeVar

Value = TypeVar("Value")


class LoopThread:
    """For a `with`."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="duly-test", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Value]) -> Value:
        """Run a coroutine there, and return its value, or raise what it raises."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def enter(self, manager: AbstractAsyncContextManager[Value]) -> Value:
        """Enter an asynchronous context there."""
        return self.run(_enter(manager))

    def leave(self, manager: AbstractAsyncContextManager[Any]) -> None:
        """Leave it there."""
        self.run(_leave(manager))


async def _enter(manager: AbstractAsyncContextManager[Value]) -> Value:
    return await manager.__aenter__()


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


async def _end_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
