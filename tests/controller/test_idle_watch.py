"""A worker that is to end when it is idle: what counts as idle."""

from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from duly_controller.idle_watch import IdleWatch

LIMIT = timedelta(seconds=5)


@dataclass
class Board:
    """What an Executor's board says."""

    executor_id: str = "one"
    started: int | None = 3
    busy: int | None = 0

    def starts(self):
        return self.started

    def busy_slots(self):
        return self.busy


@dataclass
class Attached:
    """The Executors."""

    executors: list = field(default_factory=list)

    def all(self):
        return self.executors


async def looks(attached, changes=()):
    """When it ends, of looks at each second up to 20; None: it does not. A change is made before the look of its second."""
    now, ended = [0.0], []
    watch = IdleWatch(attached, LIMIT, lambda: ended.append(now[0]), lambda: now[0])
    for second in range(21):
        now[0] = float(second)
        for at, change in changes:
            if at == second:
                change()
        await watch.look()
        if ended:
            return ended[0]
    return None


@pytest.mark.parametrize(
    ("executors", "ends_at"),
    [
        ([], None),
        ([Board()], 5),
        ([Board(), Board("two")], 5),
        ([Board(busy=1)], None),
        ([Board(), Board("two", busy=1)], None),
        ([Board(started=None, busy=None)], None),
    ],
)
async def test_a_worker_ends_when_none_of_its_executors_runs_or_started_a_task(executors, ends_at):
    assert await looks(Attached(executors)) == ends_at


async def test_a_task_between_two_looks_counts():
    board = Board()

    assert await looks(Attached([board]), [(4, lambda: setattr(board, "started", 4))]) == 9


async def test_an_executor_that_is_started_again_counts():
    attached = Attached([Board()])

    assert await looks(attached, [(4, lambda: setattr(attached, "executors", [Board("new")]))]) == 9
