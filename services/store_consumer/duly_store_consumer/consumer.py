"""Runs the rounds of the Store Consumer: send what is due, handle timeouts, sleep until the next instant.

What is due goes first: nobody waits to the millisecond for the rest.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

from duly_core.config.timing import Timing
from duly_core.gates.cache import Gates
from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.queues.port import QueueSender
from duly_store_consumer import events
from duly_store_consumer.due_poller import DuePoller, Poll
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.liveness import Liveness
from duly_store_consumer.poll_gap import PollGap
from duly_store_consumer.queue_room import QueueRoom
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.reference_sender import ReferenceSender
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.timeouts import Timeouts
from duly_store_consumer.wake_timer import WakeTimer


class Consumer:
    """`run_once` is the whole service; `wake` cuts the pause between rounds short."""

    def __init__(
        self,
        store: Store,
        sender: QueueSender,
        settings: StoreConsumerSettings,
        reclaim_guard: ReclaimGuard | None = None,
        gates: Gates | None = None,
        breaker_lambdas: Callable[[], Collection[str]] = frozenset,
    ) -> None:
        """Make one.

        Args:
            store: where.
            sender: sends references to queues.
            settings: of this service.
            reclaim_guard: None: one by the settings of [timing].
            gates: what may not be enqueued; None: there are none.
            breaker_lambdas: returns the lambdas that have breakers.
        """
        self._live_config = LiveConfig(store, settings, gates)
        self._queue_room = QueueRoom(sender, self._live_config)
        self._wake_timer = WakeTimer()
        self._sender = ReferenceSender(store, sender, self._queue_room.limits, self._wake_timer.wake_now)
        self._due_poller = DuePoller(store, self._live_config, self._queue_room, self._sender)
        guard = reclaim_guard or ReclaimGuard(Timing.load())
        self._timeouts = Timeouts(store, guard, self._live_config, breaker_lambdas)
        self._poll_gap = PollGap()
        self._liveness = Liveness()
        self.wake = self._wake_timer.wake

    @property
    def live_config(self) -> LiveConfig:
        """Return what it reads of settings and lambdas."""
        return self._live_config

    def config_changed(self) -> None:
        """Begin a round at once that reads lambdas and settings anew."""
        self._live_config.changed()
        self._wake_timer.wake_now()

    @property
    def lambdas(self) -> list[str]:
        """Return the registered lambdas, as they were last read."""
        return self._live_config.lambdas

    def serves(self, _lambdas: Collection[str]) -> bool:
        """Tell whether a notification is served here: always, one Store Consumer is enough."""
        return True

    def note_due(self, ahead: timedelta, _lambdas: Collection[str] = ()) -> None:
        """Note that something is due so far ahead; without exactness the poll interval alone decides."""
        if self._live_config.settings.exact:
            self._wake_timer.note_due(ahead)

    @property
    def poll_interval(self) -> timedelta:
        """Return the longest time between two looks at the store, as it is set now."""
        return self._live_config.settings.poll_interval

    def unhealthy_reason(self) -> str | None:
        """Return why health checks fail: no round was completed for long. None: all is well."""
        return self._liveness.unhealthy_reason(self._live_config.settings.poll_interval)

    async def run_once(self) -> timedelta:
        """Run one round; return the pause until the next.

        Raises:
            StoreUnavailableError, QueueUnavailableError: the round was not completed.
        """
        now = await self._begin_poll()
        may_be_due = self._wake_timer.begin_round(now) or not self._live_config.settings.exact
        try:
            with events.time_round():
                pause = await self._round(now, may_be_due=may_be_due)
        except BaseException:
            self._wake_timer.fail_round()
            raise
        self._liveness.completed()
        return pause

    async def _begin_poll(self) -> float:
        loop = asyncio.get_running_loop()
        early = self._poll_gap.left(loop.time(), self._live_config.settings.batching_gap)
        if early > 0:
            await asyncio.sleep(early)
            self.wake.clear()  # this poll finds what woke the loop
        now = loop.time()
        self._poll_gap.begin(now)
        return now

    async def _round(self, now: float, *, may_be_due: bool) -> timedelta:
        await self._live_config.read(now)
        settings = self._live_config.settings
        self._queue_room.limits.apply(settings.depth_horizon, settings.min_depth, settings.max_depth)
        poll, timeout_in = Poll(), settings.poll_interval
        errors: list[Exception] = []
        # no part may hold up the others: what is due needs a queue, ending a silent task needs none
        with _collected(errors):
            poll = await self._due_poller.poll(now, may_be_due=may_be_due)
            self._poll_gap.sent(poll.sent.total())
        with _collected(errors):
            timeout_in = await self._handle_timeouts(now, poll.sent)
        with _collected(errors):
            await self._queue_room.refresh(now)
        if errors:
            raise errors[0]
        due_at = await self._due_poller.next_due_at(poll)
        if not settings.exact:
            return self._wake_timer.pause_until(float("inf"), settings.poll_interval)
        longest = min(timeout_in, settings.poll_interval, self._live_config.fresh_for(now))
        return self._wake_timer.pause_until(due_at, longest)

    async def _handle_timeouts(self, now: float, just_sent: Mapping[QueueKey, int]) -> timedelta:
        found, timeout_in = await self._timeouts.handle_due(
            now, lambda most: self._queue_room.for_lost(now, most, just_sent)
        )
        if found.released:
            self._wake_timer.wake_now()
        await self._sender.send(found.again, "again", now, self._live_config.settings.put_back_delay)
        if found.problem is not None:
            raise found.problem
        return timeout_in


@contextmanager
def _collected(errors: list[Exception]) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 (the caller raises it)
        errors.append(error)
