"""Whether anybody watches: what a service that ends tasks remembers, so that a success need not look."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.process.clock import seconds_since_boot
from duly_core.watches.statements import WATCHES

HOLDS_FOR = timedelta(seconds=1)
"""How long after it was asked the answer "nobody" holds."""
FIRST_BEGINS_AFTER = timedelta(seconds=2)
"""So long after it was written the first watch of a store begins: then no service goes by such an answer any more. The difference
is for a process that stands still between its decision and its statement."""
_ASK_AGAIN_AFTER_S = HOLDS_FOR.total_seconds() / 2
_SELDOM_S = 0.2
"""A statement that comes so long after the last one looks by itself: each answer would spare one or two of them their look."""


class WatchPresence:
    """Asks the store while it is asked often itself: a service with little work asks nothing."""

    def __init__(self, store: Store, now: Callable[[], float] = seconds_since_boot) -> None:
        """Make one; `now` tells seconds that no clock setting moves."""
        self._store = store
        self._now = now
        self._nobody = False
        self._asked_at = float("-inf")
        """When the question was sent whose answer is known."""
        self._asking: asyncio.Task[None] | None = None
        self._decided_at = float("-inf")

    def nobody(self) -> bool:
        """Whether it is certain that nobody watches what is written now. It does not wait."""
        now = self._now()
        age, gap, self._decided_at = now - self._asked_at, now - self._decided_at, now
        if age >= _ASK_AGAIN_AFTER_S and gap < _SELDOM_S and self._asking is None:
            self._asking = asyncio.create_task(self._ask())
        return self._nobody and age < HOLDS_FOR.total_seconds()

    async def _ask(self) -> None:
        try:
            asked_at = self._now()
            ((somebody,),) = await self._store.run(WATCHES["is_watched"], {})
            self._nobody, self._asked_at = not somebody, asked_at
        except StoreUnavailableError:
            pass  # the next that is written looks by itself
        finally:
            self._asking = None
