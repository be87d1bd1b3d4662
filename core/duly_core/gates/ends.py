"""Remembers when gates on whole queues ended: how long a task waited for a host is counted from there. No I/O."""

from collections import deque
from collections.abc import Iterable
from datetime import datetime

from duly_core.gates.rules import Gate, GateScope
from duly_core.lambdas.names import QueueKey

_MOST = 100
"""The newest."""


class GateEnds:
    """Those that ended while this process looked, by the store's clock."""

    def __init__(self) -> None:
        self._ended: deque[tuple[GateScope, datetime]] = deque(maxlen=_MOST)
        self.newest: datetime | None = None
        """When the last one ended; None: none did."""

    def note(self, gone: Iterable[Gate], at: datetime) -> None:
        """Note gates that are not in force any more; `at`: when this was seen."""
        for gate in gone:
            if gate.is_on_queues:
                ended_at = min(at, gate.expires_at or at)
                self._ended.append((gate.scope, ended_at))
                self.newest = max(ended_at, self.newest or ended_at)

    def released_at(self, queue: QueueKey) -> datetime | None:
        """Return when the last gate that held a whole queue ended; None: none did that is known."""
        ends = (
            at
            for scope, at in self._ended
            if scope.priority in (None, queue.priority) and scope.covers(queue.lambda_name)
        )
        return max(ends, default=None)
