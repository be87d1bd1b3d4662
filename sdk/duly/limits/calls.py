"""The part of AsyncClient that is about resources."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from google.protobuf.field_mask_pb2 import FieldMask

from duly.errors import InvalidTaskError
from duly.keep import KEEP, Keep, said
from duly.limits.resource import Backlog, DeclaredResource, Rate, Resource
from duly.tasks.new_task import aware
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import limits_pb2


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
        capacity: int | Keep | None = KEEP,
        *,
        rate: Rate | Keep | None = KEEP,
        burst: int | Keep | None = KEEP,
        per_key: bool | Keep = KEEP,
        note: str | Keep | None = KEEP,
        expected_changed_at: datetime | None = None,
    ) -> DeclaredResource:
        """Declare a resource of which tasks take units while they run, or change it.

            await client.put_resource("database", 20)
            await client.put_resource("mail", rate=duly.Rate(10, burst=5))
            await client.put_resource("mail", rate=duly.Rate(20))  # the burst stays
            await client.schedule("report.make", resources=["database"])

        What is not given stays as it is; a new resource gets its default. None removes a value.

        - `capacity`: how many units tasks may take at a time. More releases tasks that wait; less lets those that
          run end; 0 holds back every task that names it. None: only the rate limits them.
        - `rate`: how many units tasks may start to use over time. What is too early is put off to its start time. None
          removes the rate with its burst.
        - `burst`: that of the rate that is there, or of `rate`. None: 1.
        - `per_key`: each key has as many units of its own. It cannot change while tasks hold units.
        - `expected_changed_at`: only if this is still its `changed_at`, so that nobody changed it since you read it.

        Raises ResourceInUseError, InvalidTaskError (also for a resource without any limit, and a burst without a rate); with
        `expected_changed_at` also ResourceConflictError, UnknownResourceError.
        """
        caller = self._caller
        limit, mask = limits_pb2.ResourceLimit(name=name), FieldMask()
        for field, value in said({"capacity": capacity, "per_key": per_key, "note": note}):
            mask.paths.append(field)
            if value is not None:
                setattr(limit, field, value)
        if isinstance(rate, Rate):
            limit.rate.CopyFrom(limits_pb2.ResourceRate(**rate.to_fields()))
            mask.paths.extend(["rate.units", "rate.period"] + ([] if rate.burst is None else ["rate.burst"]))
        elif rate is None:
            mask.paths.append("rate")
        if not isinstance(burst, Keep):
            if rate is None or (isinstance(rate, Rate) and rate.burst is not None):
                raise InvalidTaskError(
                    "say either rate or burst: rate has a burst of its own, or is removed", "burst"
                )
            mask.paths.append("rate.burst")
            if burst is not None:
                limit.rate.burst = burst
        if not mask.paths:
            raise InvalidTaskError(
                f"say what to change of the resource {name!r}: capacity, or rate ...", "capacity"
            )
        request = limits_pb2.PutResourceRequest(resources=[limit])
        request.update_masks[name].CopyFrom(mask)
        if expected_changed_at is not None:
            expected = aware("expected_changed_at", expected_changed_at)
            request.expected_changed_at[name].CopyFrom(to_timestamp(expected))
        (result,) = (await caller.call(caller.limits.PutResource, request)).results
        error_mapping.check(result)
        return DeclaredResource.from_proto(result)

    async def delete_resource(self, name: str) -> None:
        """Remove a resource that no task holds or waits for; what still names it runs without its limit.

        Raises UnknownResourceError, ResourceInUseError, InvalidTaskError.
        """
        caller = self._caller
        request = limits_pb2.DeleteResourceRequest(names=[name])
        (result,) = (await caller.call(caller.limits.DeleteResource, request)).results
        error_mapping.check(result)
