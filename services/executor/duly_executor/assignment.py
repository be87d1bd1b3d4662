"""Which callback process gets which task: decisions only, no I/O.

A task that has crashed a process before (a suspect) gets one for itself, so that the culprit of a further
crash is known, and an innocent task is never quarantined for its neighbour: one that happens to be empty, or
the spare process, which runs nothing else. So it need not wait for the end of others, however long they take.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from duly.v1 import hsc_pb2
from duly_core.task import TaskId
from duly_executor.process import CallbackProcess

Batch = tuple[CallbackProcess, list[hsc_pb2.ClaimedTask]]


_PART = 4


class Plan(NamedTuple):
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


class Assignment:
    """Tasks that wait for a process, and the rules by which they get one."""

    def __init__(self, slots: int, moving: Callable[[CallbackProcess], bool]) -> None:
        """Args: `moving` says whether tasks ended in a process lately: only there others may wait for a slot."""
        self._slots = slots
        self._moving = moving
        self._ahead = 0
        self._quick = 0
        """Slots whose callbacks end soon, in all processes: each holds the same number ahead."""
        self._waiting: deque[hsc_pb2.ClaimedTask] = deque()
        self._suspects: deque[tuple[hsc_pb2.ClaimedTask, float]] = deque()
        """With the time when they came."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._suspects)

    def add(self, task: hsc_pb2.ClaimedTask, now: float) -> None:
        """Have this task wait."""
        if task.crashes:
            self._suspects.append((task, now))
        else:
            self._waiting.append(task)

    def ordinary(self) -> int:
        """How many wait that any process may run."""
        return len(self._waiting)

    def take_back(self) -> list[TaskId]:
        """Those that wait, who wait no more. Suspects keep waiting: the spare process is theirs."""
        taken = [task.claim.task_id for task in self._waiting]
        self._waiting.clear()
        return taken

    def take_back_suspects(self, came_before: float) -> list[TaskId]:
        """Suspects that came before then, who wait no more."""
        taken: list[TaskId] = []
        while self._suspects and self._suspects[0][1] < came_before:
            taken.append(self._suspects.popleft()[0].claim.task_id)
        return taken

    def plan_ahead(self, tasks: int, processes: Collection[CallbackProcess], of: int) -> Plan:
        """Let so many wait for a slot, spread over `of` processes; what these can hold now.

        A process gets as many as its slots can run that are not held up by callbacks that take long: short tasks
        must not wait for its last free slot while another process could run them.
        """
        alive = [process for process in processes if process.killed_for is None]
        self._ahead = tasks
        self._quick = of * self._slots - sum(process.slow_slots for process in alive if not process.spare)
        running = sum(self._slots if process.takes_others else len(process.tasks) for process in alive)
        ahead = min(tasks, sum(self._ahead_of(process) for process in alive if process.takes_others))
        return Plan(running + ahead, ahead)

    def _ahead_of(self, process: CallbackProcess) -> int:
        quick = self._slots - process.slow_slots
        if not self._ahead or quick <= 0 or not self._moving(process):
            return 0
        return -(
            -self._ahead * quick // max(quick, self._quick)
        )  # they may have become more since it was planned

    def assign(self, processes: Collection[CallbackProcess]) -> Iterator[Batch]:
        """Spread what waits; each batch must have been given to its process before the next is asked for."""
        usable = [process for process in processes if process.killed_for is None]
        yield from self._suspects_alone(usable)
        yield from self._spread([process for process in usable if process.takes_others])

    @property
    def wants_spare(self) -> bool:
        """Whether a suspect waits for a process of its own, `assign` being done."""
        return bool(self._suspects)

    def _suspects_alone(self, processes: list[CallbackProcess]) -> Iterator[Batch]:
        ordinary = [process for process in processes if not process.spare]
        spare = [process for process in processes if process.spare]
        most = len(ordinary) - 1  # one at least is left to the others: a suspect may run for hours
        while self._suspects:
            usable = spare + (ordinary if sum(process.alone for process in ordinary) < most else [])
            chosen = next((process for process in usable if _is_empty(process)), None)
            if chosen is None:
                return
            chosen.alone = True
            yield chosen, [self._suspects.popleft()[0]]
            chosen.alone = bool(chosen.tasks)  # the task may have been over already

    def _spread(self, processes: list[CallbackProcess]) -> Iterator[Batch]:
        """The least loaded first, and as evenly as whole tasks allow."""
        batches: dict[int, list[hsc_pb2.ClaimedTask]] = {}
        room = {
            process.number: self._slots + self._ahead_of(process) - len(process.tasks)
            for process in processes
        }
        while self._waiting and room:
            number = max(room, key=room.__getitem__)
            if room[number] <= 0:
                break
            share = max(1, min(len(self._waiting) // len(room), room[number]))
            batches.setdefault(number, []).extend(self._waiting.popleft() for _ in range(share))
            room[number] -= share
        for process in processes:
            if process.number in batches:
                yield process, batches[process.number]


def _is_empty(process: CallbackProcess) -> bool:
    """Whether it could be given a suspect now."""
    return not process.tasks and not process.alone and process.recall_sent_at is None
