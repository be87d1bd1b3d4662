"""The batches that a callback process was given: which of its tasks share a call, and so a slot. No I/O."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from duly_core.host.slot_board import RunningTask
from duly_wire.ids import TaskId


@dataclass(slots=True, eq=False)
class _Batch:
    left: dict[TaskId, None]
    """Its tasks that have not ended, in their order."""


class GivenBatches:
    """By task, the batch that it is in. The slot board names one task of each batch that runs."""

    def __init__(self) -> None:
        self._of: dict[TaskId, _Batch] = {}
        self.beyond_slots = 0
        """How many more tasks these are than slots that they take."""

    def __bool__(self) -> bool:
        return bool(self._of)

    def add(self, task_ids: Collection[TaskId]) -> None:
        """Note a batch that was given."""
        batch = _Batch(dict.fromkeys(task_ids))
        self._of.update(dict.fromkeys(task_ids, batch))
        self.beyond_slots += len(task_ids) - 1

    def end(self, task_id: TaskId) -> bool:
        """Note that a task has ended; return whether others of its batch are left, so that its slot is not free."""
        batch = self._of.pop(task_id, None)
        if batch is None:
            return False
        del batch.left[task_id]
        if batch.left:
            self.beyond_slots -= 1
        return bool(batch.left)

    def with_neighbours(self, task_id: TaskId) -> Collection[TaskId]:
        """Return the tasks that are left of the batch of this one; of no batch: this one."""
        batch = self._of.get(task_id)
        return (task_id,) if batch is None else batch.left.keys()

    def one_of_each(self, task_ids: Iterable[TaskId]) -> Iterator[TaskId]:
        """Yield these tasks, but only one of each batch."""
        for task_id in task_ids:
            batch = self._of.get(task_id)
            if batch is None or next(iter(batch.left)) == task_id:
                yield task_id

    def spread(self, running: Iterable[RunningTask]) -> Iterator[RunningTask]:
        """Yield what runs; of a batch, each task."""
        for entry in running:
            batch = self._of.get(entry.task_id)
            if batch is None:
                yield entry
            else:
                for task_id in batch.left:
                    yield replace(entry, task_id=task_id)
