"""From the store's rows to the wire's Task."""

from datetime import datetime
from uuid import UUID

from duly_core.access.grants import Scope
from duly_core.attachments.rules import read_uses
from duly_core.events.rules import PARKED_ON as EVENT
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.task_fields import SHOWN
from duly_core.rpc.requests.attachment_uses import use_to_wire
from duly_core.rpc.requests.attributes import attribute_to_wire
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.attribute_rules import read as read_attributes
from duly_core.tasks.completions import PARKED_ON
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskRow
from duly_core.tasks.task import Attempt, AttemptOutcome
from duly_core.tasks.waiting import IN_NO_SESSION_YET
from duly_wire.v1 import task_pb2

NO_SUCH_TASK = Problem(
    "task_id",
    "there is no such task: it was never scheduled, or was removed after its retention",
    task_pb2.ERROR_CODE_NOT_FOUND,
)

STATUS_TO_WIRE = {status: task_pb2.TaskStatus.Value(f"TASK_STATUS_{status.name}") for status in Status}
ATTEMPT_OUTCOME_TO_WIRE = {
    outcome: task_pb2.AttemptOutcome.Value(f"ATTEMPT_OUTCOME_{outcome.name}") for outcome in AttemptOutcome
}
STATUS_FROM_WIRE = {number: status for status, number in STATUS_TO_WIRE.items()}

_TIMES = (
    "created_at",
    "scheduled_at",
    "next_trigger_at",
    "started_at",
    "finished_at",
    "expires_at",
    "overdue_since_at",
)
_PLAIN = (
    *SHOWN,
    "fence",
    "failures",
    "crashes",
    "holder",
    "cancel_requested",
    "progress",
    "progress_note",
    "overdue_neighbours",
    "redrives",
    "edits",
    "time_table",
    "graph_label",
)
_BODY = ("payload", "payload_encoding", "result", "result_encoding", "checkpoint")
_OF_CALLBACKS = ("payload", "result", "checkpoint", "progress_note", "attachments")


def task_to_wire(row: TaskRow, payloads: Scope | None = None) -> task_pb2.Task:
    """A Task with what the row has; a list's rows have neither payload nor result.

    `payloads` has the tasks whose payloads the caller may see; None: all.
    """
    task_id: UUID = row["task_id"]
    task = task_pb2.Task(task_id=str(task_id), status=STATUS_TO_WIRE[Status(row["status"])])
    setattr(task, "lambda", row["lambda"])
    for name in (*_PLAIN, *_BODY):
        if row.get(name) is not None:
            setattr(task, name, row[name])
    for name in _TIMES:
        moment: datetime | None = row.get(name)
        if moment is not None:
            getattr(task, name).FromDatetime(moment)
    if row["session"] is not None:
        task.session.key = SessionId.parse(row["session"]).key
        task.session.order = row["session_order"]
        task.session.on_failure = row["session_policy"]
    if row.get("graph") is not None:
        task.graph_id = str(row["graph"])
    if row.get("attachments"):
        task.attachments.extend(map(use_to_wire, read_uses(row["attachments"])))
    for name, value in read_attributes(row["attributes"]):
        task.attributes.append(attribute_to_wire(name, value))
    for need in row["resources"] or ():
        task.resources.add(**need)
    if row["parked_on"] is not None and row["parked_on"] != IN_NO_SESSION_YET:
        # the key of a gate is its id, that of a completion the hash of its token
        is_resource = not row["parked_on"].startswith(("gate:", PARKED_ON, EVENT))
        key = row["parked_key"] if is_resource else None
        task.parked_on = "/".join(filter(None, (row["parked_on"], key)))
        if row["parked_on"] == EVENT:
            task.parked_on += row["parked_key"]
    if row["failure_kind"] is not None:
        task.last_failure.kind = row["failure_kind"]
        task.last_failure.message = row["failure_message"] or ""
        task.last_failure.failed_at.FromDatetime(row["failed_at"])
    if payloads is not None and not payloads.reaches(row["lambda"], row["scheduled_by"]):
        _withhold(task)
    return task


def _withhold(task: task_pb2.Task) -> None:
    """Leave out what a client or a callback wrote."""
    for name in _OF_CALLBACKS:
        task.ClearField(name)  # type: ignore[arg-type]  # they stand above
    if task.HasField("last_failure"):
        task.last_failure.message = ""
    task.payload_withheld = True


def may_have_attempts(row: TaskRow) -> bool:
    """Whether the task's history can have a line: false for what succeeded at once, or was never claimed.

    One that was handed over, and then completed, has events.
    """
    succeeded = row["status"] == Status.SUCCESS and not row["has_events"]
    return bool((row["fence"] or 0) > succeeded)


def attempt_to_wire(attempt: Attempt, *, withheld: bool = False) -> task_pb2.Attempt:
    """A line of a task's history; `withheld`: without what its callback said."""
    message = task_pb2.Attempt(
        attempt=attempt.attempt,
        fence=attempt.fence,
        outcome=ATTEMPT_OUTCOME_TO_WIRE[attempt.outcome],
        charged=attempt.charged,
        holder=attempt.holder,
        failure_message="" if withheld else attempt.failure_message,
        traceback="" if withheld else attempt.traceback,
    )
    if attempt.started_at is not None:
        message.started_at.FromDatetime(attempt.started_at)
    message.ended_at.FromDatetime(attempt.ended_at)
    if attempt.failure_kind is not None:
        message.failure_kind = task_pb2.FailureKind.ValueType(attempt.failure_kind)
    return message
