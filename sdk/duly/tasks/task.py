"""A task as clients see it, and the attempts that did not succeed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from duly.attachments.origin import Origin
from duly.attachments.uses import AttachmentUse
from duly.callbacks.codec import (
    checkpoint_of,
    encoding_of_checkpoint,
    payload_of,
    result_of,
    reveal_if_possible,
)
from duly.callbacks.payload import decode
from duly.limits.resource import ResourceNeed
from duly.sessions.session import Session
from duly.tasks.attributes import attributes_of
from duly.transport.message_fields import view
from duly_wire.enums import AttemptOutcome, FailureKind, Priority, TaskStatus
from duly_wire.queue_names import QueueName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from duly.callbacks.codec import Codec
    from duly.tasks.attributes import AttributeValue
    from duly_wire.v1 import task_pb2


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
    # None: one that only a newer release of the server knows.
    outcome: AttemptOutcome | None
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
        return view(cls, attempt)


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
    # The principal that scheduled it, or the task whose callback did; empty: nobody was asked, or a time table did.
    scheduled_by: str = ""
    # Whose work it is, as the caller said; empty: it was not said.
    fair_key: str = ""
    # What its caller finds it by.
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    # Since when its callback is to end, and does not, and how many others in its process have time to end first; None: unknown.
    overdue_since_at: datetime | None = None
    overdue_neighbours: int = 0
    # Payload, result, checkpoint, progress_note, tracebacks and failure messages are left out: the caller may not see them.
    payload_withheld: bool = False
    # Its inputs, then what its last attempt kept and returned; from `get` only.
    attachments: tuple[AttachmentUse, ...] = ()
    # Its unique key, or the digest of its payload; empty: none.
    unique_key: str = ""
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @property
    def domain(self) -> str:
        """The domain whose workers alone run it; empty: none."""
        return QueueName.parse(self.lambda_name).domain

    @property
    def requires(self) -> tuple[str, ...]:
        """The labels that a host must have to run it, besides those that its lambda requires."""
        return tuple(sorted(QueueName.parse(self.lambda_name).required))

    @property
    def payload(self) -> Any:
        """The payload, decoded: JSON values, or bytes. None from `list`, which leaves payloads out. Raises DecryptionError."""
        return decode(self.payload_bytes, self.payload_encoding, self._origin)

    @property
    def result(self) -> Any:
        """What the callback returned, decoded; None before SUCCESS, and from `list`."""
        return decode(self.result_bytes, self.result_encoding, self._origin)

    def _origin(self) -> Origin:
        return Origin(self.task_id)

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
        return view(
            cls,
            task,
            session=view(Session, task.session) if task.HasField("session") else None,
            failure=view(Failure, task.last_failure) if task.HasField("last_failure") else None,
            payload_bytes=payload,
            payload_encoding=payload_encoding,
            result_bytes=result,
            result_encoding=result_encoding,
            checkpoint_bytes=checkpoint,
            attempts=tuple(Attempt.from_proto(attempt) for attempt in task.attempts),
            attributes=attributes_of(task.attributes),
            resources=tuple(ResourceNeed.from_proto(need) for need in task.resources),
            attachments=tuple(AttachmentUse.from_proto(use, task.task_id) for use in task.attachments),
        )
