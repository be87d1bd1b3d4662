"""Calls of a pool's driver: one at a time, each with a deadline, and none that outlives the term of the leader."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from duly_autoscaler import events
from duly_autoscaler.drivers.port import DriverError
from duly_autoscaler.leadership import Term

_FIRST_PAUSE = timedelta(seconds=4)
_LONGEST_PAUSE = timedelta(minutes=5)
_MOST_BYTES = 1_900
"""Of a reason: the store keeps 2,048, with the driver's name."""


class DriverCalls:
    """Of one pool. A driver that failed is called again after a pause that grows."""

    def __init__(self, pool: str, timeout: timedelta) -> None:
        self._pool = pool
        self._timeout = timeout
        self._running: asyncio.Task[None] | None = None
        self._failures = 0
        self._again_at = float("-inf")
        self.failure: str | None = None
        """Why the last call failed; None: it did not."""
        self.failed_since: datetime | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, or a failed one is too recent to try again."""
        if self._running is not None and not self._running.done():
            return True
        return asyncio.get_running_loop().time() < self._again_at

    def go_on_from(self, failure: str, failed_since: datetime) -> None:
        """Take the last call of another autoscaler, which failed, for one of this: the next one comes at once."""
        self._failures = 1
        self.failure, self.failed_since = failure, failed_since

    def begin(
        self, call: Callable[[], Awaitable[None]], driver: str, term: Term, now: datetime
    ) -> asyncio.Task[None]:
        """Make a call; nobody waits for it. `now` is the store's time."""
        self._running = asyncio.get_running_loop().create_task(self._make(call, driver, term, now))
        return self._running

    async def _make(
        self, call: Callable[[], Awaitable[None]], driver: str, term: Term, now: datetime
    ) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        def took() -> timedelta:
            return timedelta(seconds=loop.time() - began)

        if term.ended.is_set():
            events.driver_called("given_up", took())
            return
        making = asyncio.ensure_future(call())
        ending = asyncio.ensure_future(term.ended.wait())
        try:
            await asyncio.wait(
                {making, ending}, timeout=self._timeout.total_seconds(), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            ending.cancel()
            if not making.done():
                making.cancel()
                await asyncio.wait({making}, timeout=1)
        if term.ended.is_set() and (not making.done() or making.cancelled()):
            events.driver_called("given_up", took())
            return
        error = None if not making.done() or making.cancelled() else making.exception()
        if making.done() and not making.cancelled() and error is None:
            events.driver_called("done", took())
            self._worked(driver)
        elif error is None:
            events.driver_called("timeout", took())
            self._failed(driver, f"no answer within {self._timeout.total_seconds():g} s", now)
        else:
            events.driver_called("failed", took())
            if not isinstance(error, DriverError):
                events.log.error("driver failed unexpectedly", pool=self._pool, driver=driver, exc_info=error)
            self._failed(driver, str(error) or type(error).__name__, now)

    def end_pause(self) -> None:
        """Let the next call come at once, if one failed."""
        self._again_at = float("-inf")

    def refuse(self, driver: str, reason: str, now: datetime) -> None:
        """Count what stands before a call, such as a driver that is not there, as a failure of it."""
        self._failed(driver, reason, now)

    def _worked(self, driver: str) -> None:
        if self._failures:
            events.driver_works_again(self._pool, driver, self._failures)
        self._failures = 0
        self.failure = self.failed_since = None

    def _failed(self, driver: str, reason: str, now: datetime) -> None:
        self._failures += 1
        pause = min(_FIRST_PAUSE * (1 << min(self._failures - 1, 10)), _LONGEST_PAUSE)
        self._again_at = asyncio.get_running_loop().time() + pause.total_seconds()
        said = _storable(reason)
        self.failure = f"{driver}: {said}"
        self.failed_since = self.failed_since or now
        events.driver_failed(self._pool, driver, self._failures, said, pause)

    async def close(self) -> None:
        """Give up what is under way."""
        if self._running is not None and not self._running.done():
            self._running.cancel()
            await asyncio.wait({self._running}, timeout=2)


def _storable(text: str) -> str:
    """Return a text that came from outside as Postgres takes it: one bad failure would have the plans of all pools refused."""
    kept = text.replace("\x00", "").encode(errors="replace")[:_MOST_BYTES]
    return kept.decode(errors="ignore")
