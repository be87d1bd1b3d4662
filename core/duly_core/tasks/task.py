"""The shapes that a task takes on its way; each hop changes the shape once, and values are frozen.

Those of which one is made for each task at each hop are named tuples: a frozen dataclass takes more than twice as long to make.
"""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from duly_core.attachments.rules import AttachmentUse, NotStored
from duly_core.events.rules import EventWait
from duly_core.lambdas.names import QueueKey
from duly_core.tasks.attribute_rules import Attributes
from duly_wire.enums import (
    FailureKind,
    HeldWhile,
    OnConflict,
    Outcome,
    Priority,
    SessionOrder,
    SessionPolicy,
)
from duly_wire.ids import TaskId

if TYPE_CHECKING:
    from duly_core.graphs.growth_rules import NewNode


GraphId = bytes
"""A UUID's 16 bytes."""

Token = bytes
"""A claim token: 16 bytes that nobody can guess, made by who claims."""

TOKEN_PREFIX_BYTES = 14
"""Of a token that is one of many of a request: the other two bytes count from 0."""


HARD_PAYLOAD_LIMIT = 1024 * 1024
"""No lambda may allow more: the store's CHECK says so too."""

CHECKPOINT_LIMIT = 64 * 1024
"""The most bytes that a callback keeps for its next attempt."""

HOLDER_LIMIT = 128
"""The most characters of the name under which an Executor holds its claims."""


class Encoding(enum.IntEnum):
    """How payload or result bytes are to be read; the numbers are those of the wire."""

    JSON = 1
    RAW = 2
    ENCRYPTED = 3
    ATTACHMENT = 4


class Session(NamedTuple):
    """The session that a task belongs to: its tasks run one at a time, in order."""

    key: str
    order: SessionOrder = SessionOrder.SCHEDULED
    policy: SessionPolicy = SessionPolicy.SKIP


class ResourceNeed(NamedTuple):
    """How many units of a resource a task takes while it runs."""

    name: str
    key: str = ""
    """Only of a resource that has units for each key."""
    weight: int = 1


Needs = tuple[ResourceNeed, ...]
"""No two of one resource and key."""


class Debounce(NamedTuple):
    """How long a task waits for the end of the calls with its key."""

    wait: timedelta
    """After the last call."""
    at_most: timedelta
    """After the first one."""


class Unique(NamedTuple):
    """How many tasks of a key there may be."""

    key: str
    held_while: HeldWhile = HeldWhile.PENDING
    period: timedelta = timedelta()
    """So long after the task that has the key was scheduled, it is taken as well."""
    on_conflict: OnConflict = OnConflict.IGNORE
    debounce: Debounce | None = None
    """With PENDING and REPLACE."""


class NewTask(NamedTuple):
    """A task that was asked for and found valid; not written yet."""

    task_id: TaskId
    lambda_name: str
    payload: bytes
    encoding: Encoding = Encoding.JSON
    priority: Priority = Priority.NORMAL
    collection: str = ""
    scheduled_at: datetime | None = None
    delay: timedelta | None = None
    expires_at: datetime | None = None
    idempotency_key: str | None = None
    session: Session | None = None
    resources: Needs = ()
    scheduled_by: str | None = None
    """The principal that asked for it; None: nobody was asked who they are."""
    fair_key: str | None = None
    """Whose work it is, as the caller says."""
    attachments: tuple[AttachmentUse, ...] = ()
    """What it uses: of these the store keeps a copy in the task, for claims."""
    unique: Unique | None = None
    """None: other tasks of the lambda do not matter."""
    attributes: Attributes = ()
    """To find it by."""


class TaskChange(NamedTuple):
    """What is to be different about a task that nobody runs yet; None: it stays as it is."""

    task_id: TaskId
    payload: bytes | None = None
    encoding: Encoding | None = None
    """Of the payload; None without one."""
    priority: Priority | None = None
    scheduled_at: datetime | None = None
    delay: timedelta | None = None


class Scheduling(enum.Enum):
    """What became of a NewTask."""

    CREATED = "created"
    REPEATED = "repeated"
    """This very task was there already."""
    UNKNOWN_LAMBDA = "unknown lambda"
    CONFLICT = "conflict"
    """Its key or id belongs to a task with another content."""
    ATTACHMENT_MISSING = "attachment missing"
    """It uses what is not stored."""
    IGNORED = "ignored"
    """Another task has its unique key, and it is not written."""
    REJECTED = "rejected"
    """The same, which is an error."""
    REPLACED = "replaced"
    """Another task has its unique key, and got its payload, priority and due time."""
    NOT_REPLACED = "not replaced"
    """Another task has its unique key, and cannot be changed."""


class Scheduled(NamedTuple):
    """The store's answer to one NewTask; `task_id` is the one in the store."""

    verdict: Scheduling
    task_id: TaskId
    due_in: timedelta | None = None
    """With CREATED or REPLACED: how far ahead it is due; None: it waits for the end of another task."""
    missing: NotStored | None = None
    """With ATTACHMENT_MISSING: the first such use."""


class DueTask(NamedTuple):
    """A task that was just enqueued in the store and is to be sent to its queue."""

    task_id: TaskId
    queue: QueueKey


class Proposal(NamedTuple):
    """A claim that a Controller asks for."""

    task_id: TaskId
    token: Token
    lambda_name: str


class ClaimedTask(NamedTuple):
    """A task with the right to run it."""

    task_id: TaskId
    token: Token
    lambda_name: str
    priority: int
    fence: int
    failures: int
    crashes: int
    due_at_us: int
    """Microseconds since 1970 UTC: kept a number on the hot path, becomes a Timestamp on the wire."""
    payload: bytes
    encoding: int
    max_runtime: timedelta
    tick_at_us: int | None = None
    """The tick of the time table that scheduled it, likewise; None: none did."""
    graph_id: GraphId | None = None
    """A node of this graph; its predecessors are read apart (graphs/reads.py)."""
    checkpoint: bytes | None = None
    """JSON that an attempt before kept."""
    startable_at_us: int | None = None
    """When units, a rate or a gate on some tasks last let it go; None: none of them held it back."""
    crashed_with_worker: bool = False
    """It crashed once, with all that its worker or its machine ran."""
    attachments: Sequence[Mapping[str, Any]] | None = None
    """What it was scheduled with, as `written_uses` wrote it; None: nothing."""
    received: Sequence[Mapping[str, Any]] | None = None
    """The events that its callback received, as the store has them (`received_event`); None: none."""
    is_stale: bool = False
    """What was read of it was changed meanwhile; only between a statement and `store.claims`, which reads it again."""


class TaskHeartbeat(NamedTuple):
    """A running task's heartbeat; `progress` and `note` are None when nothing new was told."""

    task_id: TaskId
    token: Token
    progress: float | None = None
    note: str | None = None
    checkpoint: bytes | None = None
    overdue_for: timedelta | None = None
    """How long its callback runs on though it is to end; None: it is not to end."""
    overdue_neighbours: int = 0
    """How many others in its process have time to end first."""


class HeartbeatAnswer(enum.Enum):
    """The store's answer to a Beat."""

    KEPT = "kept"
    LOST = "lost"
    CANCEL_REQUESTED = "cancel requested"
    KILL_REQUESTED = "kill requested"
    """A cancel was requested, and the callback is to be ended whatever it does."""
    GATED = "gated"
    """Kept, and held by a gate: it goes back if its callback has not started."""


class Result(NamedTuple):
    """How an attempt ended, with the claim under which it ran."""

    task_id: TaskId
    token: Token
    outcome: Outcome
    result: bytes | None = None
    encoding: Encoding = Encoding.JSON
    failure_kind: FailureKind | None = None
    failure_message: str = ""
    retry_after: timedelta | None = None
    started_at: datetime | None = None
    traceback: str = ""
    checkpoint: bytes | None = None
    """Unless SUCCESS: what the callback kept, if anything."""
    children: tuple[NewTask, ...] = ()
    """With SUCCESS: tasks that are written with it."""
    nodes: "tuple[NewNode, ...]" = ()
    """With SUCCESS: nodes that are added to the task's graph with it."""
    with_worker: bool = False
    """With CRASHED: its whole worker died, or its machine."""
    skips: bool = False
    """With FATAL_FAILURE: the task ends as DROPPED, and to its graph it was skipped."""
    attachments: tuple[AttachmentUse, ...] = ()
    """What the run kept."""
    completion_hash: bytes = b""
    """With COMPLETE_LATER: the SHA-256 of the completion token."""
    complete_within: timedelta | None = None
    """With COMPLETE_LATER: how long to wait for the completion."""
    event_wait: EventWait | None = None
    """With WAIT_FOR_EVENT: what it waits for."""

    @property
    def writes_tasks(self) -> bool:
        """Whether other tasks are written with it."""
        return bool(self.children or self.nodes)

    @property
    def writes_more(self) -> bool:
        """Whether anything is written with it but the end of the task."""
        return bool(self.children or self.nodes or self.attachments)


class ReleasedClaim(NamedTuple):
    """A claim that is handed back; if its callback had started, when that was and why it was stopped."""

    task_id: TaskId
    token: Token
    started_at: datetime | None = None
    reason: str | None = None
    checkpoint: bytes | None = None


class AttemptOutcome(enum.StrEnum):
    """How an attempt ended that did not succeed, spelled as the store spells it."""

    RETRIABLE_FAILURE = "retriable_failure"
    FATAL_FAILURE = "fatal_failure"
    CRASHED = "crashed"
    """The process died, and its supervisor said so."""
    SILENT = "silent"
    """The holder was not heard of in time; counts as a crash."""
    SNOOZED = "snoozed"
    RELEASED = "released"
    CANCELLED = "cancelled"
    """Stopped as it was asked to."""
    WAITED = "waited"
    """The callback waits for an event."""
    HANDED_OVER = "handed_over"
    """Somebody completes it by token; if that is a failure, or does not come, the line says so instead."""
    UNSPECIFIED = "unspecified"
    """Never stored: a newer release wrote an outcome that this one does not know."""

    @classmethod
    def _missing_(cls, _: object) -> "AttemptOutcome":
        return cls.UNSPECIFIED


@dataclass(frozen=True, slots=True)
class Attempt:
    """A line of a task's history: an attempt that did not succeed."""

    attempt: int
    """Its number: failures and crashes before it, and 1. One that is not charged leaves its number to the next."""
    fence: int
    """Which claim of the task it was; no two have the same."""
    outcome: AttemptOutcome
    holder: str
    started_at: datetime | None
    """By the clock of its host; None: it did not start, or nobody was left to tell."""
    ended_at: datetime
    """When the store learnt of it."""
    failure_kind: int | None = None
    """Of those that are charged: a FailureKind, or the number of one that only a newer release knows."""
    failure_message: str = ""
    """What it failed of; of a released one that had started, why it was stopped."""
    traceback: str = ""
    """Where the callback's code failed, in several lines."""

    @property
    def charged(self) -> bool:
        """Whether it counts as a failure or a crash of the task."""
        return self.failure_kind is not None


class Applied(enum.Enum):
    """The store's answer to a Result or a release."""

    APPLIED = "applied"
    ALREADY_APPLIED = "already applied"
    LOST = "lost"
