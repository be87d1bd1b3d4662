"""Keeps what waits in the order in which clients take turns: one client's many calls do not hold up another's single one."""

from collections import deque
from collections.abc import Callable, Collection, Hashable
from typing import Generic, Protocol, TypeVar


class Weighed(Protocol):
    """What waits."""

    @property
    def weight(self) -> int:
        """For how many items it counts."""


Call = TypeVar("Call", bound=Weighed)


class _Queue(deque[Call]):
    """The calls of one client."""

    weight = 0
    """Of all of them."""


class ClientTurns(Generic[Call]):
    """A queue for each client that has calls; the client whose call was taken goes behind the others."""

    def __init__(self) -> None:
        self._queues: dict[Hashable, _Queue[Call]] = {}
        self.weight = 0
        """Of all calls."""

    def __bool__(self) -> bool:
        return bool(self._queues)

    def append(self, client: Hashable, call: Call) -> None:
        """Let a call wait behind its client's others."""
        queue = self._queues.get(client)
        if queue is None:
            queue = self._queues[client] = _Queue()
        queue.append(call)
        queue.weight += call.weight
        self.weight += call.weight

    def take_group_without(
        self, clients: Collection[Hashable], most: int, is_wanted: Callable[[Call], bool]
    ) -> list[Call]:
        """Return such a group without calls of these clients; empty: there are no others."""
        left_out = {client: self._queues.pop(client) for client in clients if client in self._queues}
        group = self.take_group(most, is_wanted)
        self._queues |= left_out
        return group

    def take_group(self, most: int, is_wanted: Callable[[Call], bool]) -> list[Call]:
        """Return the calls whose turn it is, together of at most this weight, but one at least; drop unwanted ones."""
        group: list[Call] = []
        room = most
        while self._queues:
            client, queue = next(iter(self._queues.items()))
            is_alone = len(self._queues) == 1
            before = queue.weight
            while queue and (not group or queue[0].weight <= room):
                call = queue.popleft()
                queue.weight -= call.weight
                if is_wanted(call):
                    group.append(call)
                    room -= call.weight
                if not is_alone:
                    break
            self.weight -= before - queue.weight
            if queue and queue.weight == before:  # no room
                break
            if not queue or not is_alone:
                del self._queues[client]
                if queue:
                    self._queues[client] = queue
        return group

    def has_less_than_its_share(self, client: Hashable, weight: int, most: int) -> bool:
        """Tell whether a client with so much more has at most its part of `most`, if all clients have as much."""
        queue = self._queues.get(client)
        if queue is None:
            return weight <= most / (len(self._queues) + 1)
        return queue.weight + weight <= most / len(self._queues)
