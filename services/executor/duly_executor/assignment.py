"""Which callback process gets which task: decisions only, no I/O.

A task that has crashed a process before (a suspect) gets one for itself, so that the culprit of a further
crash is known, and an innocent task is never quarantined for its neighbour.
"""

from collections import deque
from collections.abc import Collection, Iterator

from duly.v1 import hsc_pb2
from duly_core.task import TaskId
from duly_executor.process import CallbackProcess

Batch = tuple[CallbackProcess, list[hsc_pb2.ClaimedTask]]


class Assignment:
    """Tasks that wait for a process, and the rules by which they get one."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self.most_each = slots
        """How many tasks a process is given at most, those that wait for a slot included."""
        self._waiting: deque[hsc_pb2.ClaimedTask] = deque()
        self._suspects: deque[hsc_pb2.ClaimedTask] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._suspects)

    def add(self, task: hsc_pb2.ClaimedTask) -> None:
        """Have this task wait."""
        (self._suspects if task.crashes else self._waiting).append(task)

    def take_back(self, *, suspects_too: bool) -> list[TaskId]:
        """Those that wait, who wait no more. A suspect may keep waiting: a process is being emptied for it."""
        taken = [*self._waiting, *(self._suspects if suspects_too else ())]
        self._waiting.clear()
        if suspects_too:
            self._suspects.clear()
        return [task.claim.task_id for task in taken]

    def capacity(self, processes: Collection[CallbackProcess]) -> int:
        """How many tasks can run in these at a time, going by what they run now."""
        return sum(
            self._slots if process.takes_others else len(process.tasks)
            for process in processes
            if process.killed_for is None
        )

    def assign(self, processes: Collection[CallbackProcess]) -> Iterator[Batch]:
        """Spread what waits; each batch must have been given to its process before the next is asked for."""
        usable = [process for process in processes if process.killed_for is None]
        yield from self._suspects_alone(usable)
        yield from self._spread([process for process in usable if process.takes_others])

    def _suspects_alone(self, processes: list[CallbackProcess]) -> Iterator[Batch]:
        # while ordinary tasks wait too, one process at least is left to them, if there are several
        most = max(1, len(processes) - bool(self._waiting))
        while self._suspects and processes:
            chosen = next((process for process in processes if process.reserved), None)
            if chosen is None:
                if sum(process.alone for process in processes) >= most:
                    break
                chosen = min(
                    (process for process in processes if process.takes_others),
                    key=lambda process: len(process.tasks),
                )
                chosen.reserved = True  # from now on it takes nothing else, and so gets empty
            if chosen.tasks:
                break
            chosen.reserved, chosen.alone = False, True
            yield chosen, [self._suspects.popleft()]
            chosen.alone = bool(chosen.tasks)  # the task may have been over already
        if not self._suspects:
            for process in processes:
                process.reserved = False

    def _spread(self, processes: list[CallbackProcess]) -> Iterator[Batch]:
        """The least loaded first, and as evenly as whole tasks allow."""
        batches: dict[int, list[hsc_pb2.ClaimedTask]] = {}
        room = {process.number: self.most_each - len(process.tasks) for process in processes}
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
