"""The timing under which no task runs twice at a time, and the check that settings keep to it.

The rule (docs/lifecycle.md, "Timing"): a process is dead by B = the send time of its last
acknowledged heartbeat + `process_deadline`, before the store may give its tasks to another,
`heartbeat_timeout` after it applied that heartbeat.
"""

from datetime import timedelta
from typing import Any, Literal

from pydantic import model_validator

from duly_core.config.live_sections import LiveTimingSettings
from duly_core.config.settings import Duration, format_duration

RATE_ERROR = 1e-3
"""rho: how wrong a host's clock rate may be; NTP slews by at most 5e-4."""


def _seconds(value: float) -> timedelta:
    return timedelta(seconds=value)


PROFILES: dict[str, dict[str, timedelta]] = {
    "production": {
        "heartbeat_period": _seconds(15),
        "heartbeat_deadline": _seconds(10),
        "process_deadline": _seconds(56),
        "heartbeat_timeout": _seconds(60),
        "claim_timeout": _seconds(60),
        "scheduling_lateness": _seconds(1),
        "kill_latency": _seconds(1),
        "clock_step": _seconds(2),
    },
    "embedded": {
        "heartbeat_period": _seconds(3),
        "heartbeat_deadline": _seconds(2),
        "process_deadline": _seconds(12),
        "heartbeat_timeout": _seconds(15),
        "claim_timeout": _seconds(15),
        "scheduling_lateness": _seconds(0.5),
        "kill_latency": _seconds(0.5),
        "clock_step": _seconds(1),
    },
}


class Timing(LiveTimingSettings):
    """`[timing]`: the HSC reads the timeouts, Executors the rest, Store Consumers both. All must have the same.

    A Store Consumer leaves claims alone for heartbeat_timeout after a change of Postgres. If its configuration has a shorter
    one than the HSC's, it would void what is still held. Nothing checks that. It knows what operators set (`duly settings`).

    `profile` fills in every duration that is not given.
    """

    profile: Literal["production", "embedded"] = "production"
    """Sets every key of this section that is not given."""
    heartbeat_period: Duration = timedelta()
    """H: the time between two heartbeats."""
    heartbeat_deadline: Duration = timedelta()
    """R: how long one heartbeat call may take, with its retries."""
    process_deadline: Duration = timedelta()
    """T_e: an Executor is dead at most this long after it sent its last acknowledged heartbeat."""
    scheduling_lateness: Duration = timedelta()
    """G: how late an Executor may react to a timer."""
    kill_latency: Duration = timedelta()
    """K: the time from SIGKILL until the last process is dead."""
    clock_step: Duration = timedelta()
    """J: the largest forward step of Postgres's clock, a failover included."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in_the_profile(cls, values: Any) -> Any:
        if isinstance(values, dict):
            return {**PROFILES.get(values.get("profile", "production"), {}), **values}
        return values

    @model_validator(mode="after")
    def _keep_to_the_inequalities(self) -> "Timing":
        for name in PROFILES["production"]:
            if getattr(self, name) <= timedelta():
                message = f"{name} must be longer than nothing"
                raise ValueError(message)
        strikes = 3 * self.heartbeat_period + self.heartbeat_deadline + self.scheduling_lateness
        if self.heartbeat_deadline > self.heartbeat_period:
            message = (
                f"heartbeat_deadline ({format_duration(self.heartbeat_deadline)}) must not exceed "
                f"heartbeat_period ({format_duration(self.heartbeat_period)})"
            )
            raise ValueError(message)
        if strikes > self.process_deadline:
            message = (
                "three strikes must fire before the deadline: 3 * heartbeat_period + heartbeat_deadline + "
                f"scheduling_lateness = {format_duration(strikes)} exceeds process_deadline "
                f"({format_duration(self.process_deadline)}); raise process_deadline or lower heartbeat_period"
            )
            raise ValueError(message)
        for name in ("heartbeat_timeout", "claim_timeout"):
            safe = self.safe_deadline(getattr(self, name))
            if self.process_deadline > safe:
                message = (
                    f"process_deadline ({format_duration(self.process_deadline)}) must be at most "
                    f"({name} - clock_step) * (1 - 2 * {RATE_ERROR}) - kill_latency = {safe.total_seconds():.3f}s, "
                    f"else a task could run twice at a time; raise {name} or lower process_deadline"
                )
                raise ValueError(message)
        return self

    def safe_deadline(self, store_timeout: timedelta) -> timedelta:
        """The longest deadline on a host that surely ends before `store_timeout` does in the store."""
        return (store_timeout - self.clock_step) * (1 - 2 * RATE_ERROR) - self.kill_latency
