"""Which callback process gets which task: decisions only, no I/O.

A task that has crashed a process before (a suspect) gets one for itself, so that the culprit of a further
crash is known, and an innocent task is never quarantined for its neighbour. One whose only crash was the death of a whole
worker is no suspect: what kills workers crashes a second time, and is one then. Tasks of a lambda that misbehaved
lately share processes with one another only. Both run in processes beside the ordinary ones (`isolated`), so they
need not wait for the end of others, however long these take.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from duly_core.lambdas.names import base_name
from duly_executor.processes.batch_lines import MOST_BYTES, BatchLines
from duly_executor.processes.process import CallbackProcess
from duly_executor.processes.suspects import IsolatedLambdas
from duly_executor.slots.reserved import ReservedSlots
from duly_executor.slots.use import SlotUse
from duly_wire.ids import TaskId
from duly_wire.v1 import hsc_pb2

Batch = tuple[CallbackProcess, list[hsc_pb2.ClaimedTask]]
_Line = deque[tuple[hsc_pb2.ClaimedTask, float]]
"""Tasks with the time when they came."""

_PART = 4
_MOST_ISOLATED = 100
"""So many suspects may wait for an isolated process without being counted as work that this host has taken."""
_OTHERS_LATELY = 60.0
"""Seconds: for so long after a task of an ordinary lambda, one process is left to such tasks."""


class Capacity(NamedTuple):
    """How many tasks the processes can hold."""

    held: int
    """Running and waiting."""
    ahead: int
    """Waiting: what is held beyond the slots."""

    def room(self, held: int) -> int:
        """How many more to ask for when so many are held, or asked for; 0: not worth a call yet.

        A free slot is always worth one. While short tasks stream through, a call asks for a part of what is held ahead:
        asked for as they ended, they came by the dozen, and each dozen cost three calls and two statements.
        """
        free = self.held - held
        return free if free > self.ahead // _PART else 0


class Dispatcher:
    """Tasks that wait for a process, and the rules by which they get one."""

    def __init__(
        self,
        slots: int,
        moving: Callable[[CallbackProcess], bool],
        isolated_lambdas: IsolatedLambdas,
        isolated: int,
        reserved: ReservedSlots | None = None,
        batches: BatchLines | None = None,
    ) -> None:
        """Make one.

        Args:
            slots: of each process.
            moving: whether tasks ended in a process lately: only there others may wait for a slot.
            isolated_lambdas: which lambdas are kept apart.
            isolated: how many isolated processes there may be.
            reserved: who has slots for itself; None: nobody.
            batches: what waits to share a call; None: nothing.
        """
        self._reserved = reserved
        self._slots = slots
        self._moving = moving
        self._isolated_lambdas = isolated_lambdas
        self._isolated = isolated
        self.batches = BatchLines(0.0) if batches is None else batches
        """Tasks of lambdas that take batches."""
        self._batch_turn = 0
        """Which of two gets the odd slot while both wait: batches (1), or tasks that run alone."""
        self._ahead = 0
        self._quick = 0
        """Slots whose callbacks end soon, in all processes: each holds the same number ahead."""
        self._waiting: deque[hsc_pb2.ClaimedTask] = deque()
        self._others_at = float("-inf")
        """When a task of an ordinary lambda came last."""
        self._suspects: _Line = deque()
        self._likely: _Line = deque()
        """Suspects of lambdas that are kept apart: the others, who may be innocent, go first."""
        self._separate: dict[str, _Line] = {}
        """By lambda."""

    def __len__(self) -> int:
        return self.ordinary() + self.batches.waiting() + self._suspected() + self._separated()

    def _suspected(self) -> int:
        return len(self._suspects) + len(self._likely)

    def _separated(self) -> int:
        return sum(map(len, self._separate.values()))

    def full_lambdas(self) -> frozenset[str]:
        """The lambdas that are kept apart of which as many wait as their isolated processes can take."""
        most = self._most_of_one() * self._slots
        return frozenset(
            name for name, line in self._separate.items() if len(line) >= most * self.batches.size_of(name)
        )

    def add(self, task: hsc_pb2.ClaimedTask, now: float) -> None:
        """Have this task wait."""
        is_suspect = bool(task.crashes) and not task.crashed_with_worker
        name = getattr(task, "lambda") if is_suspect or self._isolated_lambdas.separate else ""
        apart = name in self._isolated_lambdas.separate
        if is_suspect:
            (self._likely if apart else self._suspects).append((task, now))
        elif apart:
            self._separate.setdefault(name, deque()).append((task, now))
        elif self.batches and self.batches.add(task, now):
            self._others_at = now
        else:
            if self._reserved:
                self._reserved.add(task)
            else:
                self._waiting.append(task)
            self._others_at = now

    def isolate(self, lambda_name: str, now: float) -> bool:
        """A task of this lambda misbehaved; whether the lambda is kept apart from now on, and was not before."""
        changed = self._isolated_lambdas.misbehaved(lambda_name, now)
        if changed:
            self._sort_again(now)
        return changed

    def end_isolation(self, now: float) -> list[str]:
        """Put the lambdas among the others again whose time apart is over; these."""
        isolation_ended = self._isolated_lambdas.look(now)
        if isolation_ended:
            self._sort_again(now)
        return isolation_ended

    def _sort_again(self, now: float) -> None:
        waiting = [*self._take_ordinary(), *self.batches.take_all()]
        for name in [name for name in self._separate if name not in self._isolated_lambdas.separate]:
            waiting += [task for task, _ in self._separate.pop(name)]
        others_at = self._others_at
        for task in waiting:
            self.add(task, now)
        if not self.ordinary():
            self._others_at = others_at

    def ordinary(self) -> int:
        """How many wait that any process may run."""
        return self._reserved.waiting() if self._reserved else len(self._waiting)

    def _take_ordinary(self) -> list[hsc_pb2.ClaimedTask]:
        waiting = [*self._waiting]
        self._waiting.clear()
        return [*self._reserved.take_all()] if self._reserved else waiting

    def take_back(self, stuck_at: float | None = None) -> list[TaskId]:
        """Those that wait, who wait no more. Those that run isolated keep waiting: other processes are theirs.

        With `stuck_at` (where slots are reserved): only those that no slot was freed for lately.
        """
        if self._reserved and stuck_at is not None:
            return [task.claim.task_id for task in self._reserved.take_stuck(stuck_at)]
        taken = self._take_ordinary()
        if stuck_at is None:
            taken += self.batches.take_all()
        return [task.claim.task_id for task in taken]

    def take_back_batches(self, now: float) -> list[TaskId]:
        """Those of batches that are ready and for which no slot was freed lately, who wait no more."""
        return [task.claim.task_id for task in self.batches.take_stuck(now)]

    def crowding(self) -> int:
        """How many more suspects wait for an isolated process than may: so many fewer tasks are asked for."""
        return max(0, self._suspected() - _MOST_ISOLATED)

    def take_back_isolated(self, came_before: float) -> list[TaskId]:
        """Those that came before then and wait for an isolated process, who wait no more."""
        taken: list[TaskId] = []
        for line in (self._suspects, self._likely, *self._separate.values()):
            while line and line[0][1] < came_before:
                taken.append(line.popleft()[0].claim.task_id)
        return taken

    def plan_prefetch(self, tasks: int, processes: Collection[CallbackProcess], of: int) -> None:
        """Let so many wait for a slot, spread over `of` processes.

        A process gets as many as its slots can run that are not held up by callbacks that take long: short tasks
        must not wait for its last free slot while another process could run them.
        """
        slow = sum(each.slow_slots for each in processes if each.killed_for is None and not each.isolated)
        self._ahead = 0 if self._reserved else tasks  # what waits in a process takes any slot there
        self._quick = of * self._slots - slow

    def capacity(self, processes: Collection[CallbackProcess]) -> Capacity:
        """Return how many tasks these can hold, going by the plan."""
        alive = [process for process in processes if process.killed_for is None]
        running = sum(
            self._slots
            if process.takes_others or (process.separate and process.works and not process.isolated)
            else process.load
            for process in alive
        )
        ahead = min(self._ahead, sum(self._ahead_of(process) for process in alive if process.takes_others))
        # what is kept apart takes no slot from others, however much of it one answer brought
        isolated = min(self._suspected(), _MOST_ISOLATED) + self._separated()
        return Capacity(running + ahead + isolated, ahead)

    def beyond_slots(self, processes: Iterable[CallbackProcess]) -> int:
        """Return how many of the tasks that are held take no slot: they wait for a batch, or share one's slot."""
        if not self.batches:
            return 0
        return self.batches.waiting() + sum(process.batches.beyond_slots for process in processes)

    def batch_room(self, name: str, asked: int, processes: Collection[CallbackProcess], now: float) -> int:
        """Return for how many tasks of a lambda that takes batches to ask, when so many are asked for."""
        beyond = sum(process.batches.beyond_slots for process in processes)
        if self._reserved:
            free = self._reserved.free_for(name, processes)
        else:
            free = sum(max(0, self._slots - process.load) for process in processes if process.takes_others)
        room = self.batches.room(name, free, beyond, now) - asked - self.crowding()
        return max(
            0, room - sum(len(line) for queue, line in self._separate.items() if base_name(queue) == name)
        )

    def assign_batches(self, processes: Collection[CallbackProcess], now: float) -> Iterator[Batch]:
        """Spread the batches that are ready: each is one call, and must have been given before the next is asked for.

        While tasks wait that run alone, batches get half of the slots that are free.
        """
        usable = [process for process in processes if process.takes_any]
        others = {process.number: process for process in usable if process.takes_others}
        room = {
            number: self._slots + bool(self._ahead_of(process)) - process.load
            for number, process in others.items()
        }
        quota = sum(free for free in room.values() if free > 0)
        if quota and self.ordinary():
            quota, odd = divmod(quota, 2)
            if odd and any(self.batches.ready(now)):
                quota += self._batch_turn
                self._batch_turn = 1 - self._batch_turn
        use = self._reserved.given(processes) if self._reserved else None
        while quota > 0:
            number = max(room, key=room.__getitem__)
            if room[number] <= 0:
                break
            name = self._next_batch(use, now)
            if name is None:
                break
            room[number] -= 1
            quota -= 1
            yield others[number], self.batches.take(name, now)
        if self._separate:
            for name, line in [*self._separate.items()]:
                if (size := self.batches.size_of(name)) > 1:
                    yield from self._separately(name, line, usable, now, size)

    def _ahead_of(self, process: CallbackProcess) -> int:
        quick = self._slots - process.slow_slots
        if not self._ahead or quick <= 0 or not self._moving(process):
            return 0
        return -(
            -self._ahead * quick // max(quick, self._quick)
        )  # they may have become more since it was planned

    def assign(self, processes: Collection[CallbackProcess], now: float) -> Iterator[Batch]:
        """Spread what waits; each batch must have been given to its process before the next is asked for."""
        usable = [process for process in processes if process.takes_any]
        yield from self._suspects_alone([process for process in usable if process.isolated])
        others = [process for process in usable if process.takes_others]
        if not self._reserved:
            yield from self._spread(self._waiting, others)
        elif self.ordinary():
            startable = self._reserved.take_startable(processes)
            yield from self._spread(startable, others)
            self._reserved.put_back(startable)  # a process that owes an answer has a free slot
        for name, line in [*self._separate.items()]:
            if self.batches.size_of(name) == 1:
                yield from self._separately(name, line, usable, now)

    def _next_batch(self, use: SlotUse | None, now: float) -> str | None:
        """Return the lambda whose batch starts next; None: none is ready, or there is no slot for it."""
        for name, first in self.batches.ready(now):
            if use is None or self._reserved is None or self._reserved.take_slot(use, first):
                return name
        return None

    def wanted_isolated(self, processes: Collection[CallbackProcess]) -> int:
        """How many isolated processes are missing, `assign` being done."""
        wanted = self._suspected()
        for name, line in self._separate.items():
            have = sum(process.isolated and process.separate == name for process in processes)
            taken = self._slots * self.batches.size_of(name)
            wanted += max(0, min(-(-len(line) // taken), self._most_of_one() - have))
        return wanted

    def _most_of_one(self) -> int:
        """How many isolated processes one lambda may have."""
        return max(1, self._isolated // 2)

    def _suspects_alone(self, isolated: list[CallbackProcess]) -> Iterator[Batch]:
        for process in isolated:
            line = self._suspects or self._likely
            if not line:
                return
            if process.is_free:
                process.alone = True
                yield process, [line.popleft()[0]]
                process.alone = bool(process.tasks)  # the task may have been over already

    def _spread(
        self, waiting: deque[hsc_pb2.ClaimedTask], processes: list[CallbackProcess]
    ) -> Iterator[Batch]:
        """The least loaded first, and as evenly as whole tasks allow."""
        batches: dict[int, list[hsc_pb2.ClaimedTask]] = {}
        room = {process.number: self._slots + self._ahead_of(process) - process.load for process in processes}
        while waiting and room:
            number = max(room, key=room.__getitem__)
            if room[number] <= 0:
                break
            share = max(1, min(len(waiting) // len(room), room[number]))
            batches.setdefault(number, []).extend(waiting.popleft() for _ in range(share))
            room[number] -= share
        for process in processes:
            if process.number in batches:
                yield process, batches[process.number]

    def _separately(
        self, name: str, line: _Line, processes: list[CallbackProcess], now: float, size: int = 1
    ) -> Iterator[Batch]:
        """Into processes that run nothing else; ordinary ones only while no other task waits.

        With a `size`, each that is yielded is a batch of so many.
        """
        for process in processes:
            if not line:
                return
            if process.separate != name and not self._may_take(name, process, processes, now):
                continue
            room = self._slots - process.load
            if room <= 0 or (self.ordinary() and not process.isolated):
                continue
            process.separate = name
            if size == 1:
                yield process, [line.popleft()[0] for _ in range(min(room, len(line)))]
            else:
                for _ in range(min(room, -(-len(line) // size))):
                    yield process, _popped(line, size)
            if not process.tasks:
                process.separate = ""

    def _may_take(
        self, name: str, process: CallbackProcess, processes: list[CallbackProcess], now: float
    ) -> bool:
        """Whether a process that runs nothing may be this lambda's from now on."""
        if not process.is_free:
            return False
        if self._reserved and not process.isolated:
            return False  # its reserved slots would be taken
        taken = [each for each in processes if each.separate and each.isolated == process.isolated]
        if process.isolated:  # one is left to suspects
            own = sum(each.separate == name for each in taken)
            return own < self._most_of_one() and len(taken) < max(1, self._isolated - 1)
        left = sum(not each.isolated for each in processes) - len(taken)
        return left > 1 or now - self._others_at > _OTHERS_LATELY


def _popped(line: _Line, most: int) -> list[hsc_pb2.ClaimedTask]:
    """Take the first tasks of a line: up to so many, and no more bytes than a batch may have."""
    batch = [line.popleft()[0]]
    size = batch[0].ByteSize()
    while line and len(batch) < most and (size := size + line[0][0].ByteSize()) <= MOST_BYTES:
        batch.append(line.popleft()[0])
    return batch
