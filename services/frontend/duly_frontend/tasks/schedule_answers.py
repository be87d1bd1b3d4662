"""From the store's answer to a new task to the wire's."""

from uuid import UUID

from duly_core.rpc.requests.attachment_uses import not_stored
from duly_core.rpc.requests.new_tasks import is_canonical
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
        "another task has this key or id, with another lambda, payload, priority, collection, session, resources, fair key or attachments: "
        "use another key for another task",
        task_pb2.ERROR_CODE_KEY_CONFLICT,
    ),
}


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
