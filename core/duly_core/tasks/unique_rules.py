"""Decide what becomes of tasks with unique keys. No I/O."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.tasks.lifecycle import HELD, Status
from duly_core.tasks.task import NewTask, Scheduled, Scheduling, TaskChange, Unique
from duly_wire.enums import HeldWhile, OnConflict
from duly_wire.ids import TaskId

NOT_PENDING_ON = ("completion:", "event:")
"""What a task waits for that has run: it counts as running."""


class Holder(NamedTuple):
    """The task that has a key, as it stood at a look."""

    task_id: TaskId
    taken_at: datetime
    """When it was scheduled, or redriven."""
    held_for: timedelta
    """Since then."""
    status: Status | None
    """None: it has ended, or is about to end without a run."""
    parked_on: str | None = None
    is_due: bool = False
    """Its time has come: it keeps its place among those that are due, unless a later time is said."""

    @property
    def is_pending(self) -> bool:
        """Whether nobody runs it, and it is to run."""
        if self.status is Status.WAITING:
            return not (self.parked_on or "").startswith(NOT_PENDING_ON)
        return self.status is not None and self.status not in HELD


class Look(NamedTuple):
    """What there is already of a task that is to be written, and of its key."""

    is_there: bool
    """Its id, or its idempotency key, has a task."""
    merged_into: TaskId | None
    """The task that got its payload before."""
    holder: Holder | None


class Verdict(enum.Enum):
    """What becomes of a task."""

    CREATE = "create"
    IGNORE = "ignore"
    REJECT = "reject"
    REPLACE = "replace"
    NOT_REPLACE = "not replace"


def decide(unique: Unique, holder: Holder | None) -> Verdict:
    """Decide about a task whose key this holder has; None: nobody has it."""
    if holder is None or not _is_taken(unique, holder):
        return Verdict.CREATE
    if unique.on_conflict is OnConflict.IGNORE:
        return Verdict.IGNORE
    if unique.on_conflict is OnConflict.REJECT:
        return Verdict.REJECT
    return Verdict.REPLACE if holder.is_pending else Verdict.NOT_REPLACE


def _is_taken(unique: Unique, holder: Holder) -> bool:
    if holder.is_pending or holder.held_for < unique.period:
        return True
    return unique.held_while is HeldWhile.LIVE and holder.status is not None


@dataclass(slots=True)
class Plan:
    """What to do about tasks, by their places; those that are in none of these wait for what is done to others."""

    answers: dict[int, Scheduled] = field(default_factory=dict)
    there: list[int] = field(default_factory=list)
    """Their id or idempotency key has a task."""
    create: list[int] = field(default_factory=list)
    """At most one of each key."""
    replace: list[tuple[int, Holder]] = field(default_factory=list)
    """Of one holder the last one counts."""


_ANSWERS = {
    Verdict.IGNORE: Scheduling.IGNORED,
    Verdict.REJECT: Scheduling.REJECTED,
    Verdict.NOT_REPLACE: Scheduling.NOT_REPLACED,
}


def plan(tasks: Sequence[tuple[int, NewTask, Look]]) -> Plan:
    """Decide about tasks, in their order, as if one came after the other.

    What follows a task that is to be created, of the same key, waits for that.
    """
    made = Plan()
    changing: set[tuple[str, str]] = set()
    for place, task, look in tasks:
        unique = task.unique
        if unique is None:
            continue
        if look.is_there:
            made.there.append(place)
            continue
        if look.merged_into is not None:
            made.answers[place] = Scheduled(Scheduling.REPLACED, look.merged_into)
            continue
        key = task.lambda_name, unique.key
        if key in changing:
            continue
        verdict = decide(unique, look.holder)
        if verdict is Verdict.CREATE:
            made.create.append(place)
            changing.add(key)
        elif look.holder is None:
            continue
        elif verdict is Verdict.REPLACE:
            made.replace.append((place, look.holder))
        else:
            made.answers[place] = Scheduled(_ANSWERS[verdict], look.holder.task_id)
    return made


def created(task: NewTask) -> NewTask:
    """Return a task as it is written if nobody has its key."""
    if task.unique is None or task.unique.debounce is None:
        return task
    return task._replace(delay=task.unique.debounce.wait)


def change(task: NewTask, holder: Holder) -> TaskChange:
    """Return what the task that has the key gets of another."""
    scheduled_at, delay = task.scheduled_at, task.delay
    if task.unique is not None and (debounce := task.unique.debounce) is not None:
        if holder.held_for < debounce.at_most or not holder.is_due:
            scheduled_at = holder.taken_at + min(holder.held_for + debounce.wait, debounce.at_most)
    elif delay is None and scheduled_at is None and not holder.is_due:
        delay = timedelta()
    return TaskChange(holder.task_id, task.payload, task.encoding, task.priority, scheduled_at, delay)
