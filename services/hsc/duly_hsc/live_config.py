"""Follows the live settings by which hosts are given work: those of the Store Consumer's triggering."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from duly_core.effective_settings import EffectiveSettings
from duly_core.live_sections import LiveStoreConsumerSettings
from duly_core.log_levels import LogLevelFollower
from duly_core.store import live_settings as store_live_settings
from duly_core.store.pool import Store


class LiveConfig:
    """`run_once` reads them, once a poll interval or when `wake` is set."""

    def __init__(
        self, store: Store, own: LiveStoreConsumerSettings, log_level: LogLevelFollower | None = None
    ) -> None:
        self._log_level = log_level
        self.wake = asyncio.Event()
        self._store = store
        self._live_settings = EffectiveSettings(own)
        self._changed: Callable[[], None] = lambda: None

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` when other settings hold than before."""
        self._changed = changed

    def now(self) -> LiveStoreConsumerSettings:
        """Return the settings that hold now."""
        return self._live_settings.now

    def may_have_changed(self) -> None:
        """Read them anew."""
        self.wake.set()

    async def run_once(self) -> timedelta:
        """Read them; return when to come back.

        Raises:
            StoreUnavailableError: they cannot be read; what held before holds on.
        """
        values = await store_live_settings.values(self._store)
        if self._log_level is not None:
            self._log_level.take(values)
        if self._live_settings.take(values):
            self._changed()
        return self.now().poll_interval
