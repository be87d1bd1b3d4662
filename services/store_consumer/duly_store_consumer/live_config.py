"""What others change and a round goes by: which queues there are, and the settings that hold now."""

from contextlib import suppress
from datetime import timedelta

from duly.enums import Priority
from duly_core import live_settings
from duly_core.effective_settings import EffectiveSettings
from duly_core.errors import StoreUnavailableError
from duly_core.routing import QueueKey
from duly_core.store import live_settings as store_live_settings
from duly_core.store.pool import Store
from duly_store_consumer import events
from duly_store_consumer.settings import StoreConsumerSettings

_EARLY = 0.02
"""Seconds by which a timer may be early: a round at the end of its interval must read, not the one after it."""

_TELL_AGAIN = 60.0
"""Seconds: a row that somebody locks holds a try up for as long as a statement may run."""


class LiveConfig:
    """Read once a poll interval, or at once when somebody told that it changed."""

    def __init__(self, store: Store, own: StoreConsumerSettings) -> None:
        self.queues: list[QueueKey] = []
        self._store = store
        self._own = own
        self._tuning = EffectiveSettings(own)
        self._lambdas: list[str] = []
        self._read_at = float("-inf")
        self._known = False
        self._tell_at = float("-inf")
        """When to say what this process has of its own: once, but for failures."""

    @property
    def settings(self) -> StoreConsumerSettings:
        """Those that hold now."""
        return self._tuning.now

    def changed(self) -> None:
        """Read anew at the next chance."""
        self._read_at = float("-inf")

    def fresh_for(self, now: float) -> timedelta:
        """How long what is known may be gone by."""
        left = self._read_at + self.settings.poll_interval.total_seconds() - now
        return timedelta(seconds=left) if left > 0 else timedelta()

    async def read(self, now: float) -> bool:
        """Read if it is time; True if the settings are others than before.

        Where it cannot be read, what was known before holds for another poll interval.

        Raises:
            StoreUnavailableError: nothing was known before.
        """
        if self.fresh_for(now).total_seconds() > _EARLY:
            return False
        self._read_at = now  # before the look: what changes while it lasts is read again
        try:
            found = await store_live_settings.config_snapshot(self._store)
        except StoreUnavailableError as error:
            if self._known:
                events.not_read(str(error))
                return False
            self.changed()
            raise
        except BaseException:
            self.changed()
            raise
        self._known = True
        if self._tell_at <= now:
            self._tell_at = now + _TELL_AGAIN
            with suppress(StoreUnavailableError):  # for people to see: nothing is decided by it
                await store_live_settings.tell_own(self._store, live_settings.own(self._own))
                self._tell_at = float("inf")
        if found.lambdas != self._lambdas:
            self._lambdas = found.lambdas
            self.queues = [QueueKey(name, priority) for name in found.lambdas for priority in Priority]
        return self._tuning.take(found.settings)
