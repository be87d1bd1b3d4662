"""Keeps the failover grace period: no claim is voided for a while after Postgres changed or its clock stepped.

A failover may have lost the commits that renewed leases, and a forward step makes leases look expired: their
holders may still run. After the longest lease that may be in force each of them has renewed its claim, or is dead.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from duly_core.config.timing import Timing
from duly_core.live_settings.store import ConfigSnapshot
from duly_core.postgres import server_identity
from duly_core.postgres.pool import Connection
from duly_core.process.clock import since_boot_ns
from duly_store_consumer import events
from duly_store_consumer.longest_lease import LongestLease

_ZERO = timedelta()


class ReclaimGuard:
    """Asked before claims are voided, on the very connection that would void them."""

    def __init__(self, timing: Timing, since_boot: Callable[[], int] = since_boot_ns) -> None:
        """Make one; `since_boot` returns nanoseconds on a clock of this host that nobody sets."""
        self._leases = LongestLease(timing.heartbeat_timeout, since_boot)
        self._step = timing.clock_step
        self._since_boot = since_boot
        self._last: tuple[datetime, int] | None = None
        """The store's time at the last check, and this host's after it."""
        self._is_paused = False
        self._change: datetime | None = None
        """When the store was found on another server last, or its clock stepped."""
        self._are_leases_known = True
        """Whether the settings were read since the last change: leases that were given before it may be longer than known."""
        self._changed: Callable[[], object] = lambda: None
        self.looked_at: datetime | None = None
        """The store's time at the latest check; None: there was none."""

    def take(self, found: ConfigSnapshot) -> None:
        """Expect the leases that operators have set, now or lately."""
        self._leases.take(found)
        self._are_leases_known = True

    def on_change(self, changed: Callable[[], object]) -> None:
        """Call `changed` when the settings should be read again."""
        self._changed = changed

    async def left(self, connection: Connection) -> timedelta:
        """Return how long no claim in this store may be voided; zero: they may be voided now.

        Raises:
            StoreUnavailableError: the server is not a primary, or it does not answer.
        """
        asked = self._since_boot()
        seen = await server_identity.check_server(connection)
        answered = self._since_boot()
        expected = self.looked_at is None  # this process has just begun, perhaps with the server
        self.looked_at = seen.at
        change = None if seen.since_change is None else seen.at - seen.since_change
        if seen.written:
            change = seen.at
        if change != self._change and not expected:
            self._are_leases_known = False
            self._changed()
        self._change = change
        if seen.written:
            events.server_changed(seen, expected=expected)
        left = self._left_of(seen)
        slow = _duration(answered - asked) > self._step / 2
        ahead = self._ahead(seen.at, asked)
        if slow and ahead > self._step:
            left = max(left, self._step)  # the clock stepped, or the answer was slow: ask again
        else:
            # a slow answer is no good to compare later ones with
            if not slow or self._last is None or ahead < -self._step:
                self._last = (seen.at, answered)
            if ahead > self._step:
                events.clock_steps.inc()
                events.log.warning("Postgres clock stepped ahead", seconds=round(ahead.total_seconds(), 3))
                await server_identity.note_change(connection)
                left = self._leases.now()
        if bool(left) is not self._is_paused:
            self._is_paused = bool(left)
            events.failover_grace(left, expected=expected and not (seen.written and seen.failed_over))
        return left

    def _left_of(self, seen: server_identity.ServerCheck) -> timedelta:
        if seen.changed:
            return self._leases.now()
        if seen.since_change is None:
            return _ZERO
        since_change = max(_ZERO, seen.since_change)
        if left := max(_ZERO, self._leases.now() - since_change):
            return left
        return _ZERO if self._are_leases_known else self._step

    def _ahead(self, at: datetime, asked: int) -> timedelta:
        """Return the most by which the store's clock may have stepped ahead since the last check."""
        if self._last is None:
            return _ZERO
        last_at, last_answered = self._last
        return (at - last_at) - _duration(asked - last_answered)


def _duration(nanoseconds: int) -> timedelta:
    return timedelta(microseconds=nanoseconds // 1000)
