"""A task as clients see it, and the attempts that did not succeed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duly.codec import checkpoint_of, encoding_of_checkpoint, payload_of, result_of, reveal_if_possible
from duly.enums import AttemptOutcome, FailureKind, Priority, SessionOrder, SessionPolicy, TaskStatus
from duly.payload import decode
from duly.resource import ResourceNeed
from duly.session import Session
from duly.time_conversion import to_datetime

if TYPE_CHECKING:
    from datetime import datetime

    from duly.codec import Codec
    from duly.v1 import task_pb2


@dataclass(frozen=True, slots=True)
class Failure:
    """The last thing that went wrong with a task; `message` is one line for people."""

    kind: FailureKind
    message: str
    failed_at: datetime | None


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
            started_at=_instant(attempt, "started_at"),
            ended_at=to_datetime(attempt.ended_at),
            failure_kind=FailureKind(attempt.failure_kind) if attempt.failure_kind else None,
            failure_message=attempt.failure_message,
            traceback=attempt.traceback,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """How a task stood when the Frontend was asked. Instants are aware and in UTC; None: not yet."""

    task_id: str
    lambda_name: str
    collection: str
    priority: Priority
    status: TaskStatus
    created_at: datetime | None
    # When the client asked for it to run; when Duly looks at it again.
    scheduled_at: datetime | None
    next_trigger_at: datetime | None
    # When its last attempt started, by the clock of the host that ran it; while it runs, when it was claimed.
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    # How often it was claimed; attempts that failed; attempts whose process died.
    fence: int
    failures: int
    crashes: int
    # None: it belongs to no session.
    session: Session | None
    # How often it was redriven after it had ended as FATAL_FAILURE; the counts of failures began anew each time.
    redrives: int
    # Who holds the claim, or empty.
    holder: str
    cancel_requested: bool
    # What the callback last told: 0 to 1, and a note.
    progress: float
    progress_note: str
    # The graph that it is a node of, or empty.
    graph_id: str
    failure: Failure | None
    payload_bytes: bytes = field(repr=False)
    payload_encoding: int = field(repr=False)
    result_bytes: bytes = field(repr=False)
    result_encoding: int = field(repr=False)
    # The attempts that did not succeed, oldest first, the newest 100 at most; from `get` only.
    attempts: tuple[Attempt, ...] = ()
    # The time table that scheduled it, whose tick scheduled_at is; empty: a client did.
    time_table: str = ""
    # Of which resources it takes units while it runs.
    resources: tuple[ResourceNeed, ...] = ()
    # While it waits for units: the resource, or resource/key; else empty.
    parked_on: str = ""
    # How often `update` changed it.
    edits: int = 0
    checkpoint_bytes: bytes = field(default=b"", repr=False)
    # Its label in the graph, or empty; not from `list`.
    graph_label: str = ""

    @property
    def payload(self) -> Any:
        """The payload, decoded: JSON values, or bytes. None from `list`, which leaves payloads out. Raises DecryptionError."""
        return decode(self.payload_bytes, self.payload_encoding)

    @property
    def result(self) -> Any:
        """What the callback returned, decoded; None before SUCCESS, and from `list`."""
        return decode(self.result_bytes, self.result_encoding)

    @property
    def checkpoint(self) -> Any:
        """What its callback last kept with `ctx.checkpoint`, decoded; None after SUCCESS, and from `list`."""
        return decode(self.checkpoint_bytes, encoding_of_checkpoint(self.checkpoint_bytes))

    @classmethod
    def from_proto(cls, task: task_pb2.Task, codec: Codec | None = None) -> Task:
        """Return the view of a task as it came over the wire, decrypted as far as `codec` can."""
        payload, payload_encoding = task.payload, int(task.payload_encoding)
        result, result_encoding = task.result, int(task.result_encoding)
        checkpoint = task.checkpoint
        if codec is not None:
            lambda_name, task_id = getattr(task, "lambda"), task.task_id
            payload, payload_encoding = reveal_if_possible(
                codec, payload, payload_encoding, payload_of(lambda_name)
            )
            result, result_encoding = reveal_if_possible(codec, result, result_encoding, result_of(task_id))
            encoding = encoding_of_checkpoint(checkpoint)
            checkpoint, _ = reveal_if_possible(codec, checkpoint, encoding, checkpoint_of(task_id))
        return cls(
            task_id=task.task_id,
            lambda_name=getattr(task, "lambda"),
            collection=task.collection,
            priority=Priority(task.priority),
            status=TaskStatus(task.status),
            created_at=_instant(task, "created_at"),
            scheduled_at=_instant(task, "scheduled_at"),
            next_trigger_at=_instant(task, "next_trigger_at"),
            started_at=_instant(task, "started_at"),
            finished_at=_instant(task, "finished_at"),
            expires_at=_instant(task, "expires_at"),
            fence=task.fence,
            failures=task.failures,
            crashes=task.crashes,
            redrives=task.redrives,
            session=_session(task.session) if task.HasField("session") else None,
            holder=task.holder,
            cancel_requested=task.cancel_requested,
            progress=task.progress,
            progress_note=task.progress_note,
            graph_id=task.graph_id,
            failure=_failure(task.last_failure) if task.HasField("last_failure") else None,
            payload_bytes=payload,
            payload_encoding=payload_encoding,
            result_bytes=result,
            result_encoding=result_encoding,
            attempts=tuple(Attempt.from_proto(attempt) for attempt in task.attempts),
            time_table=task.time_table,
            resources=tuple(ResourceNeed.from_proto(need) for need in task.resources),
            parked_on=task.parked_on,
            edits=task.edits,
            checkpoint_bytes=checkpoint,
            graph_label=task.graph_label,
        )


def _session(session: task_pb2.Session) -> Session:
    return Session(session.key, SessionOrder(session.order), SessionPolicy(session.on_failure))


def _failure(failure: task_pb2.Failure) -> Failure:
    return Failure(FailureKind(failure.kind), failure.message, _instant(failure, "failed_at"))


def _instant(message: Any, name: str) -> datetime | None:
    return to_datetime(getattr(message, name)) if message.HasField(name) else None
