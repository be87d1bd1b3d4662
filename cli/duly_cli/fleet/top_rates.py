"""How fast tasks come and go, from one count of the queues to the next."""

from collections import deque
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import duly

WINDOW = timedelta(seconds=10)
"""As long as the Frontend counts for `recently_scheduled`."""

_Key = tuple[str, duly.Priority]


class Rates(NamedTuple):
    """Tasks a second; None: not known yet."""

    scheduled: float | None
    ended: float | None
    is_estimated: bool = False


class RateMeter:
    """Remembers the counts of the last ten seconds."""

    def __init__(self) -> None:
        self._pictures: deque[tuple[datetime, dict[_Key, duly.TaskCount]]] = deque()

    def note(self, queues: "Sequence[duly.LambdaQueue]") -> None:
        """Remember a count, unless it is the one before."""
        if not queues:
            return
        at = queues[0].counted_at
        if self._pictures and self._pictures[-1][0] >= at:
            return
        self._pictures.append((at, {_key(each): each.live for each in queues}))
        while len(self._pictures) > 2 and at - self._pictures[1][0] >= WINDOW:
            self._pictures.popleft()

    def of(self, queue: "duly.LambdaQueue") -> Rates:
        """Return the rates of a queue: what was scheduled, and did not stay, has ended."""
        if queue.recently_scheduled is None:
            return Rates(None, None)
        scheduled = queue.recently_scheduled.count / WINDOW.total_seconds()
        for at, live in self._pictures:
            before, seconds = live.get(_key(queue)), (queue.counted_at - at).total_seconds()
            if before is not None and seconds > 0:
                grown = (queue.live.count - before.count) / seconds
                estimated = before.estimated or queue.live.estimated or queue.recently_scheduled.estimated
                return Rates(scheduled, max(0.0, scheduled - grown), estimated)
        return Rates(scheduled, None, queue.recently_scheduled.estimated)


def _key(queue: "duly.LambdaQueue") -> _Key:
    return queue.lambda_name, queue.priority
