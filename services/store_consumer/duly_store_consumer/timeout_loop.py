"""The Store Consumer where no queue is beside the store: hosts claim what is due, timeouts are left to do."""

import asyncio
from datetime import timedelta

from duly_core.store.hints import Hinter
from duly_core.store.pool import Store
from duly_store_consumer import events
from duly_store_consumer.around import Around
from duly_store_consumer.progress import Progress
from duly_store_consumer.quiet import QuietLease
from duly_store_consumer.settings import StoreConsumerSettings
from duly_store_consumer.timeouts import Timeouts


class TimeoutLoop:
    """`run_once` is a round; `wake` cuts the pause between rounds short."""

    def __init__(
        self, store: Store, settings: StoreConsumerSettings, quiet: QuietLease, hinter: Hinter
    ) -> None:
        """Make one; `hinter` is told of the tasks that are due again."""
        self.wake = asyncio.Event()
        self._around = Around(store, settings)
        self._timeouts = Timeouts(store, quiet, settings)
        self._hinter = hinter
        self._progress = Progress()

    def surroundings_changed(self) -> None:
        """Lambdas were registered, or settings changed: go by them from the next round on, which is now."""
        self._around.changed()
        self.wake.set()

    async def run_once(self) -> timedelta:
        """One round; returns how long nothing needs to be done.

        Raises:
            StoreUnavailableError: the round was not completed.
        """
        now = asyncio.get_running_loop().time()
        if await self._around.read(now):
            self._timeouts.tune(self._around.settings)
        settings = self._around.settings
        found, pause = await self._timeouts.take_up(now, settings)
        if found.again:
            self._hinter.due_in(
                timedelta(), {task.queue.lambda_name for task in found.again}, len(found.again)
            )
        self._progress.completed()
        events.round_completed()
        return min(pause, settings.poll_interval, self._around.fresh_for(now))

    def trouble(self) -> str | None:
        """Why this one does no good, though it runs: it has not completed a round for long. None: it does."""
        return self._progress.trouble(self._around.settings.poll_interval)
