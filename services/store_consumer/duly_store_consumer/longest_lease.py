"""The longest lease that a worker may still rely on: operators change the timeout, and a lease outlives the change."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta

from duly_core.errors import SettingsError
from duly_core.live_settings import definitions as live_settings
from duly_core.live_settings.store import SETTINGS_KNOWN_FOR, ConfigSnapshot
from duly_core.process.clock import nanoseconds

HEARTBEAT_TIMEOUT = "timing.heartbeat_timeout"


class LongestLease:
    """Remembers each timeout that was in force: a failover may lose the row of the setting, and the store does not say."""

    def __init__(self, own: timedelta, since_boot: Callable[[], int]) -> None:
        """Make one.

        Args:
            own: the timeout of this process's configuration. Where operators have set none, leases are no longer.
            since_boot: tells nanoseconds on a clock of this host that nobody sets.
        """
        self._own = own
        self._since_boot = since_boot
        self._until: dict[timedelta, int] = {}
        """By timeout, when the last lease of it has ended."""

    def take(self, found: ConfigSnapshot) -> None:
        """Expect the timeouts that operators have set, now or lately."""
        timeouts = list(_timeouts(found))
        if not timeouts and not self._until:
            return
        now = self._since_boot()
        for timeout in timeouts:
            # HSCs may give leases of it for as long as they do not read the settings anew
            self._until[timeout] = now + nanoseconds(timeout + SETTINGS_KNOWN_FOR)
        self._until = {timeout: until for timeout, until in self._until.items() if until > now}

    def now(self) -> timedelta:
        """Return the longest that may be in force."""
        if not self._until:
            return self._own
        now = self._since_boot()
        return max([self._own, *(timeout for timeout, until in self._until.items() if until > now)])


def _timeouts(found: ConfigSnapshot) -> Iterator[timedelta]:
    texts = [text for name, text in found.former if name == HEARTBEAT_TIMEOUT]
    if HEARTBEAT_TIMEOUT in found.settings:
        texts.append(found.settings[HEARTBEAT_TIMEOUT])
    for text in texts:
        with suppress(SettingsError):  # of another release; no HSC of this one goes by it
            yield live_settings.read(HEARTBEAT_TIMEOUT, text)
