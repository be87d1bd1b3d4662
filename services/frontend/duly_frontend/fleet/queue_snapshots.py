"""Keeps the last count of all queues for a moment, so that many who watch cost no more than one."""

import asyncio
from datetime import timedelta

import structlog

from duly_core.counting.queues import Snapshot, count_queues
from duly_core.errors import DulyError, StoreUnavailableError
from duly_core.postgres.pool import Store

log = structlog.get_logger()

_FRESH = timedelta(seconds=1)
_SHARE = 10
"""A count is kept for so many times as long as it took: whoever watches takes a tenth of a connection at most."""
_LONGEST_FRESH = timedelta(seconds=30)
_STOPS = "this server stops"


class QueueSnapshots:
    """One count is under way at a time; whoever asks meanwhile gets its result."""

    def __init__(self) -> None:
        self._counting: asyncio.Task[Snapshot] | None = None
        self._last: Snapshot | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._is_closed = False

    async def get(self, store: Store) -> Snapshot:
        """Return a count that is about a second old, older if counting takes long.

        Raises:
            StoreUnavailableError: the store does not answer, or this process stops.
        """
        if self._is_closed:
            raise StoreUnavailableError(_STOPS)
        if self._last is not None:
            return self._last
        if self._counting is None:
            self._counting = asyncio.create_task(self._count(store))
            self._counting.add_done_callback(self._counted)
        # a count that takes longer than a caller's deadline must not begin anew with the next caller
        counting = self._counting
        try:
            return await asyncio.shield(counting)
        except asyncio.CancelledError:
            # gRPC would tell a call that nobody cancelled nothing, until the server has stopped
            asks = asyncio.current_task()
            if counting.cancelled() and asks is not None and not asks.cancelling():
                raise StoreUnavailableError(_STOPS) from None
            raise

    async def _count(self, store: Store) -> Snapshot:
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._last = found = await count_queues(store)
        took = loop.time() - began
        fresh = min(max(_FRESH.total_seconds(), took * _SHARE), _LONGEST_FRESH.total_seconds())
        self._expiry = loop.call_later(fresh, self._forget)
        return found

    def _counted(self, counting: asyncio.Task[Snapshot]) -> None:
        self._counting = None
        if counting.cancelled():
            return
        error = counting.exception()
        if error is not None and not isinstance(error, DulyError):
            log.error("count of queues failed", exc_info=error)  # all who wanted to know may have left

    def _forget(self) -> None:
        self._last = None

    def close(self) -> None:
        """Forget the last count, and stop the one that is under way: who waits for it is told that this process stops."""
        self._is_closed = True
        if self._counting is not None:
            self._counting.cancel()
        if self._expiry is not None:
            self._expiry.cancel()
        self._forget()
