"""What clients want to be different about tasks, held against the rules; and the store's answers for the wire."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from duly_core.rpc.requests.new_tasks import (
    parse_task_id,
    payload_too_large,
    read_encoding,
    read_priority,
    when,
)
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.lifecycle import HELD, Status
from duly_core.tasks.task import HARD_PAYLOAD_LIMIT, TaskChange
from duly_core.tasks.updates import Changed, ChangeVerdict
from duly_frontend.tasks.wire import NO_SUCH_TASK, STATUS_TO_WIRE
from duly_wire.ids import TaskId
from duly_wire.v1 import frontend_pb2, task_pb2


def read(updates: Sequence[frontend_pb2.TaskUpdate], horizon: timedelta) -> list[TaskChange | Problem]:
    """Check the updates of a request, each for itself."""
    seen: set[TaskId] = set()
    checked: list[TaskChange | Problem] = []
    for update in updates:
        try:
            change = _read(update, horizon)
        except Problem as problem:
            checked.append(problem)
            continue
        checked.append(_TWICE if change.task_id in seen else change)
        seen.add(change.task_id)
    return checked


_TWICE = Problem("task_id", "comes twice in one call: put all that is to change into one update")

_ORDERED_BY_TIME = "its session has the order DUE: cancel the task, and schedule it anew at the new time"


def _read(update: frontend_pb2.TaskUpdate, horizon: timedelta) -> TaskChange:
    scheduled_at, delay = when(update, horizon)
    has_payload = update.HasField("payload")
    change = TaskChange(parse_task_id(update.task_id), scheduled_at=scheduled_at, delay=delay)
    if has_payload:
        encoding = read_encoding(update.payload_encoding, update.payload)
        change = change._replace(payload=update.payload, encoding=encoding)
        if len(update.payload) > HARD_PAYLOAD_LIMIT:
            raise payload_too_large(len(update.payload), HARD_PAYLOAD_LIMIT, "its lambda")
    elif update.payload_encoding:
        raise Problem("payload_encoding", "is of no use without payload: give both, or neither")
    if update.priority:
        change = change._replace(priority=read_priority(update.priority))
    if change == TaskChange(change.task_id):
        raise Problem("", "nothing is to change: give scheduled_at, delay, priority or payload")
    return change


def results(
    asked: Sequence[TaskChange | Problem], answers: Mapping[TaskId, Changed]
) -> list[frontend_pb2.UpdateTaskResult]:
    """One result for each update of a request, in its order."""
    return [
        frontend_pb2.UpdateTaskResult(error=each.to_wire())
        if isinstance(each, Problem)
        else _result(each, answers.get(each.task_id))
        for each in asked
    ]


def _result(change: TaskChange, answer: Changed | None) -> frontend_pb2.UpdateTaskResult:
    if answer is None:
        return frontend_pb2.UpdateTaskResult(error=NO_SUCH_TASK.to_wire())
    result = frontend_pb2.UpdateTaskResult(status=STATUS_TO_WIRE[answer.status])
    if answer.verdict is ChangeVerdict.PAYLOAD_TOO_LARGE:
        problem = payload_too_large(len(change.payload or b""), answer.payload_limit, answer.lambda_name)
        result.error.CopyFrom(problem.to_wire())
    elif answer.verdict is ChangeVerdict.ORDERED_BY_TIME:
        field = "delay" if change.scheduled_at is None else "scheduled_at"
        result.error.CopyFrom(Problem(field, _ORDERED_BY_TIME).to_wire())
    elif answer.verdict is ChangeVerdict.NOT_PENDING:
        result.error.CopyFrom(_not_pending(answer).to_wire())
    return result


def _not_pending(answer: Changed) -> Problem:
    if answer.status in HELD:
        message = f"it runs now (it is {answer.status}): cancel it and schedule another, or wait for its end"
    elif answer.status is Status.WAITING:
        message = (
            "it waits for units of a resource or for its completion, or is about to end because of a task that it waited for: "
            "it cannot be changed"
        )
    else:
        message = f"it is {answer.status} already: schedule another"
    return Problem("task_id", message, task_pb2.ERROR_CODE_NOT_PENDING)
