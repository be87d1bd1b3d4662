"""Counts who uses an Executor's slots, and how many more may be used: a reserved slot only by whom it is reserved for.

A task uses a slot of its reservation while there is one, and else one of the shared slots. So the others have
slots - what they use - what is reserved and not used.
"""

from collections.abc import Collection

from duly_executor.slots.reservations import Reservation


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

    def take_up_to(self, count: int, reservation: Reservation | None) -> int:
        """Count up to so many tasks, as far as they may start; return how many may."""
        for number in range(count):
            if not self.may_start(reservation):
                return number
            self.take(reservation)
        return count

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
