"""Follows the live settings of the Frontend: its limits and its log level; keeps those of hosts for their reports."""

import asyncio
from datetime import timedelta

from duly_core.config.live_sections import (
    OF_HOSTS,
    LiveSloSettings,
    LiveStoreConsumerSettings,
    LiveTimingSettings,
)
from duly_core.live_settings import store as store_live_settings
from duly_core.live_settings.age import SettingsAge
from duly_core.live_settings.effective import EffectiveSettings
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.postgres.pool import Store
from duly_core.process.clock import seconds_since_boot
from duly_core.process.pace import USUAL, Pace
from duly_frontend.settings import FrontendSettings
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import fleet_pb2

_SOONEST = timedelta(seconds=1)


class LiveConfig:
    """`run_once` reads them, once a poll interval."""

    def __init__(
        self,
        store: Store,
        own: FrontendSettings,
        trigger: LiveStoreConsumerSettings,
        log_level: LogLevelFollower | None = None,
        timing: LiveTimingSettings | None = None,
        slo: LiveSloSettings | None = None,
        pace: Pace = USUAL,
    ) -> None:
        """Make one; `trigger` tells the poll interval that holds without operators."""
        self.wake = asyncio.Event()
        self._pace = pace
        self._store = store
        self._settings = EffectiveSettings(own)
        self._trigger = EffectiveSettings(trigger)
        self._timing = EffectiveSettings(timing or LiveTimingSettings())
        self._slo = EffectiveSettings(slo or LiveSloSettings())
        self._log_level = log_level
        self.age = SettingsAge()
        self._of_hosts: dict[str, str] | None = None

    def now(self) -> FrontendSettings:
        """Return the settings that hold now."""
        return self._settings.now

    def heartbeat_timeout(self) -> timedelta:
        """Return how long leases are now."""
        return self._timing.now.heartbeat_timeout

    def slo(self) -> LiveSloSettings:
        """Return what is promised now."""
        return self._slo.now

    def of_hosts(self) -> fleet_pb2.HostSettings | None:
        """Return what operators have set of what hosts follow; None: it was not read yet."""
        age = self.age.now()
        if self._of_hosts is None or age is None:
            return None
        return fleet_pb2.HostSettings(values=self._of_hosts, age=to_duration(age))

    async def run_once(self) -> timedelta:
        """Read them; return when to come back.

        Raises:
            StoreUnavailableError: they cannot be read; what held before holds on.
        """
        asked_at = seconds_since_boot()
        values = await store_live_settings.values(self._store)
        self.age.read(asked_at)
        if self._log_level is not None:
            self._log_level.take(values)
        self._settings.take(values)
        self._timing.take(values)
        self._slo.take(values)
        self._of_hosts = {name: values[name] for name in OF_HOSTS if name in values}
        self._trigger.take(values)
        return self._pace.rest(max(_SOONEST, self._trigger.now.poll_interval), self.wake)
