"""Which callback process gets which task: decisions only, no I/O.

A task that has crashed a process before (a suspect) gets one for itself, so that the culprit of a further
crash is known, and an innocent task is never quarantined for its neighbour.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator

from duly.v1 import hsc_pb2
from duly_core.task import TaskId
from duly_executor.process import CallbackProcess

Batch = tuple[CallbackProcess, list[hsc_pb2.ClaimedTask]]


class Assignment:
    """Tasks that wait for a process, and the rules by which they get one."""

    def __init__(self, slots: int, moving: Callable[[CallbackProcess], bool]) -> None:
        """Args: `moving` says whether tasks ended in a process lately: only there others may wait for a slot."""
        self._slots = slots
        self._moving = moving
        self._ahead_each = 0
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
        """Those that wait, who wait no more. Suspects keep waiting: a process is being emptied for them."""
        taken = [task.claim.task_id for task in self._waiting]
        self._waiting.clear()
        return taken

    def take_back_suspects(self, came_before: float) -> list[TaskId]:
        """Suspects that came before then, who wait no more."""
        taken: list[TaskId] = []
        while self._suspects and self._suspects[0][1] < came_before:
            taken.append(self._suspects.popleft()[0].claim.task_id)
        return taken

    def plan_ahead(self, tasks: int, processes: Collection[CallbackProcess], of: int) -> int:
        """Let so many wait for a slot, spread over `of` processes; how many tasks these can hold now."""
        self._ahead_each = -(-tasks // of)
        alive = [process for process in processes if process.killed_for is None]
        running = sum(self._slots if process.takes_others else len(process.tasks) for process in alive)
        return running + min(tasks, sum(self._ahead_of(process) for process in alive if process.takes_others))

    def _ahead_of(self, process: CallbackProcess) -> int:
        return self._ahead_each if self._ahead_each and self._moving(process) else 0

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
                    default=None,
                )
                if chosen is None:
                    break
                chosen.reserved = True  # from now on it takes nothing else, and so gets empty
            if chosen.tasks:
                break
            chosen.reserved, chosen.alone = False, True
            yield chosen, [self._suspects.popleft()[0]]
            chosen.alone = bool(chosen.tasks)  # the task may have been over already
        if not self._suspects:
            for process in processes:
                process.reserved = False

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
