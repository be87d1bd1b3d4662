"""What waits for the slots of an Executor that has reserved slots: a line for each reservation, and one for the others.

What waits stays with the Executor: in a callback process it would take any slot there. Each line is prefetched as fast
as its own tasks end, and handed back when none of them ends: it waits for no slot of another.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field

from duly_core.lambdas.names import base_name
from duly_executor.processes.process import CallbackProcess
from duly_executor.settings import ExecutorSettings
from duly_executor.slots.reservations import Reservation
from duly_executor.slots.use import SlotUse
from duly_executor.work.prefetch import Prefetch
from duly_wire.enums import Priority
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2

_PART = 4
"""A call asks for this part of what is held ahead, or more: single ones would cost a call each."""


@dataclass(slots=True, eq=False)
class _Line:
    reservation: Reservation | None
    prefetch: Prefetch
    tasks: deque[hsc_pb2.ClaimedTask] = field(default_factory=deque)
    waits_since: float | None = None
    """Since when something waits here and no task of this line has ended."""


class ReservedSlots:
    """Decisions only: the caller says what time it is (the loop's time, in seconds). False: nothing is reserved."""

    def __init__(
        self, settings: ExecutorSettings, find: Callable[[TaskId], hsc_pb2.ClaimedTask | None]
    ) -> None:
        """Args: `find` returns the task of an id, if it is held."""
        self._reservations = settings.reservations
        self._slots = settings.slots
        self._recall_after = settings.recall_after.total_seconds()
        self._find = find
        whose = (None, *self._reservations)
        ahead = settings.prefetch_time, settings.prefetch_limit // len(whose)
        slots = settings.processes * settings.slots
        self._most_waiting = settings.prefetch_limit + slots
        self._lines = {each: _Line(each, Prefetch(*ahead, slots)) for each in whose}
        self._by_queue: dict[tuple[str, int | None], _Line] = {
            (each.lambda_name, each.priority): self._lines[each] for each in self._reservations
        }

    def __bool__(self) -> bool:
        return bool(self._reservations)

    def _line_of(self, task: hsc_pb2.ClaimedTask | None) -> _Line:
        if task is None:
            return self._lines[None]
        name = base_name(getattr(task, "lambda"))
        line = self._by_queue.get((name, None))
        line = line or self._by_queue.get((name, task.priority or Priority.NORMAL))
        return line or self._lines[None]

    # ---- what waits --------------------------------------------------------------------------------------

    def waiting(self) -> int:
        """Return how many tasks wait."""
        return sum(len(line.tasks) for line in self._lines.values())

    def add(self, task: hsc_pb2.ClaimedTask) -> None:
        """Have this task wait."""
        self._line_of(task).tasks.append(task)

    def put_back(self, tasks: Iterable[hsc_pb2.ClaimedTask]) -> None:
        """Have these wait again, before the others; the first is to be the first again."""
        for task in reversed([*tasks]):
            self._line_of(task).tasks.appendleft(task)

    def take_all(self) -> Iterator[hsc_pb2.ClaimedTask]:
        """Take out all that wait."""
        for line in self._lines.values():
            yield from line.tasks
            line.tasks.clear()

    def take_stuck(self, now: float) -> Iterator[hsc_pb2.ClaimedTask]:
        """Take out what waits in lines of which no task has ended for `executor.recall_after`."""
        for line in self._lines.values():
            if not line.tasks:
                line.waits_since = None
            elif line.waits_since is None:
                line.waits_since = now
            elif now - line.waits_since > self._recall_after:
                line.waits_since = None
                yield from line.tasks
                line.tasks.clear()

    def take_startable(self, processes: Iterable[CallbackProcess]) -> deque[hsc_pb2.ClaimedTask]:
        """Take out those that wait for whom there is a slot that they may use; for shared slots the lines take turns."""
        use = self._given(processes)
        startable: deque[hsc_pb2.ClaimedTask] = deque()
        lines = [line for line in self._lines.values() if line.tasks]
        while lines := [line for line in lines if line.tasks and use.may_start(line.reservation)]:
            for line in lines:
                if use.take_up_to(1, line.reservation):
                    startable.append(line.tasks.popleft())
        return startable

    def note_ended(self, ends: Iterable[tuple[hsc_pb2.ClaimedTask, object]], now: float) -> None:
        """Note the ends of attempts."""
        if not self._reservations:
            return
        for task, _ in ends:
            line = self._line_of(task)
            line.prefetch.ended(1, now)
            line.waits_since = None

    # ---- who uses the slots ------------------------------------------------------------------------------

    def _given(self, processes: Iterable[CallbackProcess]) -> SlotUse:
        """Count what processes were given.

        The slots are those of ordinary processes that take work. Whatever runs elsewhere takes none of them: tasks that
        must be alone, lambdas that are kept apart, and what is left in a process that is being replaced.
        """
        ordinary = [process for process in processes if process.works and not process.isolated]
        use = SlotUse(self._slots * len(ordinary), self._reservations)
        for process in ordinary:
            for task_id in process.batches.one_of_each(process.tasks) if process.batches else process.tasks:
                use.take(self._line_of(self._find(task_id)).reservation)
        return use

    def given(self, processes: Iterable[CallbackProcess]) -> SlotUse:
        """Count what processes were given; a batch is one."""
        return self._given(processes)

    def take_slot(self, use: SlotUse, task: hsc_pb2.ClaimedTask) -> bool:
        """Count this task, or the batch that it is the first of, if it may start; whether it may."""
        return bool(use.take_up_to(1, self._line_of(task).reservation))

    def free_for(self, lambda_name: str, processes: Iterable[CallbackProcess]) -> int:
        """Return how many slots are free for batches of a lambda."""
        use = self._given(processes)
        own = [each for each in self._reservations if each.lambda_name == lambda_name]
        return sum(map(use.room, (None, *own)))

    def use(self, processes: Collection[CallbackProcess]) -> SlotUse:
        """Count what processes were given, and what waits and may start."""
        use = self._given(processes)
        for line in self._lines.values():
            use.take_up_to(len(line.tasks), line.reservation)
        return use

    def room(
        self, reservation: Reservation | None, asked: int, processes: Collection[CallbackProcess], now: float
    ) -> int:
        """Return for how many tasks of a line to ask; 0: not worth a call yet.

        What the calls of a reservation may bring takes nothing from the others: those slots are not theirs. When a
        call of the others has brought such a task meanwhile, one too many may come: it waits, or is handed back.

        A call may bring tasks of another line: one for shared slots brings tasks of all lambdas, and an HSC of an earlier
        release ignores priorities. So the other lines count as well, or call after call would bring more of them.
        """
        use = self._given(processes)
        waiting, wait = 0, 0
        for line in self._lines.values():
            left = len(line.tasks) - use.take_up_to(len(line.tasks), line.reservation)
            waiting += left
            if line.reservation == reservation:
                wait += left
            elif reservation is None:
                wait += max(0, left - line.prefetch.ahead(now))
        ahead = self._lines[reservation].prefetch.ahead(now)
        room = min(use.room(reservation) + ahead - wait - asked, self._most_waiting - waiting)
        return room if room > ahead // _PART else 0
