"""A simulated day of one pool: tasks, workers with slots, and a policy that says how many workers there are.

Events in order of time: a task is due, a run ends, a worker is up, the policy has a look. Workers that end drain first. A worker is
paid for from the moment at which it was asked for.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple


class Task(NamedTuple):
    """A task of the day, in seconds since midnight."""

    due: float
    run: float
    name: str
    known: float
    """When it was scheduled: from then on its due time is known."""


@dataclass(slots=True)
class Worker:
    """A worker: up from `up_at` on, paid from `asked_at` on."""

    number: int
    asked_at: float
    up_at: float
    free: int
    running: int = 0
    is_draining: bool = False
    ended_at: float | None = None


@dataclass
class Seen:
    """What a policy may look at."""

    now: float
    waiting: deque[Task]
    running: dict[str, int]
    workers: list[Worker]
    put_off: list[Task]
    """All tasks of the day that are scheduled for later, by due time."""
    next_put_off: int
    """Where those begin that are not due yet."""
    started: deque[tuple[float, str]]
    """Of the tasks that were due at once: when, and which."""
    ended: dict[str, list[float]]
    """Run times by name."""

    @property
    def alive(self) -> list[Worker]:
        """Those that are up and take tasks."""
        return [each for each in self.workers if not each.is_draining and each.up_at <= self.now]

    @property
    def starting(self) -> list[Worker]:
        """Those that were asked for."""
        return [each for each in self.workers if not each.is_draining and each.up_at > self.now]


Policy = Callable[[Seen], int]


@dataclass
class Outcome:
    """What came of the day."""

    waits: list[float] = field(default_factory=list)
    busy_s: float = 0.0
    paid_s: float = 0.0
    peak: int = 0
    changes: int = 0

    def share(self, slots: int) -> float:
        """Which part of the paid slot time ran tasks."""
        return self.busy_s / (self.paid_s * slots)


_KINDS = count()
_DUE, _END, _UP, _LOOK = (next(_KINDS) for _ in range(4))


def simulate(  # noqa: PLR0915 (the events of one loop)
    tasks: list[Task],
    policy: Policy,
    *,
    slots: int,
    every: float,
    spin_up: tuple[float, float],
    start_with: int = 0,
    length: float = 86_400.0,
    seed: int = 1,
) -> Outcome:
    """Run a day; `tasks` are in the order of their due times. The policy looks `every` so many seconds."""
    chance = random.Random(seed)
    outcome = Outcome()
    numbers = count()
    workers = {
        number: Worker(number, 0.0, 0.0, slots) for number in (next(numbers) for _ in range(start_with))
    }
    gone: list[Worker] = []
    put_off = [each for each in tasks if each.due - each.known > 1]
    seen = Seen(0.0, deque(), {}, [], put_off, 0, deque(), {})
    place = 0
    order = count()
    events: list[tuple[float, int, int, object]] = [(0.0, next(order), _LOOK, None)]
    if tasks:
        heapq.heappush(events, (tasks[0].due, next(order), _DUE, None))

    def start() -> None:
        while seen.waiting:
            worker = max(
                (
                    each
                    for each in workers.values()
                    if each.free and not each.is_draining and each.up_at <= seen.now
                ),
                key=lambda each: each.running,
                default=None,
            )
            if worker is None:
                return
            while worker.free and seen.waiting:
                task = seen.waiting.popleft()
                worker.free, worker.running = worker.free - 1, worker.running + 1
                seen.running[task.name] = seen.running.get(task.name, 0) + 1
                outcome.waits.append(seen.now - task.due)
                outcome.busy_s += task.run
                heapq.heappush(events, (seen.now + task.run, next(order), _END, (worker, task)))

    def end(worker: Worker) -> None:
        worker.ended_at = seen.now
        gone.append(workers.pop(worker.number))

    def look() -> None:
        seen.workers = list(workers.values())
        desired = policy(seen)
        here = [each for each in workers.values() if not each.is_draining]
        outcome.changes += desired != len(here)
        for _ in range(desired - len(here)):
            number = next(numbers)
            up_at = seen.now + chance.uniform(*spin_up)
            workers[number] = Worker(number, seen.now, up_at, slots)
            heapq.heappush(events, (up_at, next(order), _UP, None))
        idle_first = sorted(here, key=lambda each: (each.running, -each.asked_at))
        for worker in idle_first[: max(0, len(here) - desired)]:
            worker.is_draining = True
            if not worker.running:
                end(worker)
        outcome.peak = max(outcome.peak, len(workers))

    while events:
        seen.now, _, kind, what = heapq.heappop(events)
        if kind == _DUE:
            task = tasks[place]
            place += 1
            seen.waiting.append(task)
            if task.due - task.known <= 1:
                seen.started.append((task.due, task.name))
            else:
                seen.next_put_off += 1
            if place < len(tasks):
                heapq.heappush(events, (tasks[place].due, next(order), _DUE, None))
            start()
        elif kind == _END:
            worker, task = what  # type: ignore[misc]
            worker.free, worker.running = worker.free + 1, worker.running - 1
            seen.running[task.name] -= 1
            seen.ended.setdefault(task.name, []).append(task.run)
            if worker.is_draining and not worker.running:
                end(worker)
            start()
        elif kind == _UP:
            start()
        elif seen.now < length or seen.waiting or any(seen.running.values()):
            look()
            start()
            heapq.heappush(events, (seen.now + every, next(order), _LOOK, None))
    outcome.paid_s = sum(
        (each.ended_at or max(seen.now, length)) - each.asked_at for each in _all(workers.values(), gone)
    )
    return outcome


def _all(here: object, gone: list[Worker]) -> Iterator[Worker]:
    yield from here  # type: ignore[misc]
    yield from gone
