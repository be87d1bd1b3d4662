"""What a watch is told."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from duly.transport.message_fields import view
from duly_wire.enums import AttemptOutcome, FailureKind, GraphStatus, TaskEventKind, TaskStatus
from duly_wire.v1 import watches_pb2


@dataclass(frozen=True, slots=True)
class TaskEvent:
    """Something that happened to a task or a graph. `client.get(event.task_id)` has payload, result and failure."""

    kind: TaskEventKind
    at: datetime
    """By the store's clock (aware, UTC)."""
    position: str
    """Just behind this event: `client.watch(..., after=event.position)` goes on there."""
    task_id: str
    """Empty: it is a graph's."""
    lambda_name: str
    graph_id: str
    """Empty: the task is of no graph."""
    session: str
    """The key; empty: the task is of no session."""
    status: TaskStatus | None
    """Of a task that ended."""
    outcome: AttemptOutcome | None
    """Of a run that ended, and whose task goes on."""
    failure_kind: FailureKind | None
    graph_status: GraphStatus | None
    """Of a graph that finished."""
    run: int
    """The number of the run that ended, or of the task's last one; 0: there was none."""
    next_at: datetime | None
    """Of a run that ended: when its task is looked at again."""

    @classmethod
    def from_proto(cls, event: watches_pb2.TaskEvent) -> TaskEvent:
        """Return what the wire says."""
        return view(cls, event)
