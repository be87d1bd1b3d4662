"""The calls of InspectionService: a task with its payload, and the activity of Duly."""

from __future__ import annotations

from duly.fleet.activity import Activity
from duly.tasks.reads import TaskRef, found_ids
from duly.tasks.task import Task
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.v1 import inspection_pb2


class InspectionCalls(ClientPart):
    """Reads for people."""

    async def reveal(self, task: TaskRef, *, reason: str = "") -> Task:
        """Return a task with payload, result, checkpoint and tracebacks; the call is written into the audit log.

        - `reason`: for the audit log, at most 1,024 bytes.

        `get` returns the same without an audit event: programs read their results with it. Raises TaskNotFoundError,
        PermissionDeniedError.
        """
        caller = self._caller
        (task_id,) = await found_ids(self._caller, [task])
        request = inspection_pb2.RevealTaskRequest(task_id=task_id, reason=reason)
        response = await caller.call(caller.inspection.RevealTask, request)
        error_mapping.check(response)
        return Task.from_proto(response.revealed_task, caller.codec)

    async def activity(self) -> Activity:
        """Return how much work comes and goes, and how late tasks start. Raises PermissionDeniedError."""
        caller = self._caller
        request = inspection_pb2.GetActivityRequest()
        return Activity.from_proto(await caller.call(caller.inspection.GetActivity, request))
