"""The calls of InspectionService: a task with its payload, the activity of Duly, what is promised, and searches."""

from __future__ import annotations

from duly.fleet.activity import Activity
from duly.search.hit import SearchHit
from duly.slo.views import ServiceLevel
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

    async def service_levels(self, *, lambda_name: str = "", cell: str = "") -> list[ServiceLevel]:
        """Return how what is promised is kept: runs that begin on time, by lambda, and calls that are accepted.

            for level in await client.service_levels():
                print(level.indicator.name, level.lambda_name, level.window.share, level.budget_left)

        - `lambda_name`: only this one, whether it had runs or not. Without it: calls, all lambdas together without those that
          have an objective of their own, then each that had runs.
        - `cell`: only runs and calls of this cell; without cells it is refused.

        Without a role for all lambdas you see those that you may read. Raises InvalidTaskError (there is no such lambda),
        PermissionDeniedError.
        """
        caller = self._caller
        request = inspection_pb2.GetServiceLevelsRequest(cell=cell)
        setattr(request, "lambda", lambda_name)
        answer = await caller.call(caller.inspection.GetServiceLevels, request)
        return [ServiceLevel.from_proto(each) for each in answer.levels]

    async def search(self, text: str, *, limit: int = 5) -> list[SearchHit]:
        """Return what a text may mean, by kind: a part of an id, a name, a key, a failure. Only what the caller may read is found.

        - `text`: four or more digits of the id of a task or graph, its begin or its end, or both with `…` between; a part of the name of a
          lambda, graph or host; the begin of the key of a session; a whole idempotency key or unique key; an attribute as in `order=17`; a part of an exception or
          its message, or the fingerprint of a cause.
        - `limit`: of each kind, 1 to 20.

        The cost is bounded, so not all is found. The ends of ids are sought among the newest. Of an attribute the newest 10,000
        tasks are read, those that the caller may not read among them. Raises PermissionDeniedError.
        """
        caller = self._caller
        request = inspection_pb2.SearchRequest(text=text, limit=limit)
        response = await caller.call(caller.inspection.Search, request)
        return [SearchHit.from_proto(each) for each in response.hits]
