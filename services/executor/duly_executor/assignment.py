"""Which callback process gets which task: pure decisions, no I/O."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator

from duly.v1 import hsc_pb2
from duly_core.task import TaskId
from duly_executor.process import CallbackProcess


class Assignment:
    """Tasks that wait for a process, and the rules by which they get one.

    A task that has crashed a process before (a suspect) gets one for itself. While ordinary tasks wait too,
    one process at least is left to them, if there are several.
    """

    def __init__(self, most_each: int) -> None:
        """Args: `most_each` is how many tasks a process is given at most, those that wait for a slot included."""
        self.most_each = most_each
        self._waiting: deque[hsc_pb2.ClaimedTask] = deque()
        self._suspects: deque[hsc_pb2.ClaimedTask] = deque()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._suspects)

    def add(self, task: hsc_pb2.ClaimedTask) -> None:
        """Have this task wait."""
        (self._suspects if task.crashes else self._waiting).append(task)

    def take_back(self) -> list[TaskId]:
        """Nobody waits any more; who did."""
        waiting = [task.claim.task_id for task in (*self._waiting, *self._suspects)]
        self._waiting.clear()
        self._suspects.clear()
        return waiting

    def drop_if(self, over: Collection[TaskId]) -> None:
        """Forget those of these that wait."""
        for waiting in (self._waiting, self._suspects):
            if any(task.claim.task_id in over for task in waiting):
                left = [task for task in waiting if task.claim.task_id not in over]
                waiting.clear()
                waiting.extend(left)

    def assign(
        self, processes: Iterable[CallbackProcess]
    ) -> Iterator[tuple[CallbackProcess, list[hsc_pb2.ClaimedTask]]]:
        """Spread what waits over the processes; each must have been given its batch before the next is asked for."""
        usable = [process for process in processes if process.killed_for is None]
        yield from self._suspects_alone(usable)
        yield from self._spread([process for process in usable if not process.alone])

    def _suspects_alone(
        self, processes: list[CallbackProcess]
    ) -> Iterator[tuple[CallbackProcess, list[hsc_pb2.ClaimedTask]]]:
        most = max(1, len(processes) - bool(self._waiting))
        while self._suspects and processes:
            empty = [process for process in processes if not process.tasks]
            reserved = [process for process in processes if process.alone]
            chosen = next((process for process in empty if process.alone), None)
            if chosen is None and len(reserved) < most:
                chosen = min(
                    (process for process in processes if not process.alone),
                    key=lambda process: len(process.tasks),
                )
                chosen.alone = True  # it takes nothing else, and so will be empty
            if chosen is None or chosen.tasks:
                return
            yield chosen, [self._suspects.popleft()]

    def _spread(
        self, processes: list[CallbackProcess]
    ) -> Iterator[tuple[CallbackProcess, list[hsc_pb2.ClaimedTask]]]:
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
