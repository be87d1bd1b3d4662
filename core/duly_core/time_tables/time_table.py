"""The shapes of a time table: when it fires, what, and how it treats ticks that it missed or that overlap."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.tasks.attribute_rules import Attributes
from duly_core.tasks.task import Encoding, Needs, Session
from duly_core.time_tables.calendar import Calendar
from duly_wire.enums import CatchUp, OnClosed, Overlap, Priority
from duly_wire.ids import TaskId

MOST_TICKS = 10_000
"""Tasks of one catch-up, and of one backfill."""

TICK_KEYS = "time-table:"
"""With this the idempotency keys of ticks begin. No client's key may: it would take a tick's place."""

ON_TIME = timedelta(minutes=1)
"""A tick that passed longer ago was missed, and the catch-up policy decides about it."""


@dataclass(frozen=True, slots=True)
class ClosedRule:
    """What becomes of ticks in the closed time of a calendar."""

    calendar: str
    """Its name."""
    on_closed: OnClosed = OnClosed.SKIP
    business_hours: bool = False
    """What is outside of the calendar's hours is closed, too."""
    working_day: int = 0
    """Only ticks on this working day of their month; negative: from its end; 0: on any."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When a time table has ticks: by a cron expression in a zone, or every so often."""

    cron: str | None = None
    every: timedelta | None = None
    offset: timedelta = timedelta()
    zone: str = "UTC"
    rule: ClosedRule | None = None
    calendar: Calendar | None = field(default=None, compare=False, repr=False)
    """What the calendar of the rule says: needed to compute ticks, and no part of the definition."""


@dataclass(frozen=True, slots=True)
class TickPolicy:
    """What becomes of a tick at its time, and after it."""

    catch_up: CatchUp = CatchUp.ONE
    catch_up_window: timedelta = timedelta(days=1)
    overlap: Overlap = Overlap.ALLOW
    jitter: timedelta = timedelta()


@dataclass(frozen=True, slots=True)
class TimeTable:
    """The definition of a time table, checked."""

    name: str
    lambda_name: str
    rhythm: Rhythm
    payload: bytes = b""
    encoding: Encoding = Encoding.JSON
    priority: Priority = Priority.NORMAL
    collection: str = ""
    policy: TickPolicy = TickPolicy()
    resources: Needs = ()
    """Of each task, sorted."""
    session: Session | None = None
    """Of each task."""
    fair_key: str | None = None
    """Of each task."""
    attributes: Attributes = ()
    """Of each task."""


def nominal_of_key(key: str | None, table: str) -> datetime | None:
    """Return the tick of the rhythm itself that an idempotency key of a time table's task names; None: it is forgotten."""
    if key is None or not key.startswith(prefix := f"{TICK_KEYS}{table}:"):
        return None
    return datetime.fromisoformat(key.removeprefix(prefix))


class Tick(NamedTuple):
    """A task to be of a time table."""

    task_id: TaskId
    table: str
    tick_at: datetime
    """The instant that the rhythm names, or its calendar moved it to: the task's scheduled_at."""
    due_at: datetime
    """When it was to fire: lateness counts from here."""
    nominal_at: datetime | None = None
    """What the rhythm names, if a calendar moved it."""

    @property
    def key(self) -> str:
        """The idempotency key that lets each tick have one task."""
        # by what the rhythm names: what was moved once does not fire again when its calendar changes
        return f"{TICK_KEYS}{self.table}:{(self.nominal_at or self.tick_at).isoformat()}"
