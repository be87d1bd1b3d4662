"""The parts of the settings' sections that operators can change while Duly runs."""

from datetime import timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from duly_core.config.settings import Duration, Section, format_duration

MOST_ITEMS = 20_000
"""Of one call: MOST_FIELDS of duly_core.rpc.requests.field_count, which this may not import."""
LONGEST_LEASE = timedelta(hours=1)
"""No timeout of a lease is longer: a lease that was written before Postgres's clock was set back ends within this time."""
INHERIT = "inherit"
LogLevel = Literal["debug", "info", "warning", "error"]
ServiceLogLevel = Literal["inherit", "debug", "info", "warning", "error"]


class LiveTelemetrySettings(Section):
    """The part of `[telemetry]` that can be changed while processes run."""

    SECTION: ClassVar[str] = "telemetry"

    log_level: LogLevel = "info"
    """The lowest level that is logged."""


class LiveFrontendSettings(Section):
    """The part of `[frontend]` that can be changed while it runs."""

    SECTION: ClassVar[str] = "frontend"

    horizon: Duration = Field(default=timedelta(days=365), ge=timedelta(minutes=1))
    """How far ahead a task may be scheduled."""
    max_tasks_per_call: int = Field(default=10_000, ge=1, le=MOST_ITEMS)
    """The most tasks in one Schedule."""
    max_waited_per_call: int = Field(default=1_000, ge=1, le=MOST_ITEMS)
    """The most task ids in one call that reads, waits, cancels or redrives."""
    max_wait: Duration = timedelta(seconds=60)
    """The longest time of one WaitTask."""
    event_retention: Duration = Field(
        default=timedelta(days=7), ge=timedelta(minutes=1), le=timedelta(days=365)
    )
    """How long an event is kept for a task that waits for it later."""
    log_level: ServiceLogLevel = "inherit"
    """The lowest level that the Frontend logs. `inherit`: that of `telemetry.log_level`."""


class LiveHscSettings(Section):
    """The part of `[hsc]` that can be changed while it runs."""

    SECTION: ClassVar[str] = "hsc"

    low_priority_share: float = Field(default=0.1, ge=0, le=0.5)
    """Without SQS: the share of starts that lower priorities get while higher ones wait."""
    retry_share: float = Field(default=0.2, ge=0, le=1_000)
    """Retries allowed for each first attempt of a lambda. Retries above it are delayed, never refused."""
    retry_floor: float = Field(default=10, gt=0, le=1_000_000)
    """Retries a second that each lambda may have in any case, at each HSC."""
    max_hold_back: Duration = Field(default=timedelta(hours=1), ge=timedelta(), le=timedelta(days=7))
    """The longest delay of a retry above its share."""
    log_level: ServiceLogLevel = "inherit"
    """The lowest level that the HSC logs. `inherit`: that of `telemetry.log_level`."""


class LiveControllerSettings(Section):
    """The part of `[controller]` that can be changed while it runs."""

    SECTION: ClassVar[str] = "controller"

    log_level: ServiceLogLevel = "inherit"
    """The lowest level that the Controller logs. `inherit`: that of `telemetry.log_level`."""


class LiveExecutorSettings(Section):
    """The part of `[executor]` that can be changed while it runs."""

    SECTION: ClassVar[str] = "executor"

    log_level: ServiceLogLevel = "inherit"
    """The lowest level that Executors log. `inherit`: that of `telemetry.log_level`. Callback processes are not affected."""


class LiveTimingSettings(Section):
    """The part of `[timing]` that can be changed while processes run: Executors follow the terms that the HSC answers."""

    SECTION: ClassVar[str] = "timing"

    heartbeat_timeout: Duration = Field(default=timedelta(seconds=60), le=LONGEST_LEASE)
    """T: how long Duly waits for the next heartbeat before it reclaims the task."""
    claim_timeout: Duration = Field(default=timedelta(seconds=60), le=LONGEST_LEASE)
    """C: how long Duly waits for the first heartbeat after a claim."""


class LiveStoreSettings(Section):
    """The part of `[store]` that can be changed while processes run."""

    SECTION: ClassVar[str] = "store"

    retention: Duration = Field(default=timedelta(days=7), ge=timedelta(minutes=1))
    """How long finished tasks are kept, with results and idempotency keys. Then they are unknown."""
    dead_letter_retention: Duration = Field(default=timedelta(days=30), ge=timedelta(minutes=1))
    """How long dead letters are kept."""


class LiveStoreConsumerSettings(Section):
    """The part of `[store_consumer]` that can be changed while it runs."""

    SECTION: ClassVar[str] = "store_consumer"

    poll_interval: Duration = Field(
        default=timedelta(seconds=2), ge=timedelta(milliseconds=10), le=timedelta(minutes=2)
    )
    """How often Duly looks for due and silent tasks, even if nothing wakes it."""
    exact: bool = True
    """Wakes at the next due time and on notifications. Off: polls at the interval only."""
    batching_gap: Duration = Field(default=timedelta(milliseconds=2), le=timedelta(seconds=10))
    """The shortest time between two polls. From 200 single tasks a second on Duly waits up to 20 ms; with 0, from 1,000 on."""
    batch: int = Field(default=2_000, ge=1, le=100_000)
    """With SQS: the most references that one poll sends to each queue."""
    enqueue_timeout: Duration = Field(
        default=timedelta(seconds=60), ge=timedelta(seconds=1), le=timedelta(days=1)
    )
    """With SQS: a reference that was not claimed after this time is sent again."""
    put_back_delay: Duration = Field(default=timedelta(seconds=5), le=timedelta(hours=1))
    """With SQS: references that could not be sent are sent again within this time."""
    reclaim_rate: float = Field(default=500, gt=0, le=1_000_000)
    """The most claims a second that one Store Consumer reclaims from silent Executors."""
    depth_horizon: Duration = Field(default=timedelta(seconds=5), le=timedelta(hours=1))
    """With SQS: each queue holds about as many references as workers claim in this time. The rest waits in the store."""
    min_depth: int = Field(default=100, ge=1, le=1_000_000)
    """With SQS: references that a queue may hold in any case, however slow its workers are."""
    max_depth: int = Field(default=20_000, ge=1, le=1_000_000)
    """With SQS: the most references in one queue, however fast its workers are. min_depth takes precedence."""
    log_level: ServiceLogLevel = "inherit"
    """The lowest level that the Store Consumer logs. `inherit`: that of `telemetry.log_level`."""


class TriggerSettings(LiveStoreConsumerSettings):
    """`[store_consumer]`: when tasks are triggered, for processes that are no Store Consumer."""

    model_config = SettingsConfigDict(extra="ignore")  # the rest of the section is the Store Consumer's own


START_WITHIN = tuple(
    timedelta(seconds=bound)
    for bound in (0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600)
)
"""For which the share of starts on time is exact: bounds of duly_core.trends.rules, which this may not import."""


def _is_counted(value: timedelta) -> timedelta:
    if value not in START_WITHIN:
        message = (
            f"must be one of {', '.join(map(format_duration, START_WITHIN))}: starts are counted by these"
        )
        raise ValueError(message)
    return value


def _is_whole_days(value: timedelta) -> timedelta:
    if value % timedelta(days=1) or not timedelta(days=1) <= value <= timedelta(days=90):
        message = "must be whole days, 1d to 90d"
        raise ValueError(message)
    return value


class LiveSloSettings(Section):
    """`[slo]`: what is promised. All of it can be changed while a Frontend runs."""

    SECTION: ClassVar[str] = "slo"

    starts_objective: float = Field(default=95, gt=0, lt=100)
    """The percentage of runs that is to begin within `start_within`, of each lambda and of all together."""
    start_within: Annotated[Duration, AfterValidator(_is_counted)] = timedelta(seconds=5)
    """A run that begins at most so long after it could is on time."""
    calls_objective: float = Field(default=99.9, gt=0, lt=100)
    """The percentage of calls that schedule which is to be accepted."""
    window: Annotated[Duration, AfterValidator(_is_whole_days)] = timedelta(days=28)
    """The time for which the objectives hold: whole days. Counts are kept 92 days."""


LIVE: tuple[type[Section], ...] = (
    LiveFrontendSettings,
    LiveHscSettings,
    LiveStoreSettings,
    LiveStoreConsumerSettings,
    LiveTimingSettings,
    LiveControllerSettings,
    LiveExecutorSettings,
    LiveTelemetrySettings,
    LiveSloSettings,
)

USED_BY = {
    "frontend": ("Frontend",),
    "hsc": ("HSC",),
    "store": ("Store Consumer",),
    "store_consumer": ("Store Consumer", "HSC"),
    "timing": ("HSC", "Store Consumer", "Frontend"),  # Executors go by the HSC's answers
    "controller": ("Controller",),
    "executor": ("Executor",),
    "slo": ("Frontend",),
    "telemetry": ("Frontend", "HSC", "Store Consumer", "Controller", "Executor"),
}
"""The processes that take a change, by section."""

REPORTED_AS = {
    "Frontend": "frontend",
    "HSC": "hsc",
    "Store Consumer": "store-consumer",
    "Controller": "host",
    "Executor": "host",
}
"""What such a process reports itself as; Controllers and Executors together as their host."""

OF_HOSTS = ("controller.log_level", "executor.log_level", "telemetry.log_level")
"""What hosts follow. They have no database: the Frontend's answer to a host's report has these."""
