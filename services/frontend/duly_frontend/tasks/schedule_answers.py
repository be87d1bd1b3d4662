"""From the store's answer to a new task to the wire's."""

from collections.abc import Sequence
from uuid import UUID

from duly_core.rpc.requests.attachment_uses import not_stored
from duly_core.rpc.requests.new_tasks import are_canonical, is_canonical
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.task import Scheduled, Scheduling
from duly_wire.v1 import frontend_pb2, task_pb2

_REFUSALS = {
    Scheduling.UNKNOWN_LAMBDA: Problem(
        "lambda",
        "it was unregistered meanwhile: start a worker that declares it",
        task_pb2.ERROR_CODE_UNKNOWN_LAMBDA,
    ),
    Scheduling.CONFLICT: Problem(
        "idempotency_key",
        "another task has this key or id, with another lambda, payload, priority, collection, session, resources, fair key, attachments or attributes: "
        "use another key for another task",
        task_pb2.ERROR_CODE_KEY_CONFLICT,
    ),
}
_CONFLICTS = {
    Scheduling.IGNORED: task_pb2.ON_CONFLICT_IGNORE,
    Scheduling.REPLACED: task_pb2.ON_CONFLICT_REPLACE,
}
_TAKEN = {
    Scheduling.REJECTED: "task {} has this key: schedule again when that has begun (ended, with HELD_WHILE_LIVE), and its period is over",
    Scheduling.NOT_REPLACED: "task {} has this key, and cannot be changed: it runs, or ended within the period, or its session orders it by time, "
    "or its lambda takes no such payload",
}

_BLANK = "0" * 36
_BEFORE_ID, _, _BEHIND_ID = (
    frontend_pb2.ScheduleResponse(results=[frontend_pb2.ScheduleResult(task_id=_BLANK, created=True)])
    .SerializeToString()
    .partition(_BLANK.encode())
)


def add_created(
    response: frontend_pb2.ScheduleResponse, asked_ids: Sequence[str], answers: Sequence[Scheduled]
) -> bool:
    """Write the answers if all were created under the ids that were asked for, which are as we write ids; else return False.

    They are written as bytes, between the same bytes: to set the fields of each takes four times as long.
    """
    if any(answer.verdict is not Scheduling.CREATED for answer in answers) or not are_canonical(asked_ids):
        return False
    ids = (_BEHIND_ID + _BEFORE_ID).join(map(str.encode, asked_ids))
    response.MergeFromString(_BEFORE_ID + ids + _BEHIND_ID)
    return True


def add_result(response: frontend_pb2.ScheduleResponse, asked_id: str, answer: Scheduled) -> bool:
    """Write one answer; return whether the task is there."""
    verdict = answer.verdict
    if verdict is Scheduling.CREATED:
        # the text came in as it would go out: making it anew would cost as much as all the rest of this
        task_id = asked_id if is_canonical(asked_id) else str(UUID(bytes=answer.task_id))
        response.results.add(task_id=task_id, created=True)
        return True
    task_id = str(UUID(bytes=answer.task_id))
    if verdict is Scheduling.REPEATED:
        response.results.add(task_id=task_id)
        return True
    if verdict in _CONFLICTS:
        response.results.add(task_id=task_id, conflict=_CONFLICTS[verdict])
        return True
    if verdict in _TAKEN:
        problem = Problem("unique.key", _TAKEN[verdict].format(task_id), task_pb2.ERROR_CODE_UNIQUE_KEY_TAKEN)
        response.results.add(task_id=task_id, conflict=task_pb2.ON_CONFLICT_REJECT, error=problem.to_wire())
        return False
    if answer.missing is not None:
        response.results.add(error=not_stored(answer.missing).to_wire())
        return False
    error = _REFUSALS[verdict].to_wire()
    if verdict is not Scheduling.CONFLICT:
        task_id = ""
    else:
        error.message = error.message.replace("another task", f"task {task_id}", 1)
    response.results.add(task_id=task_id, error=error)
    return False
