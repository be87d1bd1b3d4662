"""Runs the rounds of a Store Consumer without queues: it handles timeouts only, hosts claim what is due."""

import asyncio
from collections.abc import Callable, Collection
from datetime import timedelta

from duly_core.postgres.notifications import Notifier
from duly_core.postgres.pool import Store
from duly_core.process.pace import QUIET, USUAL, Pace
from duly_store_consumer import events
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.liveness import Liveness
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.timeouts import Timeouts

_SHARE = timedelta(seconds=5) / QUIET
"""Of a quiet store's rest: 5 s. A lease that ends sooner than that after its claim is seen up to 5 s late."""


class TimeoutLoop:
    """`run_once` is a round; `wake` cuts the pause between rounds short."""

    def __init__(
        self,
        store: Store,
        settings: StoreConsumerSettings,
        reclaim_guard: ReclaimGuard,
        notifier: Notifier,
        breaker_lambdas: Callable[[], Collection[str]] = frozenset,
        pace: Pace = USUAL,
    ) -> None:
        """Make one; `notifier` reports the tasks that are due again, `breaker_lambdas` returns the lambdas that have breakers."""
        self.wake = asyncio.Event()
        self._pace = pace
        self._live_config = LiveConfig(store, settings, pace=pace)
        self._timeouts = Timeouts(store, reclaim_guard, self._live_config, breaker_lambdas, pace)
        self._notifier = notifier
        self._liveness = Liveness()

    @property
    def live_config(self) -> LiveConfig:
        """Return what it reads of settings and lambdas."""
        return self._live_config

    def config_changed(self) -> None:
        """Begin a round at once that reads lambdas and settings again."""
        self._live_config.changed()
        self.wake.set()

    @property
    def lambdas(self) -> list[str]:
        """Return the registered lambdas, as they were last read."""
        return self._live_config.lambdas

    async def run_once(self) -> timedelta:
        """Run one round; return the pause until the next.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        with events.time_round():
            return await self._round(asyncio.get_running_loop().time())

    async def _round(self, now: float) -> timedelta:
        await self._live_config.read(now)
        found, pause = await self._timeouts.handle_due(now)
        if due := found.released | {task.queue.lambda_name for task in found.again}:
            self._notifier.due_in(timedelta(), due, len(found.again))
        if found.problem is not None:
            raise found.problem
        self._liveness.completed()
        longest = self._pace.rest(self.poll_interval, self.wake, times=_SHARE)
        return min(pause, longest, self._live_config.fresh_for(now))

    @property
    def poll_interval(self) -> timedelta:
        """Return the longest time between two looks at the store, as it is set now."""
        return self._live_config.settings.poll_interval

    def unhealthy_reason(self) -> str | None:
        """Return why health checks fail: no round was completed for long. None: all is well."""
        return self._liveness.unhealthy_reason(self._live_config.settings.poll_interval)
