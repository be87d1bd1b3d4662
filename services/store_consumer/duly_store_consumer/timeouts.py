"""Takes up what ran out: claims of silent holders, references that nobody claimed, tasks that expired."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from duly_core import failpoints
from duly_core.routing import QueueKey
from duly_core.store import trigger
from duly_core.store.pool import Connection, Store
from duly_store_consumer import events
from duly_store_consumer.pace import VoidingPace
from duly_store_consumer.quiet import QuietLease
from duly_store_consumer.settings import StoreConsumerSettings

EVERY = timedelta(milliseconds=200)
"""They are taken up no more often than this."""

BATCH = 500

NOTHING = trigger.Silence([])


class Timeouts:
    """Every now and then under load, and whenever there is nothing else to do."""

    def __init__(self, store: Store, quiet: QuietLease, settings: StoreConsumerSettings) -> None:
        self._store = store
        self._quiet = quiet
        self._pace = VoidingPace(settings.reclaim_rate)
        self._taken_up_at = float("-inf")

    def tune(self, settings: StoreConsumerSettings) -> None:
        """Go by these settings from now on."""
        self._pace.set_rate(settings.reclaim_rate)

    async def take_up(
        self,
        now: float,
        settings: StoreConsumerSettings,
        room: Callable[[], Awaitable[Mapping[QueueKey, int]]] | None = None,
    ) -> tuple[trigger.Silence, timedelta]:
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
            await self._quiet.left(connection)
        ahead = await trigger.next_silence(self._store)
        if ahead is None:
            return NOTHING, settings.poll_interval
        if ahead > timedelta():
            return NOTHING, ahead
        free = await room() if room else None
        if failpoints.on:
            await failpoints.hit("store_consumer.reclaim.before")
        found = await trigger.end_silence(self._store, free, settings.enqueue_timeout, BATCH, self._may_void)
        self._pace.voided(found.voided)
        if failpoints.on:
            await failpoints.hit("store_consumer.reclaim.after")
        if found.again or found.ended:
            events.silence(found)
        return found, EVERY

    async def _may_void(self, connection: Connection) -> trigger.MayVoid:
        """Which claims whose holder fell silent may be voided now: none in a quiet lease, and never a herd."""
        if await self._quiet.left(connection):
            return trigger.MayVoid(0, self._quiet.looked_at)
        return trigger.MayVoid(min(BATCH, self._pace.allowance()), self._quiet.looked_at)
