"""Why a task does not run, and what happened to it, as clients see it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from duly.transport.message_fields import view
from duly_wire.enums import AttemptOutcome, FailureKind, HistoryKind, Priority, ReasonKind, TaskStatus

if TYPE_CHECKING:
    from duly_wire.v1 import explain_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedTask:
    """Another task that has to do with a reason."""

    task_id: str
    lambda_name: str
    # None: it was removed.
    status: TaskStatus | None
    # Of a node: its label in the graph; else empty.
    label: str
    # Of a task that holds units of a resource, or a slot: since when; how many units; the Executor of the slot.
    held_since_at: datetime | None = None
    units: int | None = None
    holder: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason why a task does not run, or how it stands. What a kind does not say is None or empty."""

    kind: ReasonKind
    # For people: one line each. An empty action: it passes by itself.
    text: str
    action: str
    since_at: datetime | None
    until_at: datetime | None
    # Tasks, nodes, failures, or units that are taken; the most that there may be.
    count: int | None
    limit: int | None
    # The count is an estimate: at most 10,000 tasks are counted.
    is_estimated: bool
    # At the rate at which tasks of its lambda were claimed lately; None: unknown.
    predicted_wait: timedelta | None
    resource: str
    gate: str
    session: str
    graph_id: str
    holder: str
    # At most 20, without those that the caller may not read.
    tasks: tuple[RelatedTask, ...]
    # By how much a clock is ahead of Postgres's; negative: behind.
    clock_ahead: timedelta | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One line of a task's history. Instants are aware and in UTC."""

    kind: HistoryKind
    # By the store's clock; of STARTED by that of its host.
    happened_at: datetime
    # Afterwards; None: unchanged.
    status: TaskStatus | None
    # What wrote it: frontend, hsc or store_consumer; empty: one of them.
    service: str
    # Who asked for it; empty: nobody was asked who they are, or Duly did it by itself.
    principal: str
    holder: str
    # Of a run, else 0.
    attempt: int
    fence: int
    outcome: AttemptOutcome | None
    failure_kind: FailureKind | None
    # When Duly was to look at the task again; None: it ended, or waited for another task.
    next_trigger_at: datetime | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a task does not run, how its run stands, or how it ended; and its history."""

    task_id: str
    lambda_name: str
    priority: Priority
    status: TaskStatus
    # The store's clock, when it was asked.
    explained_at: datetime
    # All that hold now, in the order in which they must be gone; the last ones may say more.
    reasons: tuple[Reason, ...]
    # Oldest first.
    history: tuple[HistoryEvent, ...]
    # What callbacks said is left out: the caller may not see payloads.
    payload_withheld: bool
    # The cell that the task lives in; empty: the installation has no cells.
    cell: str = ""

    @classmethod
    def from_proto(cls, response: explain_pb2.ExplainTaskResponse) -> Explanation:
        """Return the view of an answer as it came over the wire."""
        return view(
            cls,
            response,
            reasons=tuple(
                view(Reason, each, tasks=tuple(view(RelatedTask, task) for task in each.tasks))
                for each in response.reasons
            ),
            history=tuple(view(HistoryEvent, each) for each in response.history),
        )
