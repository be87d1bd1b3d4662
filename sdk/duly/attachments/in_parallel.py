"""Does the same work on many items in a few threads, and hands each result to the thread that waits."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

LOOK_S = 0.2
"""How soon the thread that waits notices that it is to stop."""


def in_parallel(
    work: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Item, Result]]:
    """Yield items with their results, as they come; at most `threads` are under way, and as many results wait.

    `check` is called again and again by the thread that waits, and may raise. The first exception ends all: what is under way
    then is not waited for, and its result is dropped.
    """
    left = [*items]
    if len(left) <= 1 or threads <= 1:
        for item in left:
            check()
            yield item, work(item)
        return
    running = _Threads(work, left, threads)
    try:
        for _ in left:
            yield running.next_result(check)
    finally:
        running.stopped.set()


class _Threads(Generic[Item, Result]):
    """The threads of one piece of work. They are daemons: one that waits for an answer must not hold up the program's end."""

    def __init__(self, work: Callable[[Item], Result], items: list[Item], threads: int) -> None:
        self.stopped = threading.Event()
        self._work = work
        self._items = iter(items)
        self._turn = threading.Lock()
        self._results: queue.Queue[tuple[Item, Result] | BaseException] = queue.Queue(threads)
        for _ in range(min(threads, len(items))):
            threading.Thread(target=self._run, name="duly-attachments", daemon=True).start()

    def _run(self) -> None:
        while not self.stopped.is_set():
            with self._turn:
                if (item := next(self._items, None)) is None:
                    return
            try:
                self._put((item, self._work(item)))
            except BaseException as error:  # noqa: BLE001 (the thread that waits raises it)
                self._put(error)
                return

    def _put(self, result: tuple[Item, Result] | BaseException) -> None:
        while not self.stopped.is_set():
            try:
                self._results.put(result, timeout=LOOK_S)
            except queue.Full:
                continue
            else:
                return

    def next_result(self, check: Callable[[], None]) -> tuple[Item, Result]:
        while True:
            check()
            try:
                result = self._results.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if isinstance(result, BaseException):
                raise result
            return result
