"""The part of AsyncClient that is about resources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duly import error_mapping
from duly.client_part import ClientPart
from duly.new_task import aware
from duly.resource import Backlog, Rate, Resource
from duly.time_conversion import to_timestamp
from duly.v1 import limits_pb2


class ResourceCalls(ClientPart):
    """Declares resources, and reads what is used of them."""

    async def resources(self, *, max_keys: int = 0) -> list[Resource]:
        """Return the declared resources by name, each with up to `max_keys` (at most 100) of its keys in use."""
        caller = self._caller
        request = limits_pb2.ListResourcesRequest(max_keys=max_keys)
        pages = caller.pages(caller.limits.ListResources, request)
        return [Resource.from_proto(each) async for page in pages for each in page.resources]

    async def backlog(self, lambdas: Sequence[str] = ()) -> list[Backlog]:
        """Return what is due, runs and is parked of these lambdas, or of all; unknown ones are left out."""
        caller = self._caller
        request = limits_pb2.GetBacklogRequest(lambdas=lambdas)
        response = await caller.call(caller.limits.GetBacklog, request)
        return [Backlog.from_proto(each) for each in response.lambdas]

    async def put_resource(
        self,
        name: str,
        capacity: int | None = None,
        *,
        rate: Rate | None = None,
        per_key: bool = False,
        note: str = "",
        expected_changed_at: datetime | None = None,
    ) -> None:
        """Declare a resource of which tasks take units while they run, or change it.

            await client.put_resource("database", 20)
            await client.put_resource("mail", rate=duly.Rate(10, burst=5))
            await client.schedule("report.make", resources=["database"])

        - `capacity`: how many units tasks may take at a time. More releases tasks that wait; less lets those that
          run end; 0 holds back every task that names it. None: only the rate limits them.
        - `rate`: how many units tasks may start to use over time. What is too early is put off to its start time.
        - `per_key`: each key has as many units of its own. It cannot change while tasks hold units.
        - `expected_changed_at`: only if this is still its `changed_at`, so that nobody changed it since you read it.

        Raises ResourceInUseError, InvalidTaskError; with `expected_changed_at` also ResourceConflictError, UnknownResourceError.
        """
        caller = self._caller
        limit = limits_pb2.ResourceLimit(name=name, capacity=capacity, per_key=per_key, note=note)
        if rate is not None:
            limit.rate.CopyFrom(limits_pb2.ResourceRate(**rate.to_fields()))
        request = limits_pb2.PutResourceRequest(resources=[limit])
        if expected_changed_at is not None:
            expected = aware("expected_changed_at", expected_changed_at)
            request.expected_changed_at[name].CopyFrom(to_timestamp(expected))
        (result,) = (await caller.call(caller.limits.PutResource, request)).results
        error_mapping.check(result)

    async def delete_resource(self, name: str) -> None:
        """Remove a resource that no task holds or waits for; what still names it runs without its limit.

        Raises UnknownResourceError, ResourceInUseError, InvalidTaskError.
        """
        caller = self._caller
        request = limits_pb2.DeleteResourceRequest(names=[name])
        (result,) = (await caller.call(caller.limits.DeleteResource, request)).results
        error_mapping.check(result)
