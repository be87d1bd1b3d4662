"""PoolService: declares pools of workers, and shows what the autoscaler plans for them."""

from collections.abc import Sequence
from contextlib import suppress

from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.errors import InvalidRequestError, StoreUnavailableError
from duly_core.pools import store as store_pools
from duly_core.pools.lease import read_leader
from duly_core.pools.rules import POOL_FIELDS
from duly_core.pools.store import MOST_POOLS, PoolChangedError, TooManyPoolsError
from duly_core.rpc.requests.checks import check_count, page_size
from duly_core.rpc.requests.field_masks import changed_fields
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.stubs import Context
from duly_frontend import events
from duly_frontend.lists import page_token
from duly_frontend.pools.checks import check_pool_name, read_expected, read_named, read_pool
from duly_frontend.pools.notes import notes_on_driver, notes_on_lambdas
from duly_frontend.pools.wire import leader_to_wire, pool_to_wire, status_to_wire
from duly_frontend.stores import FrontendStores
from duly_wire.time_conversion import to_timestamp
from duly_wire.v1 import pools_pb2, pools_pb2_grpc, task_pb2

_MOST = 100


class PoolServicer(pools_pb2_grpc.PoolServiceServicer):
    """Answers each pool for itself; one with an error has changed nothing."""

    def __init__(self, stores: FrontendStores) -> None:
        self._stores = stores

    async def PutPools(  # noqa: N802 (the wire's name)
        self, request: pools_pb2.PutPoolsRequest, _context: Context
    ) -> pools_pb2.PutPoolsResponse:
        check_count("pools", len(request.pools), _MOST)
        results = []
        for new in request.pools:
            try:
                results.append(await self._put(new))
            except Problem as problem:
                results.append(pools_pb2.PutPoolResult(error=problem.to_wire()))
        await self._add_notes(results)
        return pools_pb2.PutPoolsResponse(results=results)

    async def _add_notes(self, results: Sequence[pools_pb2.PutPoolResult]) -> None:
        noted = [each for each in results if {*each.changed_fields.paths} & {"lambdas", "driver"}]
        if not noted:
            return
        with suppress(StoreUnavailableError):  # the pools are changed: an answer without notes is right
            pools = [each.pool for each in await store_pools.list_pools(self._stores.writes)]
            plans = await store_pools.list_plans(self._stores.writes, [pool.name for pool in pools])
            leader = await read_leader(self._stores.writes)
            for result in noted:
                others = [pool for pool in pools if pool.name != result.pool.name]
                for pool in (pool for pool in pools if pool.name == result.pool.name):
                    if "lambdas" in result.changed_fields.paths:
                        result.notes.extend(notes_on_lambdas(pool, others))
                    if "driver" in result.changed_fields.paths:
                        result.notes.extend(notes_on_driver(pool, others, plans, leader))

    async def _put(self, new: pools_pb2.NewPool) -> pools_pb2.PutPoolResult:
        name = new.pool.name
        named, expected = read_named(new), read_expected(new)
        try:
            done = await store_pools.put_pool(
                self._stores.writes, name, lambda before: read_pool(new.pool, before, named), expected
            )
        except TooManyPoolsError:
            raise Problem("name", f"there are {MOST_POOLS} pools, and there may be no more") from None
        except PoolChangedError as error:
            if error.is_gone:
                raise _unknown(name) from None
            raise Problem(
                "expected_changed_at",
                f"somebody changed {name} since it was read: read it again",
                task_pb2.ERROR_CODE_POOL_CONFLICT,
            ) from None
        now = pool_to_wire(done.pool)
        before = pools_pb2.Pool(name=name) if done.before is None else pool_to_wire(done.before)
        changed = FieldMask(paths=changed_fields(before, now, POOL_FIELDS).paths)
        events.pools_changed.inc()
        events.log.info("pool declared", pool=name, maximum=done.pool.maximum, changed=[*changed.paths])
        return pools_pb2.PutPoolResult(
            pool=now,
            changed_at=to_timestamp(done.changed_at),
            created=done.before is None,
            changed_fields=changed,
        )

    async def DeletePools(  # noqa: N802
        self, request: pools_pb2.DeletePoolsRequest, _context: Context
    ) -> pools_pb2.DeletePoolsResponse:
        check_count("names", len(request.names), _MOST)
        for name in request.names:
            check_pool_name(name)
        gone = await store_pools.delete_pools(self._stores.writes, request.names)
        for name in sorted(gone):
            events.pools_changed.inc()
            events.log.info("pool removed", pool=name)
        return pools_pb2.DeletePoolsResponse(
            results=[
                pools_pb2.DeletePoolResult(error=None if name in gone else _unknown(name).to_wire())
                for name in request.names
            ]
        )

    async def ListPools(  # noqa: N802
        self, request: pools_pb2.ListPoolsRequest, _context: Context
    ) -> pools_pb2.ListPoolsResponse:
        size = page_size(request.page_size)
        if len(request.names) > _MOST:
            raise InvalidRequestError("names", f"there may be at most {_MOST}, not {len(request.names):,}")
        for name in request.names:
            check_pool_name(name)
        async with self._stores.listing("ListPools") as lists:
            found = await store_pools.list_pools(
                lists,
                after=page_token.read_name(request.page_token),
                limit=size + 1,
                names=request.names or None,
            )
            shown = found[:size]
            pools = [each.pool for each in shown]
            plans = await store_pools.list_plans(lists, [pool.name for pool in pools])
            workers = await store_pools.workers_of(lists, pools)
            leader = await read_leader(lists)
        return pools_pb2.ListPoolsResponse(
            pools=[
                status_to_wire(each, workers[each.pool.name], plans.get(each.pool.name)) for each in shown
            ],
            next_page_token=page_token.write_name(shown[-1].pool.name) if len(found) > size else "",
            leader=leader_to_wire(leader),
        )


def _unknown(name: str) -> Problem:
    return Problem("name", f"no pool {name!r} is declared", task_pb2.ERROR_CODE_UNKNOWN_POOL)
