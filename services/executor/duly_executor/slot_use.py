"""Counts who uses an Executor's slots, and how many more may be used: a reserved slot only by whom it is reserved for.

A task uses a slot of its reservation while there is one, and else one of the shared slots. So the others have
slots - what they use - what is reserved and not used.
"""

from collections.abc import Callable, Collection, Iterable

from duly.enums import Priority
from duly.v1 import hsc_pb2
from duly_core.task import TaskId
from duly_executor.callback_process import CallbackProcess
from duly_executor.reservations import Reservation
from duly_executor.settings import ExecutorSettings


class SlotUse:
    """The slots at one time. Tasks are counted by reservation; None: they have none."""

    def __init__(self, slots: int, reservations: Collection[Reservation]) -> None:
        """Begin with `slots` that nobody uses. They may be fewer than are reserved while a process is missing."""
        self.reservations = reservations
        self._free = slots
        self._unfilled = {each: each.slots for each in reservations}
        self._shared = slots - sum(self._unfilled.values())
        """Below 0: so many are reserved, and missing."""

    def take(self, reservation: Reservation | None) -> None:
        """Count a task."""
        self._free -= 1
        if reservation is not None and self._unfilled[reservation]:
            self._unfilled[reservation] -= 1
        else:
            self._shared -= 1

    def may_start(self, reservation: Reservation | None) -> bool:
        """Tell whether one more task may start."""
        own = reservation is not None and self._unfilled[reservation] > 0
        return self._free > 0 and (own or self._shared > 0)

    def room(self, reservation: Reservation | None) -> int:
        """Return how many slots are left of a reservation; with None: of the shared ones, which all may use."""
        unused = self._shared if reservation is None else self._unfilled[reservation]
        return max(0, min(unused, self._free))

    def used(self, reservation: Reservation) -> int:
        """Return how many slots of a reservation are used."""
        return reservation.slots - self._unfilled[reservation]


class ReservedSlots:
    """Which reservation a task has, and who uses the slots of processes."""

    def __init__(
        self,
        settings: ExecutorSettings,
        find: Callable[[TaskId], hsc_pb2.ClaimedTask | None],
    ) -> None:
        """Args: `find` returns the task of an id, if it is held."""
        self._reservations = settings.reservations
        self._by_queue: dict[tuple[str, int | None], Reservation] = {
            (each.lambda_name, each.priority): each for each in self._reservations
        }
        self._slots = settings.slots
        self._find = find

    def __bool__(self) -> bool:
        return bool(self._reservations)

    def of(self, task: hsc_pb2.ClaimedTask | None) -> Reservation | None:
        """Return the reservation of a task, if it has one."""
        if task is None:
            return None
        name = getattr(task, "lambda")
        whole = self._by_queue.get((name, None))
        return whole or self._by_queue.get((name, task.priority or Priority.NORMAL))

    def use(
        self, processes: Iterable[CallbackProcess], waiting: Iterable[hsc_pb2.ClaimedTask] = ()
    ) -> SlotUse:
        """Count what these processes were given, and what waits for them.

        The slots are those of ordinary processes that take work. Whatever runs elsewhere takes none of them: tasks that
        must be alone, lambdas that are kept apart, and what is left in a process that is being replaced.
        """
        ordinary = [process for process in processes if process.works and not process.isolated]
        use = SlotUse(self._slots * len(ordinary), self._reservations)
        for process in ordinary:
            for task_id in process.tasks:
                use.take(self.of(self._find(task_id)))
        for task in waiting:
            reservation = self.of(task)
            if use.may_start(reservation):  # else it takes no slot soon
                use.take(reservation)
        return use
