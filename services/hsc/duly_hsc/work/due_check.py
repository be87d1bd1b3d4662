"""Asks the store whether something is due, at once for all lambdas of which nobody has said so for a poll interval.

A look of each group of callers would cost a statement that is made to claim, and nearly always finds nothing: it is for
notifications that were lost. 200 sets of lambdas cost one statement an interval.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from itertools import islice

from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.tasks.polling import next_triggers
from duly_hsc import events
from duly_hsc.work.caller_groups import CallerGroup

_MOST_QUEUES = 5_000
"""Of one statement."""
_SOON_ENOUGH = 0.5
"""Of the poll interval: lambdas that were looked at longer ago are asked for, too, so that they come together from then on."""


class DueCheck:
    """`run_once` notes what it finds in the due times of the groups."""

    def __init__(
        self,
        store: Store,
        open_among: Callable[[CallerGroup], Iterable[str]],
        most_queues: int = _MOST_QUEUES,
    ) -> None:
        """Make one.

        Args:
            store: which it asks.
            open_among: tells which lambdas of a group no gate holds as a whole.
            most_queues: how many one statement asks for.
        """
        self._store = store
        self._open_among = open_among
        self._most_queues = most_queues

    async def run_once(self, groups: Iterable[CallerGroup], poll_interval: timedelta) -> None:
        """Ask for these groups; if the store does not answer, they may all have something due."""
        now = asyncio.get_running_loop().time()
        interval = poll_interval.total_seconds()
        asked = dict(self._quiet(groups, now, interval * _SOON_ENOUGH))
        for group, names in asked.items():
            group.due_times.polling(names, now, interval)
        queues = {
            QueueKey(name, priority): None
            for group, names in asked.items()
            for name in names
            for priority in group.priorities
        }
        ahead: dict[QueueKey, timedelta] = {}
        left = iter(queues)
        try:
            while part := list(islice(left, self._most_queues)):
                with events.poll_seconds.time():
                    ahead |= await next_triggers(self._store, part, poll_interval)
        except BaseException:
            for group, names in asked.items():
                group.due_times.unsure(names, now)
            raise
        for group, names in asked.items():
            of_group = {
                queue: due_in
                for name in names
                for priority in group.priorities
                if (due_in := ahead.get(queue := QueueKey(name, priority))) is not None
            }
            group.due_times.polled(of_group, now)

    def _quiet(
        self, groups: Iterable[CallerGroup], now: float, soon_enough: float
    ) -> Iterator[tuple[CallerGroup, list[str]]]:
        """Yield the lambdas of each group that nobody looked at lately."""
        for group in groups:
            if group.is_looking or not group.is_waited_in():
                continue
            names = [
                name
                for name in self._open_among(group)
                if group.due_times.looked_before(name, now - soon_enough)
                and group.due_times.is_quiet(name, now)
            ]
            if names:
                yield group, names
