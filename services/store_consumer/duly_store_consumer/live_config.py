"""Caches the registered lambdas and live settings that a round uses."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from duly_core.errors import StoreUnavailableError
from duly_core.events.wait_nodes import is_wait_lambda
from duly_core.fairness.store import FairLambdas
from duly_core.gates.cache import FixedGates, Gates
from duly_core.gates.rules import GateSet
from duly_core.lambdas.names import QueueKey
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings import store as store_live_settings
from duly_core.live_settings.age import SettingsAge
from duly_core.live_settings.effective import EffectiveSettings
from duly_core.live_settings.store import ConfigSnapshot
from duly_core.postgres.pool import Store
from duly_core.process.clock import seconds_since_boot
from duly_core.process.pace import USUAL, Pace
from duly_store_consumer.events import log
from duly_store_consumer.settings import StoreConsumerSettings
from duly_wire.enums import Priority

_EARLY = 0.02
"""Seconds by which a timer may be early: the round at the end of an interval must read, not the one after it."""

_WRITE_AGAIN = 60.0
"""Seconds: a locked row holds up each try for as long as a statement may run."""


class LiveConfig:
    """Reads once a poll interval, and after `changed`."""

    def __init__(
        self,
        store: Store,
        own: StoreConsumerSettings,
        gates: Gates | None = None,
        pace: Pace = USUAL,
    ) -> None:
        self._pace = pace
        self.queues: list[QueueKey] = []
        self.lambdas: list[str] = []
        self._gates = gates or FixedGates()
        self._store = store
        self._own = own
        self._effective = EffectiveSettings(own)
        self._read_at = float("-inf")
        self._known = False
        self.age = SettingsAge()
        self._write_at = float("-inf")
        """When to write this process's own settings to the store: once, but for failures."""
        self._followers: list[Callable[[ConfigSnapshot], object]] = []

    @property
    def settings(self) -> StoreConsumerSettings:
        """Return the settings that hold now."""
        return self._effective.now

    @property
    def gates(self) -> GateSet:
        """Return the gates in force."""
        return self._gates.now

    @property
    def fair(self) -> FairLambdas:
        """Return the lambdas whose keys take turns."""
        return self._gates.fair

    @property
    def open_queues(self) -> list[QueueKey]:
        """Return the queues that no gate holds as a whole."""
        gates = self._gates.now
        return [queue for queue in self.queues if not gates.is_closed(queue)] if gates else self.queues

    def follow(self, take: Callable[[ConfigSnapshot], object]) -> None:
        """Call `take` with what was found, each time it is read."""
        self._followers.append(take)

    def changed(self) -> None:
        """Read again in the next round."""
        self._read_at = float("-inf")

    def fresh_for(self, now: float) -> timedelta:
        """Return how long the cache may still be used."""
        left = self._read_at + self._pace.rest(self.settings.poll_interval).total_seconds() - now
        return timedelta(seconds=left) if left > 0 else timedelta()

    async def read(self, now: float) -> None:
        """Read if it is time; if that fails, the cache is used for another poll interval.

        Raises:
            StoreUnavailableError: nothing was read before.
        """
        if self.fresh_for(now).total_seconds() > _EARLY:
            return
        self._read_at = now  # before the statement: what changes meanwhile is read again
        try:
            await self._gates.known()
            asked_at = seconds_since_boot()
            found = await store_live_settings.config_snapshot(self._store)
            self.age.read(asked_at)
        except StoreUnavailableError as error:
            if self._known:
                log.warning("lambdas and settings not read; previous ones in use", reason=str(error))
                return
            self.changed()
            raise
        except BaseException:
            self.changed()
            raise
        self._known = True
        if self._write_at <= now:
            self._write_at = now + _WRITE_AGAIN
            with suppress(StoreUnavailableError):  # people see it, nothing depends on it
                await store_live_settings.publish_own(
                    self._store, live_settings.own(self._own, self._store.settings)
                )
                self._write_at = float("inf")
        if found.lambdas != self.lambdas:
            self.lambdas = found.lambdas
            # the HSC takes nodes that wait for events from the store, whatever the queues are
            self.queues = [
                QueueKey(name, priority)
                for name in found.lambdas
                if not is_wait_lambda(name)
                for priority in Priority
            ]
        self._effective.take(found.settings)
        for take in self._followers:
            take(found)
