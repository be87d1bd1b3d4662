"""Group commit: what was asked for while the last statement ran goes together into the next one.

There is no fixed wait: when nothing is under way, an item is served at once and alone.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Coalescer(Generic[Item, Answer]):
    """Turns concurrent calls into few calls of `serve`, which answers each item in order.

    An error of `serve` goes to every caller of that group. A caller that is cancelled hurts nobody:
    its items, once taken, are served all the same.
    """

    def __init__(
        self,
        serve: Callable[[list[Item]], Awaitable[list[Answer]]],
        *,
        max_items: int = 500,
        concurrency: int = 1,
        observe: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Args: `max_items` bounds a group (a single larger call is not split); `observe` is told each group's size."""
        self._serve = serve
        self._max_items = max_items
        self._free = concurrency
        self._observe = observe
        self._waiting: deque[tuple[Sequence[Item], asyncio.Future[list[Answer]]]] = deque()
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, items: Sequence[Item]) -> list[Answer]:
        """Serve these items, alone or together with others'; answers in their order."""
        if not items:
            return []
        future: asyncio.Future[list[Answer]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        self._start()
        return await future

    def _start(self) -> None:
        while self._free and self._waiting:
            group = [self._waiting.popleft()]
            size = len(group[0][0])
            while self._waiting and size + len(self._waiting[0][0]) <= self._max_items:
                group.append(self._waiting.popleft())
                size += len(group[-1][0])
            self._free -= 1
            task = asyncio.get_running_loop().create_task(self._run(group, size))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, group: list[tuple[Sequence[Item], asyncio.Future[list[Answer]]]], size: int) -> None:
        self._observe(size)
        try:
            answers = await self._serve([item for items, _ in group for item in items])
        except Exception as error:  # noqa: BLE001 (whatever it was, its callers are told)
            for _, future in group:
                if not future.done():
                    future.set_exception(error)
        else:
            start = 0
            for items, future in group:
                if not future.done():
                    future.set_result(answers[start : start + len(items)])
                start += len(items)
        finally:
            self._free += 1
            self._start()
