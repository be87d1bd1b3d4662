"""The part of AsyncClient that explains tasks."""

from __future__ import annotations

from duly.explain.views import Explanation
from duly.tasks.reads import TaskRef, found_ids
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.v1 import explain_pb2


class ExplainCalls(ClientPart):
    """Asks why tasks do not run."""

    async def explain(self, task: TaskRef, *, history: bool = True) -> Explanation:
        """Return why a task does not run, what to do about it, and, unless `history` is False, what happened to it.

            print((await client.explain(task)).reasons[0].text)

        Raises TaskNotFoundError, InvalidTaskError.
        """
        caller = self._caller
        (task_id,) = await found_ids(self._caller, [task])
        request = explain_pb2.ExplainTaskRequest(task_id=task_id, without_history=not history)
        response = await caller.call(caller.explains.ExplainTask, request)
        error_mapping.check(response)
        return Explanation.from_proto(response)
