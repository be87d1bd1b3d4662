"""Finds tasks by the idempotency keys that they were scheduled with."""

from collections.abc import Sequence

from duly_core.access.roles import Action
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_text
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem, check_each
from duly_core.tasks.store import find_by_keys
from duly_frontend.access.reach import reachable
from duly_frontend.tasks.wire import NO_SUCH_TASK
from duly_wire.ids import TaskId
from duly_wire.v1 import frontend_pb2

_LONGEST_KEY = 255


async def find(store: Store, asked: Sequence[frontend_pb2.TaskKey]) -> Sequence[TaskId | Problem]:
    """Return the tasks of keys, in order. What the caller may not read is answered as what does not exist.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    read = check_each(_key, asked)
    keys = [each for each in read if not isinstance(each, Problem)]
    found = iter(await find_by_keys(store, keys) if keys else ())
    ids = [each if isinstance(each, Problem) else next(found) or NO_SUCH_TASK for each in read]
    return await reachable(store, Action.READ, ids)


def _key(asked: frontend_pb2.TaskKey) -> tuple[str, str]:
    """Return the lambda and the key.

    Raises:
        Problem: no task can have been scheduled so.
    """
    name: str = getattr(asked, "lambda")
    check_lambda_name("lambda", name)
    check_text("idempotency_key", asked.idempotency_key, _LONGEST_KEY, least=1)
    return name, asked.idempotency_key
