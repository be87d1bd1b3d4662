"""The quiet lease: after the store's server changed or its clock stepped, nothing is taken from its holder for a while.

A failover may have lost the commits that renewed leases, and a forward step makes leases look expired: their
holders may still run. One heartbeat_timeout later each of them has renewed its claim, or is dead.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from duly_core.clock import since_boot_ns
from duly_core.store import epoch
from duly_core.store.pool import Connection
from duly_core.timing import Timing
from duly_store_consumer import events

_ZERO = timedelta()


class QuietLease:
    """Asked before claims are voided, on the very connection that would void them."""

    def __init__(self, timing: Timing, since_boot: Callable[[], int] = since_boot_ns) -> None:
        """Args: `since_boot` is this host's nanoseconds that no clock setting moves."""
        self._timeout = timing.heartbeat_timeout
        self._step = timing.clock_step
        self._since_boot = since_boot
        self._last: tuple[datetime, int] | None = None
        """The store's time at the last look, and this host's after it."""
        self._is_quiet = False
        self._server_changed = False

    def take_server_change(self) -> bool:
        """Whether a look wrote down another server since this was asked last."""
        changed, self._server_changed = self._server_changed, False
        return changed

    async def left(self, connection: Connection) -> timedelta:
        """How long the claims in this store must be left alone still; nothing: they may be voided now.

        Raises:
            StoreUnavailableError: this is no primary, or it does not answer.
        """
        asked = self._since_boot()
        seen = await epoch.look(connection)
        answered = self._since_boot()
        if seen.written:
            self._server_changed = True
            events.server_changed(seen.before, seen.server)
        left = self._left_of(seen)
        if _duration(answered - asked) > self._step / 2:
            left = max(left, self._step)  # so slow an answer tells nothing of the clock: ask again
        else:
            ahead = self._ahead(seen.at, asked)
            self._last = (seen.at, answered)
            if ahead > self._step:
                events.clock_stepped(ahead)
                await epoch.note_change(connection)
                left = self._timeout
        if bool(left) is not self._is_quiet:
            self._is_quiet = bool(left)
            events.quiet(left)
        return left

    def _left_of(self, seen: epoch.EpochLook) -> timedelta:
        if seen.changed:
            return self._timeout
        if seen.since_change is None:
            return _ZERO
        return max(_ZERO, self._timeout - max(_ZERO, seen.since_change))

    def _ahead(self, at: datetime, asked: int) -> timedelta:
        """How far the store's clock may have gone ahead of time since the last look: never less than it has."""
        if self._last is None:
            return _ZERO
        last_at, last_answered = self._last
        return (at - last_at) - _duration(asked - last_answered)


def _duration(nanoseconds: int) -> timedelta:
    return timedelta(microseconds=nanoseconds // 1000)
