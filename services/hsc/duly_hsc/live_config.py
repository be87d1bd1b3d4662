"""Follows the live settings by which hosts are given work: the HSC's own, those of triggering, and those of leases."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

from duly_core.config.live_sections import LiveHscSettings, LiveStoreConsumerSettings, LiveTimingSettings
from duly_core.live_settings import store as store_live_settings
from duly_core.live_settings.age import SettingsAge
from duly_core.live_settings.effective import EffectiveSettings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.live_settings.store import SETTINGS_KNOWN_FOR
from duly_core.postgres.pool import Store
from duly_core.process.clock import seconds_since_boot
from duly_core.process.pace import USUAL, Pace
from duly_hsc.lease_timeouts import LeaseTimeouts


class LiveConfig:
    """`run_once` reads them, once a poll interval or when `wake` is set."""

    def __init__(
        self,
        store: Store,
        own: LiveStoreConsumerSettings,
        log_level: LogLevelFollower | None = None,
        timing: LiveTimingSettings | None = None,
        now: Callable[[], float] = seconds_since_boot,
        hsc: LiveHscSettings | None = None,
        pace: Pace = USUAL,
    ) -> None:
        """Make one; `own`, `timing` and `hsc` are of this process's configuration, `now` tells seconds that no clock setting moves."""
        self._pace = pace
        self._log_level = log_level
        self._now = now
        self._own_timing = timing or LiveTimingSettings()
        self._timing = EffectiveSettings(self._own_timing)
        self._hsc = EffectiveSettings(hsc or LiveHscSettings())
        self.age = SettingsAge(now)
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

    def hsc(self) -> LiveHscSettings:
        """Return the settings of `[hsc]` that hold now."""
        return self._hsc.now

    def lease_timeouts(self) -> LeaseTimeouts:
        """Return the timeouts that hold now.

        What was not read for long may have been reset since. Store Consumers then expect no longer lease than that of the
        configuration, so none is given.
        """
        live = LeaseTimeouts.of(self._timing.now)
        age = self.age.now()
        if age is None or age < SETTINGS_KNOWN_FOR:
            return live
        own = LeaseTimeouts.of(self._own_timing)
        return LeaseTimeouts(min(live.claim, own.claim), min(live.heartbeat, own.heartbeat))

    def may_have_changed(self) -> None:
        """Read them anew."""
        self.wake.set()

    async def run_once(self) -> timedelta:
        """Read them; return when to come back.

        Raises:
            StoreUnavailableError: they cannot be read; what held before holds on.
        """
        asked_at = self._now()
        values = await store_live_settings.values(self._store)
        self.age.read(asked_at)
        self._timing.take(values)
        self._hsc.take(values)
        if self._log_level is not None:
            self._log_level.take(values)
        if self._live_settings.take(values):
            self._changed()
        return self._pace.rest(self.now().poll_interval)
