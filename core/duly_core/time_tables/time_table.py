"""The shapes of a time table: when it fires, what, and how it treats ticks that it missed or that overlap."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.tasks.task import Encoding, Needs, Session
from duly_wire.enums import CatchUp, Overlap, Priority
from duly_wire.ids import TaskId

MOST_TICKS = 10_000
"""Tasks of one catch-up, and of one backfill."""

TICK_KEYS = "time-table:"
"""With this the idempotency keys of ticks begin. No client's key may: it would take a tick's place."""

ON_TIME = timedelta(minutes=1)
"""A tick that passed longer ago was missed, and the catch-up policy decides about it."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """When a time table has ticks: by a cron expression in a zone, or every so often."""

    cron: str | None = None
    every: timedelta | None = None
    offset: timedelta = timedelta()
    zone: str = "UTC"


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


class Tick(NamedTuple):
    """A task to be of a time table."""

    task_id: TaskId
    table: str
    tick_at: datetime
    """The instant that the rhythm names: the task's scheduled_at."""
    due_at: datetime
    """When it was to fire: lateness counts from here."""

    @property
    def key(self) -> str:
        """The idempotency key that lets each tick have one task."""
        return f"{TICK_KEYS}{self.table}:{self.tick_at.isoformat()}"
