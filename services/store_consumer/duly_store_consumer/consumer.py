"""One round of the Store Consumer: enqueue what is due, push it, take up silences, find the next instant.

Update, then push: pushed first, a fast Controller could claim before the row says `enqueued`, be refused,
and delete the only message. What is due goes first: nobody waits to the millisecond for the rest.
"""

import asyncio
from collections import Counter as Count
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from math import ceil

from duly_core import failpoints
from duly_core.errors import QueueUnavailableError
from duly_core.queues.port import QueueSender
from duly_core.routing import QueueKey
from duly_core.store import trigger
from duly_core.store.pool import Connection, Store
from duly_core.store.stream import STREAM, STREAM_GAP
from duly_core.timing import Timing
from duly_store_consumer import events
from duly_store_consumer.around import Around
from duly_store_consumer.depth import DepthBounds
from duly_store_consumer.outlet import Outlet
from duly_store_consumer.pace import VoidingPace
from duly_store_consumer.quiet import QuietLease
from duly_store_consumer.settings import StoreConsumerSettings

_FULL_QUEUE_PAUSE = timedelta(milliseconds=20)
_SILENCE_EVERY = timedelta(milliseconds=200)
_SILENCE_BATCH = 500
_SENT_SOONER = 20_000
_MOST_A_STATEMENT = 10_000
_ROUNDS_MISSED = 2
_LONGEST_ROUND = 10.0
"""Seconds that a round may well take when Postgres is busy: longer than one statement may."""


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
        quiet: QuietLease | None = None,
        *,
        queue_is_in_store: bool = False,
        send_in_store: bool = False,
    ) -> None:
        """Make one.

        Args:
            store: where the tasks are.
            sender: to their queues.
            settings: of [store_consumer], as far as no operator says otherwise.
            quiet: says when claims must be left alone; None: one by the settings of [timing].
            queue_is_in_store: a crash of the store's server empties the queues, too.
            send_in_store: the queue is in the very database of the store: one statement enqueues and sends.
        """
        self.wake = asyncio.Event()
        self._store = store
        self._around = Around(store, settings)
        self._quiet = quiet or QuietLease(Timing.load())
        self._queue_is_in_store = queue_is_in_store
        self._pace = VoidingPace(settings.reclaim_rate)
        self._bounds = DepthBounds(
            settings.depth_horizon, settings.depth_least, settings.depth_most, sender.depth_age
        )
        self._outlet = Outlet(store, sender, self._bounds, in_store=send_in_store)
        self._polled_at = float("-inf")
        self._sent = 0
        """References, in the last round."""
        self._streams = False
        self._silence_at = float("-inf")
        self._sleeps_until = float("inf")
        self._expects = True
        """Something is due, as far as was told; else a round looks before it locks rows."""
        self._due_at = float("inf")
        """When something will be, as far as the last round saw."""
        self._completed_at: float | None = None

    @property
    def _settings(self) -> StoreConsumerSettings:
        return self._around.settings

    @property
    def _queues(self) -> list[QueueKey]:
        return self._around.queues

    def surroundings_changed(self) -> None:
        """Lambdas were registered, or settings changed: go by them from the next round on, which is now."""
        self._around.changed()
        self._something_is_due()

    def due_in(self, ahead: timedelta) -> None:
        """A hint: something is due so far ahead."""
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
        self._expects = False  # a hint that comes from here on is of the next round
        self._sleeps_until = float("inf")
        try:
            pause = await self._round(now, expects=expects)
        except BaseException:
            self._expects = True
            raise
        if not self._settings.exact:
            pause = self._settings.poll_interval
        self._sleeps_until = asyncio.get_running_loop().time() + pause.total_seconds()
        self._completed_at = asyncio.get_running_loop().time()
        events.round_completed()
        return pause

    async def _round(self, now: float, *, expects: bool) -> timedelta:
        if await self._around.read(now):
            self._retune()
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
                await self._outlet.look(self._bounds.unsure(self._queues, now), now)
                room = _share(self._bounds.room(self._queues, self._settings.batch, now))
                sent, ahead = await self._outlet.send_due(
                    room, now, self._settings.enqueue_timeout, self._settings.put_back_delay
                )
                asked_at = asyncio.get_running_loop().time()
                self._sent = sent.total()
        except Exception as error:  # noqa: BLE001 (raised below)
            problems.append(error)
        silence_in = _SILENCE_EVERY
        try:
            silence_in = await self._take_up_silences(now, sent)
        except Exception as error:  # noqa: BLE001 (raised below)
            problems.append(error)
        try:
            await self._outlet.look(self._bounds.stale(self._queues, now), now)
        except QueueUnavailableError as error:
            problems.append(error)
        if problems:
            raise problems[0]
        if ahead is None:
            ahead, asked_at = await self._ask(self._queues)
        elif room is not None and (full := [key for key in self._queues if key not in room]):
            ahead = ahead | (await self._ask(full))[0]
        self._due_at = asked_at + self._next_due(ahead, room).total_seconds()
        next_due = _ticks(self._due_at - asyncio.get_running_loop().time())
        return min(next_due, silence_in, self._settings.poll_interval, self._around.fresh_for(now))

    async def _ask(self, queues: list[QueueKey]) -> tuple[dict[QueueKey, timedelta], float]:
        """How long until these have something due, and since when."""
        ahead = await trigger.next_triggers(self._store, queues)
        return ahead, asyncio.get_running_loop().time()

    def trouble(self) -> str | None:
        """Why this one does no good, though it runs: it has not completed a round for long. None: it does."""
        now = asyncio.get_running_loop().time()
        if self._completed_at is None:
            self._completed_at = now  # asked for the first time: the first round may take as long as any
        without = now - self._completed_at
        if without <= _ROUNDS_MISSED * self._settings.poll_interval.total_seconds() + _LONGEST_ROUND:
            return None
        return f"no round was completed for {without:.1f} s"

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

    def _retune(self) -> None:
        settings = self._settings
        self._pace.set_rate(settings.reclaim_rate)
        self._bounds.tune(settings.depth_horizon, settings.depth_least, settings.depth_most)

    async def _take_up_silences(self, now: float, just_sent: Mapping[QueueKey, int]) -> timedelta:
        """Every now and then under load, and whenever there is nothing else to do; answers when the next is due."""
        if now - self._silence_at < _SILENCE_EVERY.total_seconds():
            return _SILENCE_EVERY
        self._silence_at = now
        async with self._store.connection() as connection:
            await self._quiet.left(connection)
        await self._mend_queue()
        ahead = await trigger.next_silence(self._store)
        if ahead is None:
            return self._settings.poll_interval
        if ahead > timedelta():
            return ahead
        room = await self._room_for_lost(now, just_sent)
        if failpoints.on:
            await failpoints.hit("store_consumer.reclaim.before")
        found = await trigger.end_silence(
            self._store, room, self._settings.enqueue_timeout, _SILENCE_BATCH, self._may_void
        )
        self._pace.voided(found.voided)
        if failpoints.on:
            await failpoints.hit("store_consumer.reclaim.after")
        if found.again:
            await self._outlet.push(found.again, "again", now, self._settings.put_back_delay)
        if found.again or found.ended:
            events.silence(found)
        return _SILENCE_EVERY

    async def _room_for_lost(self, now: float, just_sent: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """One at least for each queue: a reference that is lost must not wait until a full queue has room.

        What this round has just sent took none of it: what is lost is older than what is due.
        """
        with suppress(QueueUnavailableError):  # the sending will say so
            await self._outlet.look(self._bounds.unsure(self._queues, now), now)
        free = self._bounds.room(self._queues, _SILENCE_BATCH, now)
        return {
            key: max(1, min(_SILENCE_BATCH, free.get(key, 0) + just_sent.get(key, 0))) for key in self._queues
        }

    async def _mend_queue(self) -> None:
        """What a crash of the store took out of the queue in it is soon looked at again, all of it."""
        if self._queue_is_in_store and self._quiet.queue_may_be_lost:
            sooner = full = _SENT_SOONER
            while sooner == full:
                sooner = await trigger.enqueue_sooner(self._store, self._settings.put_back_delay, full)
                events.sent_sooner(sooner)
        self._quiet.queue_may_be_lost = False

    async def _may_void(self, connection: Connection) -> trigger.MayVoid:
        """Which claims whose holder fell silent may be voided now: none in a quiet lease, and never a herd."""
        if await self._quiet.left(connection):
            return trigger.MayVoid(0, self._quiet.looked_at)
        return trigger.MayVoid(min(_SILENCE_BATCH, self._pace.allowance()), self._quiet.looked_at)

    def _next_due(
        self, ahead: Mapping[QueueKey, timedelta], room: Mapping[QueueKey, int] | None
    ) -> timedelta:
        """How long until a queue has something due; one without room (None: nobody looked) is looked at again soon."""
        waits = [
            max(_FULL_QUEUE_PAUSE, due_in) if room is not None and key not in room else due_in
            for key, due_in in ahead.items()
        ]
        return min(waits, default=self._settings.poll_interval)
