"""A line of a task's history: an attempt that did not succeed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from duly.enums import AttemptOutcome, FailureKind
from duly.time_conversion import to_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from duly.v1 import task_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """An attempt that ended and did not succeed. Instants are aware and in UTC."""

    # Its number, and which claim of the task it was. One that is not charged leaves its number to the next.
    attempt: int
    fence: int
    outcome: AttemptOutcome
    # Whether it counts as a failure or a crash of the task.
    charged: bool
    holder: str
    # By the clock of its host; None: it did not start, or nobody was left to tell.
    started_at: datetime | None
    # When the store learnt of its end.
    ended_at: datetime
    # None and empty for one that is not charged and gave no reason.
    failure_kind: FailureKind | None
    failure_message: str
    # Where the callback's code failed, as Python shows it, in several lines of at most 8 KiB; empty: it raised nothing.
    traceback: str = ""

    @classmethod
    def from_proto(cls, attempt: task_pb2.Attempt) -> Attempt:
        """Return the view of an attempt as it came over the wire."""
        return cls(
            attempt=attempt.attempt,
            fence=attempt.fence,
            outcome=AttemptOutcome(attempt.outcome),
            charged=attempt.charged,
            holder=attempt.holder,
            started_at=to_datetime(attempt.started_at) if attempt.HasField("started_at") else None,
            ended_at=to_datetime(attempt.ended_at),
            failure_kind=FailureKind(attempt.failure_kind) if attempt.failure_kind else None,
            failure_message=attempt.failure_message,
            traceback=attempt.traceback,
        )
