"""What names a task besides its id: the idempotency key that it was scheduled with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duly.callbacks.lambda_of import name_of
from duly.errors import DulyError, TaskNotFoundError
from duly.transport import error_mapping
from duly_wire.v1 import frontend_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from duly.transport.caller import Caller

_KEYS_PER_CALL = 100


@dataclass(frozen=True, slots=True)
class TaskKey:
    """A lambda, or its callback, and an idempotency key; accepted wherever a task id is.

        client.get(duly.TaskKey("mail.send", "order-7"))

    The client asks for the id first. A key names its task until the task is removed, some days after its end.
    """

    lambda_name: str | Callable[..., Any]
    key: str

    def __str__(self) -> str:
        return f"{name_of(self.lambda_name)} with the key {self.key!r}"


async def find(caller: Caller, keys: Sequence[TaskKey]) -> dict[TaskKey, str | DulyError]:
    """Return the ids of the tasks that have these keys; for one that no task has, or that cannot be a key, the error."""
    found: dict[TaskKey, str | DulyError] = {}
    wanted = list(dict.fromkeys(keys))
    for start in range(0, len(wanted), _KEYS_PER_CALL):
        some = wanted[start : start + _KEYS_PER_CALL]
        request = frontend_pb2.FindTaskRequest()
        for each in some:
            request.keys.add(**{"lambda": name_of(each.lambda_name), "idempotency_key": each.key})
        response = await caller.call(caller.frontend.FindTask, request)
        for each, result in zip(some, response.results, strict=True):
            found[each] = result.task_id or _error(each, result)
    return found


def _error(key: TaskKey, result: frontend_pb2.FindTaskResult) -> DulyError:
    error = error_mapping.from_item(result.error)
    if isinstance(error, TaskNotFoundError):
        return TaskNotFoundError(
            f"there is no task of {key}: never scheduled with it, or removed some days after its end"
        )
    return error
