"""Runs the rounds of the time tables: fires the ticks that are due, and sleeps until the next."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta
from math import ceil

from duly_core.postgres.pool import Store
from duly_core.process import failpoints
from duly_core.time_tables import ticks
from duly_store_consumer import events
from duly_wire.ids import new_task_id

_ENDS = timedelta(seconds=1)
"""How often a tick that waits for the end of a task looks whether it has ended."""
_HELD = timedelta(milliseconds=100)
"""Until what another Store Consumer works on is looked at again: it may have died."""


class TimeTableLoop:
    """`run_once` is a round; `wake` cuts the pause between rounds short."""

    def __init__(
        self,
        store: Store,
        longest_pause: Callable[[], timedelta],
        notify_due: Callable[[Collection[str], int], object],
    ) -> None:
        """Make one.

        Args:
            store: where the time tables are.
            longest_pause: after which it looks without being told to: a safety net.
            notify_due: told the lambdas of the tasks that were written, and how many there are.
        """
        self.wake = asyncio.Event()
        self._store = store
        self._longest_pause = longest_pause
        self._notify_due = notify_due

    async def run_once(self) -> timedelta:
        """Fire what is due; return the pause until the next round.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        ahead, buffered = await ticks.next_fire_in(self._store)
        if (ahead is not None and ahead <= timedelta()) or buffered:
            async with failpoints.around("store_consumer.tick"):
                fired = await ticks.fire_due(self._store, _new_task_id)
            events.ticked(fired)
            if fired.tasks:
                self._notify_due(fired.lambdas, fired.tasks)
            if fired.tables or fired.left:
                return timedelta()
            if ahead is not None and ahead <= timedelta():
                return _HELD
        pauses = [self._longest_pause()]
        if buffered:
            pauses.append(_ENDS)
        if ahead is not None:
            # whole milliseconds, as the loop's timers round: a round that comes early finds nothing
            pauses.append(timedelta(milliseconds=max(0, ceil(ahead / timedelta(milliseconds=1)))))
        return min(pauses)


def _new_task_id() -> bytes:
    return new_task_id().bytes
