"""One round of the Store Consumer: enqueue what is due, push it, take up silences, find the next instant.

Update, then push: pushed first, a fast Controller could claim before the row says `enqueued`, be refused,
and delete the only message. What is due goes first: nobody waits to the millisecond for the rest.
"""

import asyncio
from collections import Counter as Count
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from math import ceil

from duly_core.errors import QueueUnavailableError
from duly_core.queues.port import QueueSender
from duly_core.routing import QueueKey
from duly_core.store import polling
from duly_core.store.pool import Store
from duly_core.store.rate_detector import STREAM, STREAM_GAP
from duly_core.timing import Timing
from duly_store_consumer import events
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.liveness import Liveness
from duly_store_consumer.queue_depth import DepthLimits
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.reference_sender import ReferenceSender
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.timeouts import BATCH, EVERY, Timeouts

_FULL_QUEUE_PAUSE = timedelta(milliseconds=20)
_MOST_A_STATEMENT = 10_000


def _share(room: dict[QueueKey, int]) -> dict[QueueKey, int]:
    """As much room as one statement should fill, best priorities first, each queue with its part."""
    total = sum(room.values())
    ordered = sorted(room.items(), key=lambda entry: entry[0].priority)
    if total <= _MOST_A_STATEMENT:
        return dict(ordered)
    return {key: max(1, free * _MOST_A_STATEMENT // total) for key, free in ordered}


def _ticks(seconds: float) -> timedelta:
    """In whole milliseconds, as the loop's timers are, which round: one that ends early finds nothing, and must wait
    for the gap.
    """
    return timedelta(milliseconds=max(0, ceil(seconds * 1_000)))


class Consumer:
    """`run_once` is the whole service; `wake` cuts the pause between rounds short."""

    def __init__(
        self,
        store: Store,
        sender: QueueSender,
        settings: StoreConsumerSettings,
        reclaim_guard: ReclaimGuard | None = None,
    ) -> None:
        """Make one.

        Args:
            store: where the tasks are.
            sender: to their queues.
            settings: of [store_consumer], as far as no operator says otherwise.
            reclaim_guard: says when claims must be left alone; None: one by the settings of [timing].
        """
        self.wake = asyncio.Event()
        self._store = store
        self._live_config = LiveConfig(store, settings)
        self._timeouts = Timeouts(store, reclaim_guard or ReclaimGuard(Timing.load()), settings)
        self._bounds = DepthLimits(
            settings.depth_horizon, settings.min_depth, settings.max_depth, sender.depth_age
        )
        self._reference_sender = ReferenceSender(store, sender, self._bounds)
        self._polled_at = float("-inf")
        self._sent = 0
        """References, in the last round."""
        self._streams = False
        self._sleeps_until = float("inf")
        self._expects = True
        """Something is due, as far as was told; else a round looks before it locks rows."""
        self._due_at = float("inf")
        """When something will be, as far as the last round saw."""
        self._liveness = Liveness()

    @property
    def _settings(self) -> StoreConsumerSettings:
        return self._live_config.settings

    @property
    def _queues(self) -> list[QueueKey]:
        return self._live_config.queues

    def config_changed(self) -> None:
        """Lambdas were registered, or settings changed: go by them from the next round on, which is now."""
        self._live_config.changed()
        self._something_is_due()

    def serves(self, _lambdas: Collection[str]) -> bool:
        """Tell whether a notification is served here: always, one Store Consumer is enough."""
        return True

    def note_due(self, ahead: timedelta, _lambdas: Collection[str] = ()) -> None:
        """Take note that something is due so far ahead."""
        loop = asyncio.get_running_loop()
        if not self._settings.exact or loop.time() + ahead.total_seconds() >= self._sleeps_until:
            return
        if ahead > timedelta():
            self._sleeps_until = loop.time() + ahead.total_seconds()
            loop.call_later(ahead.total_seconds(), self._something_is_due)
        else:
            self._something_is_due()

    def _something_is_due(self) -> None:
        self._expects = True
        self.wake.set()

    async def run_once(self) -> timedelta:
        """One round; answers how long nothing needs to be done.

        Raises:
            StoreUnavailableError, QueueUnavailableError: the round was not completed.
        """
        now = await self._keep_the_gap()
        expects = self._expects or now >= self._due_at or not self._settings.exact
        self._expects = False  # a notification that comes from here on is of the next round
        self._sleeps_until = float("inf")
        try:
            pause = await self._round(now, expects=expects)
        except BaseException:
            self._expects = True
            raise
        if not self._settings.exact:
            pause = self._settings.poll_interval
        self._sleeps_until = asyncio.get_running_loop().time() + pause.total_seconds()
        self._liveness.completed()
        events.round_completed()
        return pause

    async def _round(self, now: float, *, expects: bool) -> timedelta:
        if await self._live_config.read(now):
            self._apply_settings()
        problems: list[Exception] = []
        self._sent = 0
        sent: Count[QueueKey] = Count()
        ahead: dict[QueueKey, timedelta] | None = None
        asked_at = now
        room: dict[QueueKey, int] | None = None
        # none of the parts may hold up the others: what is due needs a queue, ending a silent task needs none
        try:
            if not expects:
                ahead, asked_at = await self._ask(self._queues)
            if ahead is None or any(due_in <= timedelta() for due_in in ahead.values()):
                await self._reference_sender.look(self._bounds.unsure(self._queues, now), now)
                room = _share(self._bounds.room(self._queues, self._settings.batch, now))
                ahead = None
                sent = await self._reference_sender.send_due(
                    room, now, self._settings.enqueue_timeout, self._settings.put_back_delay
                )
                self._sent = sent.total()
        except Exception as error:  # noqa: BLE001 (raised below)
            problems.append(error)
        silence_in = EVERY
        try:
            found, silence_in = await self._timeouts.handle_due(
                now, self._settings, lambda: self._room_for_lost(now, sent)
            )
            if found.again:
                await self._reference_sender.push(found.again, "again", now, self._settings.put_back_delay)
        except Exception as error:  # noqa: BLE001 (raised below)
            problems.append(error)
        try:
            await self._reference_sender.look(self._bounds.stale(self._queues, now), now)
        except QueueUnavailableError as error:
            problems.append(error)
        if problems:
            raise problems[0]
        if ahead is None:
            ahead, asked_at = await self._ask(self._queues)
        self._due_at = asked_at + self._next_due(ahead, room).total_seconds()
        next_due = _ticks(self._due_at - asyncio.get_running_loop().time())
        return min(next_due, silence_in, self._settings.poll_interval, self._live_config.fresh_for(now))

    async def _ask(self, queues: list[QueueKey]) -> tuple[dict[QueueKey, timedelta], float]:
        """How long until these have something due, and since when."""
        ahead = await polling.next_triggers(self._store, queues)
        return ahead, asyncio.get_running_loop().time()

    def unhealthy_reason(self) -> str | None:
        """Why this one does no good, though it runs: it has not completed a round for long. None: it does."""
        return self._liveness.unhealthy_reason(self._settings.poll_interval)

    async def _keep_the_gap(self) -> float:
        loop = asyncio.get_running_loop()
        gap = self._settings.batching_gap
        if self._streams:
            gap = max(gap, STREAM_GAP)
        early = self._polled_at + gap.total_seconds() - loop.time()
        if early > 0:
            await asyncio.sleep(early)
            self.wake.clear()  # what woke us is found by the poll that comes now
        now = loop.time()
        self._streams = self._sent >= STREAM * (now - self._polled_at)
        self._polled_at = now
        return now

    def _apply_settings(self) -> None:
        settings = self._settings
        self._timeouts.apply(settings)
        self._bounds.apply(settings.depth_horizon, settings.min_depth, settings.max_depth)

    async def _room_for_lost(self, now: float, just_sent: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """One at least for each queue: a reference that is lost must not wait until a full queue has room.

        What this round has just sent took none of it: what is lost is older than what is due.
        """
        with suppress(QueueUnavailableError):  # the sending will say so
            await self._reference_sender.look(self._bounds.unsure(self._queues, now), now)
        free = self._bounds.room(self._queues, BATCH, now)
        return {key: max(1, min(BATCH, free.get(key, 0) + just_sent.get(key, 0))) for key in self._queues}

    def _next_due(
        self, ahead: Mapping[QueueKey, timedelta], room: Mapping[QueueKey, int] | None
    ) -> timedelta:
        """How long until a queue has something due; one without room (None: nobody looked) is looked at again soon."""
        waits = [
            max(_FULL_QUEUE_PAUSE, due_in) if room is not None and key not in room else due_in
            for key, due_in in ahead.items()
        ]
        return min(waits, default=self._settings.poll_interval)
