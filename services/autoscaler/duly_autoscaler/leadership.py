"""Whether this autoscaler leads: it holds the lease, and stops before it could be over."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from duly_autoscaler import events
from duly_core.errors import StoreUnavailableError
from duly_core.pools.lease import NO_FENCE, give_lease_up, take_lease
from duly_core.postgres.pool import Store
from duly_core.process.clock import seconds_since_boot

_LAST_WORD = timedelta(seconds=1)
_SAFETY = 0.2
"""Of the lease: so long before its end this autoscaler does not lead any more."""
_RENEWALS = 3
"""In a lease."""


class Term:
    """A time under one fence."""

    def __init__(self, fence: int) -> None:
        self.fence = fence
        self.ended = asyncio.Event()
        """Set when it is over: whatever is done under it stops."""


class Leadership:
    """`run_once` takes the lease or renews it, by Postgres's clock. Until when it holds is measured here, from before the call."""

    def __init__(
        self,
        store: Store,
        holder: str,
        lease: timedelta,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self.holder = holder
        self._store = store
        self._lease = lease
        self._clock = clock
        self._term: Term | None = None
        self._until = float("-inf")
        self._timer: asyncio.TimerHandle | None = None

    @property
    def term(self) -> Term | None:
        """The term that holds now; None: this autoscaler does not lead. After a sleep of the machine it does not, either."""
        if self._term is not None and self._clock() >= self._until:
            self.end("the lease was not renewed in time")
        return self._term

    async def run_once(self) -> timedelta:
        """Take the lease, or renew it; return when to come back.

        Raises:
            StoreUnavailableError: the store does not answer. A term goes on until its lease is nearly over.
        """
        pause = self._lease / _RENEWALS
        term = self.term
        asked = self._clock()
        fence = NO_FENCE if term is None else term.fence
        try:
            async with asyncio.timeout(pause.total_seconds()):
                taken = await take_lease(self._store, self.holder, fence, self._lease)
        except TimeoutError:
            raise StoreUnavailableError(
                f"no answer to the lease within {pause.total_seconds():g} s"
            ) from None
        if taken is None:
            self.end("another autoscaler leads")
        else:
            self._hold(taken, asked)
        return pause

    def _hold(self, fence: int, asked: float) -> None:
        if self._term is not None and self._term.fence != fence:
            self.end("the lease was over, and taken again")
        self._until = asked + self._lease.total_seconds() * (1 - _SAFETY)
        if self._term is None:
            self._term = Term(fence)
            events.leads(fence)
        if self._timer is not None:
            self._timer.cancel()
        left = max(0.0, self._until - self._clock())
        self._timer = asyncio.get_running_loop().call_later(left, lambda: self.term)

    def end(self, reason: str) -> None:
        """Lead no more; whatever is done under the term stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._term is not None:
            self._term.ended.set()
            self._term = None
            events.leads_no_more(reason)

    async def give_up(self) -> None:
        """Let another lead at once."""
        term = self._term
        self.end("this autoscaler stops")
        if term is not None:
            with suppress(StoreUnavailableError, TimeoutError):
                async with asyncio.timeout(_LAST_WORD.total_seconds()):
                    await give_lease_up(self._store, self.holder, term.fence)
