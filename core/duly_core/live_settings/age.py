"""How old a process's copy of the live settings is: operators ask whether everybody has their change."""

from collections.abc import Callable
from datetime import timedelta

from duly_core.process.clock import seconds_since_boot


class SettingsAge:
    """Told when the settings were read, on a clock that nobody sets."""

    def __init__(self, now: Callable[[], float] = seconds_since_boot) -> None:
        self._now = now
        self._read_at: float | None = None

    def read(self, asked_at: float, age: timedelta = timedelta()) -> None:
        """Note a copy that was `age` old when it was asked for, at `asked_at`."""
        self._read_at = asked_at - age.total_seconds()

    def now(self) -> timedelta | None:
        """Return how old the copy is; None: there is none."""
        return None if self._read_at is None else timedelta(seconds=self._now() - self._read_at)
