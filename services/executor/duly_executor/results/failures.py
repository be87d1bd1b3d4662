"""What is reported of tasks that did not come to an end of their own."""

from datetime import timedelta

from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.config.settings import format_duration
from duly_core.host.slot_board import RunningTask
from duly_core.rpc.requests.times import boot_to_timestamp, from_duration
from duly_executor.claims.ledger import HeldClaim
from duly_wire.v1 import hsc_pb2, task_pb2

_ANOTHERS = "was stopped with its callback process, for the sake of another task: "
_REASONS = {
    "max_runtime": _ANOTHERS + "one that ran too long and could not be interrupted",
    "cancel": _ANOTHERS + "one that did not stop when it was cancelled",
    "kill": _ANOTHERS + "one that somebody killed (duly cancel --kill)",
    "cell_away": "was stopped with its callback process: the cell of a task there did not answer heartbeats in time",
    "lost_claim": _ANOTHERS + "one whose claim was lost",
    "no_longer_ours": _ANOTHERS + "one that was no longer to run here",
    "crash": "its callback process was ended by another task",
    "close": "was still running when the Executor had to stop",
}


def with_checkpoint(held: HeldClaim, result: hsc_pb2.TaskResult) -> hsc_pb2.TaskResult:
    """The result with what its callback kept last, for the next attempt if there is one."""
    if held.checkpoint and result.outcome != hsc_pb2.OUTCOME_SUCCESS:
        result.checkpoint = held.checkpoint
    return result


def cancelled(task: hsc_pb2.ClaimedTask) -> hsc_pb2.TaskResult:
    """What is reported of a task that was stopped because somebody asked for it."""
    return hsc_pb2.TaskResult(claim=task.claim, outcome=hsc_pb2.OUTCOME_CANCELLED)


def bad_result(claim: hsc_pb2.Claim, message: str) -> hsc_pb2.TaskResult:
    """What is reported in place of a result that cannot be written."""
    return hsc_pb2.TaskResult(
        claim=claim,
        outcome=hsc_pb2.OUTCOME_FATAL_FAILURE,
        failure_kind=task_pb2.FAILURE_KIND_BAD_RESULT,
        failure_message=message[:_MESSAGE_LENGTH],
    )


_MESSAGE_LENGTH = 1_000


def killed_for_cancel(task: hsc_pb2.ClaimedTask, entry: RunningTask) -> hsc_pb2.TaskResult:
    """What is reported of a callback that did not stop as it was asked to."""
    result = cancelled(task)
    result.started_at.CopyFrom(started_at(entry))
    return result


def ran_too_long(task: hsc_pb2.ClaimedTask, entry: RunningTask) -> hsc_pb2.TaskResult:
    """What is reported of a callback that could not be interrupted."""
    limit: timedelta = from_duration(task.max_runtime)
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_RETRIABLE_FAILURE,
        failure_kind=task_pb2.FAILURE_KIND_MAX_RUNTIME,
        failure_message=f"ran longer than its max_runtime of {format_duration(limit)} and was killed",
        started_at=started_at(entry),
    )


def ending_of(code: int) -> str:
    """How a process ended, by its exit code."""
    return f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"


def crash(
    task: hsc_pb2.ClaimedTask, ending: str, suspects: int, entry: RunningTask, stack: str
) -> hsc_pb2.TaskResult:
    """What is reported of a task whose process died while it ran that many that may be the cause."""
    company = "" if suspects == 1 else f" while it ran {suspects} tasks, any of which may be the cause"
    return hsc_pb2.TaskResult(
        claim=task.claim,
        outcome=hsc_pb2.OUTCOME_CRASHED,
        failure_kind=task_pb2.FAILURE_KIND_CRASH,
        failure_message=f"the callback's process {ending}{company}",
        started_at=started_at(entry),
        traceback=stack if suspects == 1 else "",
    )


def stopped(entry: RunningTask, reason: str) -> hsc_pb2.StoppedRun:
    """What the history is told of a task that ran, was stopped, and is handed back."""
    return hsc_pb2.StoppedRun(
        task_id=entry.task_id,
        started_at=started_at(entry),
        reason=_REASONS.get(reason, f"was stopped with its callback process: {reason}"),
    )


def started_at(entry: RunningTask) -> Timestamp:
    """When a callback started, by the host's wall clock."""
    return boot_to_timestamp(entry.started_boot_ns)
