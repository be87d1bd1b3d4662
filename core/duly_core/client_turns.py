"""Keeps what waits in the order in which clients take turns: one client's many calls do not hold up another's single one."""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Call = TypeVar("Call")


class _Queue(deque[tuple[Call, int]]):
    """The calls of one client, each with its weight."""

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

    def append(self, client: Hashable, call: Call, weight: int) -> None:
        """Let a call wait behind its client's others."""
        queue = self._queues.get(client)
        if queue is None:
            queue = self._queues[client] = _Queue()
        queue.append((call, weight))
        queue.weight += weight
        self.weight += weight

    def next_weight(self) -> int:
        """Return the weight of the call whose turn it is."""
        return next(iter(self._queues.values()))[0][1]

    def pop(self) -> Call:
        """Return the call whose turn it is; it waits no longer."""
        client = next(iter(self._queues))
        queue = self._queues[client]
        call, weight = queue.popleft()
        queue.weight -= weight
        self.weight -= weight
        if not queue or len(self._queues) > 1:
            del self._queues[client]
            if queue:
                self._queues[client] = queue
        return call

    def has_less_than_its_share(self, client: Hashable, weight: int, most: int) -> bool:
        """Tell whether a client with so much more has at most its part of `most`, if all clients have as much."""
        queue = self._queues.get(client)
        if queue is None:
            return weight <= most / (len(self._queues) + 1)
        return queue.weight + weight <= most / len(self._queues)
