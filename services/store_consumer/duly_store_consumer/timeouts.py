"""Handles timeouts: claims of silent holders, references that nobody claimed, tasks that expired."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.gates import breakers
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Connection, Store
from duly_core.process import failpoints
from duly_core.process.pace import QUIET, USUAL, Pace
from duly_core.tasks import polling
from duly_store_consumer import events
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.reclaim_limiter import ReclaimLimiter
from duly_wire.ids import TaskId

_GAP = timedelta(milliseconds=200)
"""Timeouts are handled no more often than this."""
_BATCH = 500
_NOTHING = polling.TimedOut([])


class Timeouts:
    """Looks for them now and then under load, and when there is nothing else to do."""

    def __init__(
        self,
        store: Store,
        reclaim_guard: ReclaimGuard,
        live_config: LiveConfig,
        breaker_lambdas: Callable[[], Collection[str]] = frozenset,
        pace: Pace = USUAL,
    ) -> None:
        """Make one; `breaker_lambdas` returns the lambdas that have breakers."""
        self._pace = pace
        self._store = store
        self._breaker_lambdas = breaker_lambdas
        self._reclaim_guard = reclaim_guard
        self._live_config = live_config
        live_config.follow(reclaim_guard.take)
        reclaim_guard.on_change(live_config.changed)
        self._limiter = ReclaimLimiter(live_config.settings.reclaim_rate)
        self._handled_at = float("-inf")
        self._guarded_at = float("-inf")
        self._is_nothing_claimed = False
        """By the last look at a quiet store: the guard is asked again before anything is voided."""

    async def handle_due(
        self, now: float, room: Callable[[int], Awaitable[Mapping[QueueKey, int]]] | None = None
    ) -> tuple[polling.TimedOut, timedelta]:
        """Handle the timeouts that are due; return what was found, and how long until there may be more.

        Args:
            now: the loop's time.
            room: returns the room of the queues for at most so many references each; None: there are no queues.

        Raises:
            StoreUnavailableError: part of it was done, or nothing.
        """
        settings = self._live_config.settings
        self._limiter.set_rate(settings.reclaim_rate)
        if now - self._handled_at < _GAP.total_seconds():
            return _NOTHING, _GAP
        self._handled_at = now
        if not self._is_nothing_claimed or now >= self._guarded_at + QUIET.total_seconds():
            async with self._store.connection() as connection:
                await self._reclaim_guard.left(connection)
            self._guarded_at = now
        ahead = await polling.next_timeout(self._store)
        self._is_nothing_claimed = ahead is None and self._pace.is_quiet
        if ahead is None:
            return _NOTHING, self._pace.rest(settings.poll_interval)
        if ahead > timedelta():
            return _NOTHING, ahead
        free = await room(_BATCH) if room else None
        async with failpoints.around("store_consumer.reclaim"):
            found = await polling.handle_timeouts(
                self._store, free, settings.enqueue_timeout, _BATCH, self._reclaim_allowance
            )
            self._limiter.revoked(found.revoked)
        if found.again or found.ended or found.uncompleted:
            events.timeouts_handled(found)
        if found.silent and self._breaker_lambdas():
            await self._count_silent(found.silent)
        return found, _GAP

    async def _count_silent(self, task_ids: Sequence[TaskId]) -> None:
        """Count these runs as failed for breakers; what cannot be written does not count."""
        try:
            await breakers.count_silent(self._store, task_ids)
        except StoreUnavailableError as error:
            events.log.warning("runs not counted for breakers", runs=len(task_ids), reason=str(error))

    async def _reclaim_allowance(self, connection: Connection) -> polling.ReclaimAllowance:
        """Return which claims of silent holders may be voided now: none in a failover grace period."""
        is_paused = bool(await self._reclaim_guard.left(connection))
        most = 0 if is_paused else min(_BATCH, self._limiter.allowance())
        return polling.ReclaimAllowance(most, self._reclaim_guard.looked_at)
