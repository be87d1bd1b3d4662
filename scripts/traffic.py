"""Schedules tasks in the background, while pictures are taken."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread

import duly


@contextmanager
def traffic(address: str, gap: float, tasks: Callable[[int], Sequence[duly.NewTask]]) -> Iterator[None]:
    """Schedule `tasks(0)`, `tasks(1)` and so on, each `gap` seconds after the one before, until the block ends."""
    ends = Event()

    def schedule() -> None:
        with duly.Client(address) as client:
            for number in count():
                if ends.wait(gap):
                    return
                client.schedule_many(tasks(number))

    thread = Thread(target=schedule)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
