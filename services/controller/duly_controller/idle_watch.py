"""Ends this worker when it had no task for a while."""

from collections.abc import Callable
from datetime import timedelta

from duly_controller.events import log
from duly_controller.executor_registry import ExecutorRegistry
from duly_core.config.settings import format_duration
from duly_core.process.clock import seconds_since_boot

_LOOKS = 10
"""In the time that it may be idle."""
_LONGEST_PAUSE = timedelta(seconds=1)


class IdleWatch:
    """Looks at the slot boards of the Executors: what runs, and how many tasks were started."""

    def __init__(
        self,
        attached: ExecutorRegistry,
        limit: timedelta,
        end: Callable[[], None],
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        """Make one; `end` is called once no task ran for `limit`."""
        self._attached = attached
        self._limit = limit
        self._end = end
        self._clock = clock
        self._seen: dict[str, int | None] = {}
        self._busy_at = clock()

    async def look(self) -> timedelta:
        """Look; return when to come back. While no Executor is ready, or one cannot be read, this worker is not idle."""
        executors = self._attached.all()
        seen = {each.executor_id: each.starts() for each in executors}
        is_busy = not executors or any(each.busy_slots() != 0 for each in executors)
        if is_busy or seen != self._seen or None in seen.values():
            self._seen = seen
            self._busy_at = self._clock()
        elif self._clock() - self._busy_at >= self._limit.total_seconds():
            log.info("no task came: this worker ends", idle=format_duration(self._limit))
            self._end()
        return min(_LONGEST_PAUSE, self._limit / _LOOKS)
