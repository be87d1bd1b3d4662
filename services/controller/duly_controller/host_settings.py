"""Keeps the live settings of this host, which the Frontend answers to its reports, and gives them to Executors."""

from duly_core.live_settings.age import SettingsAge
from duly_core.live_settings.log_level_follower import LogLevelFollower
from duly_core.rpc.requests.times import from_duration
from duly_wire.v1 import fleet_pb2


class HostSettings:
    """What operators have set, as the Frontend answered last."""

    def __init__(self, log_level: LogLevelFollower) -> None:
        """Make one; `log_level` is the Controller's own."""
        self._log_level = log_level
        self._values: dict[str, str] | None = None
        self.age = SettingsAge()

    def take(self, settings: fleet_pb2.HostSettings, asked_at: float) -> bool:
        """Go by these from now on; whether they differ from those before. They were asked for at `asked_at` (since boot)."""
        before, self._values = self._values, dict(settings.values)
        if settings.HasField("age"):
            self.age.read(asked_at, from_duration(settings.age))
        self._log_level.take(self._values)
        return self._values != before

    def to_wire(self) -> fleet_pb2.HostSettings | None:
        """Return them; None: the Frontend has not answered yet."""
        return None if self._values is None else fleet_pb2.HostSettings(values=self._values)
