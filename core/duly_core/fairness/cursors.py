"""Whose turn is next in each queue: each process goes round the keys from where its last pick ended. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from duly_core.fairness.store import FairLambdas
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.arrays import texts
from duly_wire.enums import Priority

_REMEMBERED = 20_000
"""Queues: names come from callers."""


class Turn(NamedTuple):
    """The last turn that a pick gave in a queue."""

    key: str = ""
    used: int = 0
    """Tasks that were taken in it: what is left of it comes first in the next pick."""


_FIRST = Turn()


class TurnCursors:
    """Of one process."""

    def __init__(self) -> None:
        self._turns: dict[QueueKey, Turn] = {}

    def parameters(self, fair: FairLambdas, picks: Sequence[tuple[QueueKey, int]]) -> dict[str, Any]:
        """Return what a statement needs to know of the turns of the queues of `picks`, in their order.

        Args:
            fair: the queues whose keys take turns.
            picks: from which queue, and how many tasks with those that the pick passes over.
        """
        reaches: dict[QueueKey, int] = {}
        for queue, reach in picks:
            reaches[queue] = max(reach, reaches.get(queue, 0))
        turns = [self._turns.get(queue, _FIRST) for queue, _ in picks]
        return {
            "takes_turns": [queue.lambda_name in fair for queue, _ in picks],
            "from_keys": texts([turn.key for turn in turns]),
            "from_used": [turn.used for turn in turns],
            "is_weighted": [fair.get(queue.lambda_name, False) for queue, _ in picks],
            "reaches": [reaches[queue] for queue, _ in picks],
        }

    def took(self, turns: Iterable[tuple[str, int, str, int]]) -> None:
        """Note where the turns of a pick ended: lambda and priority of a queue, the key, and how many tasks its turn had."""
        for lambda_name, priority, key, used in turns:
            queue = QueueKey(lambda_name, Priority(priority))
            self._turns.pop(queue, None)  # those that are not used any more are the oldest
            self._turns[queue] = Turn(key, used)
        while len(self._turns) > _REMEMBERED:
            del self._turns[next(iter(self._turns))]

    def last(self) -> Mapping[QueueKey, Turn]:
        """Return the last turn of each queue."""
        return self._turns
