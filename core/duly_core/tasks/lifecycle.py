"""The statuses of a task, and the sets of them that the code asks for.

`tasks/transitions.sql` writes the moves between them, and docs/lifecycle.md draws them.
"""

import enum


class Status(enum.StrEnum):
    """A task's status, spelled as the store spells it."""

    NEW = "new"
    WAITING = "waiting"
    ENQUEUED = "enqueued"
    CLAIMED = "claimed"
    PROCESSING = "processing"
    RETRIABLE_FAILURE = "retriable_failure"
    SUCCESS = "success"
    FATAL_FAILURE = "fatal_failure"
    CANCELLED = "cancelled"
    DROPPED = "dropped"


FINAL = frozenset({Status.SUCCESS, Status.FATAL_FAILURE, Status.CANCELLED, Status.DROPPED})
"""Statuses of a task that ended; its assoc row is gone. Nothing but a redrive, of fatal_failure, leads out of them."""

LIVE = frozenset(Status) - FINAL
"""Statuses of an assoc row; each has a next trigger, but WAITING may have none: the end of another task releases it."""

HELD = frozenset({Status.CLAIMED, Status.PROCESSING})
"""Statuses in which somebody holds a claim token, and every write must carry it."""

READY = frozenset({Status.NEW, Status.RETRIABLE_FAILURE})
"""Statuses that the Store Consumer enqueues once their next trigger passes."""
