"""Takes up what ran out: claims of silent holders, references that nobody claimed, tasks that expired."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from duly_core import failpoints
from duly_core.routing import QueueKey
from duly_core.store import polling
from duly_core.store.pool import Connection, Store
from duly_store_consumer import events
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.reclaim_limiter import ReclaimLimiter
from duly_store_consumer.settings import StoreConsumerSettings

EVERY = timedelta(milliseconds=200)
"""They are taken up no more often than this."""

BATCH = 500

NOTHING = polling.TimedOut([])


class Timeouts:
    """Every now and then under load, and whenever there is nothing else to do."""

    def __init__(self, store: Store, reclaim_guard: ReclaimGuard, settings: StoreConsumerSettings) -> None:
        self._store = store
        self._reclaim_guard = reclaim_guard
        self._limiter = ReclaimLimiter(settings.reclaim_rate)
        self._taken_up_at = float("-inf")

    def apply(self, settings: StoreConsumerSettings) -> None:
        """Go by these settings from now on."""
        self._limiter.set_rate(settings.reclaim_rate)

    async def handle_due(
        self,
        now: float,
        settings: StoreConsumerSettings,
        room: Callable[[], Awaitable[Mapping[QueueKey, int]]] | None = None,
    ) -> tuple[polling.TimedOut, timedelta]:
        """Take up what ran out.

        Args:
            now: the loop's time.
            settings: those that hold now.
            room: asks for the room of the queues beside the store; None: there are none.

        Returns what was found, and how long until there may be more.

        Raises:
            StoreUnavailableError: part of it was done, or nothing.
        """
        if now - self._taken_up_at < EVERY.total_seconds():
            return NOTHING, EVERY
        self._taken_up_at = now
        async with self._store.connection() as connection:
            await self._reclaim_guard.left(connection)
        ahead = await polling.next_timeout(self._store)
        if ahead is None:
            return NOTHING, settings.poll_interval
        if ahead > timedelta():
            return NOTHING, ahead
        free = await room() if room else None
        async with failpoints.around("store_consumer.reclaim"):
            found = await polling.handle_timeouts(
                self._store, free, settings.enqueue_timeout, BATCH, self._reclaim_allowance
            )
            self._limiter.revoked(found.revoked)
        if found.again or found.ended:
            events.silence(found)
        return found, EVERY

    async def _reclaim_allowance(self, connection: Connection) -> polling.ReclaimAllowance:
        """Which claims whose holder fell silent may be voided now: none in a failover grace period, and never a herd."""
        if await self._reclaim_guard.left(connection):
            return polling.ReclaimAllowance(0, self._reclaim_guard.looked_at)
        return polling.ReclaimAllowance(min(BATCH, self._limiter.allowance()), self._reclaim_guard.looked_at)
