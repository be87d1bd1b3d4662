"""The part of AsyncClient that is about pools of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from duly.errors import InvalidTaskError
from duly.keep import KEEP, Keep, said
from duly.pools.pool import AutoscalerLeader, DeclaredPool, WorkerPool
from duly.tasks.new_task import aware
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly.transport.message_fields import view
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import pools_pb2


class PoolCalls(ClientPart):
    """Declares pools of workers, and reads what the autoscaler plans for them."""

    async def pools(self, names: Sequence[str] = ()) -> list[WorkerPool]:
        """Return pools by name, with their workers and plans: these, or all; unknown ones are left out."""
        caller = self._caller
        request = pools_pb2.ListPoolsRequest(names=names)
        pages = caller.pages(caller.pools.ListPools, request)
        return [WorkerPool.from_proto(each) async for page in pages for each in page.pools]

    async def autoscaler_leader(self) -> AutoscalerLeader | None:
        """Return which autoscaler leads, or led last; None: none ever did."""
        caller = self._caller
        answer = await caller.call(caller.pools.ListPools, pools_pb2.ListPoolsRequest(page_size=1))
        return view(AutoscalerLeader, answer.leader) if answer.HasField("leader") else None

    async def put_pool(  # noqa: PLR0913 (a pool has so many fields)
        self,
        name: str,
        *,
        lambdas: Sequence[str] | Keep = KEEP,
        maximum: int | Keep = KEEP,
        minimum: int | Keep | None = KEEP,
        driver: str | Keep = KEEP,
        driver_settings: Mapping[str, str] | Keep | None = KEEP,
        slots: int | Keep | None = KEEP,
        labels: Sequence[str] | Keep | None = KEEP,
        target_age: timedelta | Keep | None = KEEP,
        idle_time: timedelta | Keep | None = KEEP,
        budget: timedelta | Keep | None = KEEP,
        note: str | Keep | None = KEEP,
        expected_changed_at: datetime | None = None,
    ) -> DeclaredPool:
        """Declare a pool of workers, which the autoscaler starts and ends, or change it.

            await client.put_pool("mail", lambdas=["mail.*"], maximum=20, driver="local")
            await client.put_pool("mail", maximum=40)

        What is not given stays as it is. A new pool needs lambdas, maximum and driver. None sets the default.

        - `lambdas`: what its workers run: names, or prefixes that end with `*`.
        - `minimum`, `maximum`: how many workers run at least (default 0) and at most.
        - `driver`: a driver of the autoscaler's own settings. `driver_settings`: what it is told of this pool.
        - `slots`: callbacks at a time that the plan assumes of a worker; while one runs, its own number counts. Default: 1.
        - `labels`: what its workers have. Tasks that require others do not count for it.
        - `target_age`: how long a due task may wait for a worker. Default: 30 s.
        - `idle_time`: how long fewer workers must be enough before some are ended. Default: 1 min.
        - `budget`: worker time in a day of UTC. When it is used up, only the minimum runs. Default: no limit.
        - `expected_changed_at`: only if this is still its `changed_at`, so that nobody changed it since you read it.

        Raises InvalidTaskError; with `expected_changed_at` also PoolConflictError, UnknownPoolError.
        """
        caller = self._caller
        pool, mask = pools_pb2.Pool(name=name), FieldMask()
        named: Mapping[str, Any] = {
            "lambdas": lambdas,
            "maximum": maximum,
            "minimum": minimum,
            "driver": driver,
            "driver_settings": driver_settings,
            "slots": slots,
            "labels": labels,
            "target_age": target_age,
            "idle_time": idle_time,
            "budget": budget,
            "note": note,
        }
        for field, value in said(named):
            mask.paths.append(field)
            if value is not None:
                _set(pool, field, value)
        if not mask.paths:
            raise InvalidTaskError(
                f"say what to change of the pool {name!r}: maximum, lambdas ...", "maximum"
            )
        new = pools_pb2.NewPool(pool=pool, update_mask=mask)
        if expected_changed_at is not None:
            new.expected_changed_at.CopyFrom(to_timestamp(aware("expected_changed_at", expected_changed_at)))
        request = pools_pb2.PutPoolsRequest(pools=[new])
        (result,) = (await caller.call(caller.pools.PutPools, request)).results
        error_mapping.check(result)
        return DeclaredPool.from_proto(result)

    async def delete_pool(self, name: str) -> None:
        """Remove a pool: the autoscaler starts and ends no worker of it any more. Its workers go on.

        Raises UnknownPoolError, InvalidTaskError.
        """
        caller = self._caller
        request = pools_pb2.DeletePoolsRequest(names=[name])
        (result,) = (await caller.call(caller.pools.DeletePools, request)).results
        error_mapping.check(result)


def _set(pool: pools_pb2.Pool, field: str, value: Any) -> None:
    if field in ("lambdas", "labels"):
        if isinstance(value, str):
            raise InvalidTaskError(f"{field} must be a list: [{value!r}]", field)
        getattr(pool, field).extend(value)
    elif field == "driver_settings":
        pool.driver_settings.update(value)
    elif isinstance(value, timedelta):
        getattr(pool, field).CopyFrom(to_duration(value))
    else:
        setattr(pool, field, value)
