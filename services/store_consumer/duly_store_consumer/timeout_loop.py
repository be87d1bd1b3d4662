"""The Store Consumer where no queue is beside the store: hosts claim what is due, timeouts are left to do."""

import asyncio
from datetime import timedelta

from duly_core.store.notifications import Notifier
from duly_core.store.pool import Store
from duly_store_consumer import events
from duly_store_consumer.live_config import LiveConfig
from duly_store_consumer.liveness import Liveness
from duly_store_consumer.reclaim_guard import ReclaimGuard
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.timeouts import Timeouts


class TimeoutLoop:
    """`run_once` is a round; `wake` cuts the pause between rounds short."""

    def __init__(
        self, store: Store, settings: StoreConsumerSettings, reclaim_guard: ReclaimGuard, notifier: Notifier
    ) -> None:
        """Make one; `notifier` is told of the tasks that are due again."""
        self.wake = asyncio.Event()
        self._live_config = LiveConfig(store, settings)
        self._timeouts = Timeouts(store, reclaim_guard, settings)
        self._notifier = notifier
        self._liveness = Liveness()

    def config_changed(self) -> None:
        """Lambdas were registered, or settings changed: go by them from the next round on, which is now."""
        self._live_config.changed()
        self.wake.set()

    async def run_once(self) -> timedelta:
        """One round; returns how long nothing needs to be done.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        now = asyncio.get_running_loop().time()
        if await self._live_config.read(now):
            self._timeouts.apply(self._live_config.settings)
        settings = self._live_config.settings
        found, pause = await self._timeouts.handle_due(now, settings)
        if found.again:
            self._notifier.due_in(
                timedelta(), {task.queue.lambda_name for task in found.again}, len(found.again)
            )
        self._liveness.completed()
        events.round_completed()
        return min(pause, settings.poll_interval, self._live_config.fresh_for(now))

    def unhealthy_reason(self) -> str | None:
        """Why this one does no good, though it runs: it has not completed a round for long. None: it does."""
        return self._liveness.unhealthy_reason(self._live_config.settings.poll_interval)
