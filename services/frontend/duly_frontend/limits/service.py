"""LimitService: declares resources, and shows what is used of them."""

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.access.current import current_access, require, restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.counting.backlog import LambdaBacklog, read_backlog
from duly_core.errors import InvalidRequestError
from duly_core.lambdas.names import DEFAULT_NAMESPACE, namespace_of
from duly_core.lambdas.store import list_names
from duly_core.limits import store as store_resources
from duly_core.limits.changes import Contradiction, NotPut, ResourceChange, put_resource
from duly_core.limits.store import (
    DOMAIN_QUOTA,
    NAMESPACE_QUOTA,
    NAMESPACE_SCHEDULING,
    UNLIMITED,
    Deletion,
    KeyState,
    ResourceLimit,
    ResourceState,
    bare_name,
    is_quota,
)
from duly_core.postgres.notifications import Notifier
from duly_core.postgres.pool import Store
from duly_core.rpc.requests.checks import check_count, page_size
from duly_core.rpc.requests.field_masks import is_set
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_core.rpc.stubs import Context
from duly_frontend import events
from duly_frontend.limits.checks import (
    check_names_in,
    check_resource_name,
    contradiction,
    not_put,
    read_change,
    read_expected,
)
from duly_frontend.limits.scheduling_quotas import SchedulingQuotas
from duly_frontend.lists.restricted import read_page
from duly_frontend.stores import FrontendStores
from duly_wire.v1 import limits_pb2, limits_pb2_grpc, task_pb2

_MOST = 100
_LOOKED_AT = 500
"""Resources that one call looks at for a caller who may see some of them."""
_OF_NAMESPACES = (NAMESPACE_QUOTA, NAMESPACE_SCHEDULING)


class LimitServicer(limits_pb2_grpc.LimitServiceServicer):
    """Answers each resource for itself; one with an error has changed nothing."""

    def __init__(
        self, stores: FrontendStores, known: ResourceCache, quotas: SchedulingQuotas, notifier: Notifier
    ) -> None:
        self._stores = stores
        self._known = known
        self._quotas = quotas
        self._notifier = notifier

    async def PutResource(  # noqa: N802 (the wire's name)
        self, request: limits_pb2.PutResourceRequest, _context: Context
    ) -> limits_pb2.PutResourceResponse:
        check_count("resources", len(request.resources), _MOST)
        expected = read_expected(request)
        check_names_in("update_masks", request.update_masks, request)
        results = []
        for asked in request.resources:
            try:
                change = read_change(asked, request.update_masks.get(asked.name))
                results.append(await self._put(change, expected.get(asked.name)))
            except Problem as problem:
                results.append(limits_pb2.PutResourceResult(error=problem.to_wire()))
        return limits_pb2.PutResourceResponse(results=results)

    async def _put(
        self, change: ResourceChange, expected_changed_at: datetime | None
    ) -> limits_pb2.PutResourceResult:
        done = await put_resource(
            self._stores.writes, change, expected_changed_at, set_by=current_access().principal
        )
        self._forget()
        if isinstance(done, NotPut):
            raise not_put(change.name, done)
        if isinstance(done, Contradiction):
            raise contradiction(change, done.field)
        events.resources_changed.inc()
        events.log.info(
            "resource declared", resource=change.name, capacity=done.limit.capacity, changed=[*done.changed]
        )
        self._tell(done.released)
        limit = _limit_to_wire(done.limit)
        result = limits_pb2.PutResourceResult(
            limit=limit,
            created=done.is_created,
            changed_fields=FieldMask(
                paths=[each for each in done.changed if not done.is_created or is_set(limit, each)]
            ),
        )
        result.changed_at.FromDatetime(done.changed_at)
        return result

    def _tell(self, lambdas: Collection[str]) -> None:
        if lambdas:
            self._notifier.due_in(timedelta(), lambdas, len(lambdas))

    async def DeleteResource(  # noqa: N802
        self, request: limits_pb2.DeleteResourceRequest, _context: Context
    ) -> limits_pb2.DeleteResourceResponse:
        check_count("names", len(request.names), _MOST)
        results = []
        gone: set[str] = set()
        for name in request.names:
            try:
                check_resource_name(name)
                await self._delete(name, gone)
                results.append(limits_pb2.DeleteResourceResult())
            except Problem as problem:
                results.append(limits_pb2.DeleteResourceResult(error=problem.to_wire()))
        self._tell(await store_resources.end_delays(self._stores.writes, sorted(gone)))
        return limits_pb2.DeleteResourceResponse(results=results)

    def _forget(self) -> None:
        self._known.forget()
        self._quotas.forget()

    async def _delete(self, name: str, gone: set[str]) -> None:
        """Remove a resource, and add its name to `gone`: what its rate put off is to be due."""
        deletion = await store_resources.delete_resource(self._stores.writes, name)
        self._forget()
        if deletion is not Deletion.IN_USE:  # one that is gone, too: a call before may not have come so far
            gone.add(name)
        if deletion is Deletion.UNKNOWN:
            raise Problem("name", f"no resource {name!r} is declared", task_pb2.ERROR_CODE_UNKNOWN_RESOURCE)
        if deletion is Deletion.IN_USE:
            raise Problem(
                "name",
                f"{name} is in use: wait until no task holds it or waits for it, or cancel those",
                task_pb2.ERROR_CODE_RESOURCE_IN_USE,
            )
        events.resources_changed.inc()
        events.log.info("resource removed", resource=name)

    async def ListResources(  # noqa: N802
        self, request: limits_pb2.ListResourcesRequest, _context: Context
    ) -> limits_pb2.ListResourcesResponse:
        size = page_size(request.page_size)
        if not 0 <= request.max_keys <= _MOST:
            raise InvalidRequestError("max_keys", f"must be from 0 to {_MOST:,}")
        scope = restriction(Action.READ)
        most_keys = 0 if scope is not None else request.max_keys  # they name what others lock
        async with self._stores.listing("ListResources") as lists:
            seen, token = await read_page(
                request.page_token,
                size,
                size if scope is None else _LOOKED_AT,
                lambda after, skipped, limit: store_resources.list_resources(
                    lists, after=after, skipped=skipped, limit=limit
                ),
                lambda each: each if scope is None or _is_seen(scope, each.limit.name) else None,
                lambda each: each.limit.name,
            )
            shown = [_to_wire(each, await _keys(lists, each, most_keys)) for each in seen]
        return limits_pb2.ListResourcesResponse(resources=shown, next_page_token=token)

    async def GetBacklog(  # noqa: N802
        self, request: limits_pb2.GetBacklogRequest, _context: Context
    ) -> limits_pb2.GetBacklogResponse:
        if len(request.lambdas) > _MOST:
            raise InvalidRequestError(
                "lambdas", f"there may be at most {_MOST}, not {len(request.lambdas):,}"
            )
        for place, name in enumerate(request.lambdas):
            check_lambda_name(f"lambdas[{place}]", name)
            require(Action.READ, name)
        names: Sequence[str] | None = request.lambdas or None
        scope = restriction(Action.READ)
        async with self._stores.listing("GetBacklog") as lists:
            if names is None and scope is not None:
                known = await list_names(lists)
                names = await asyncio.to_thread(lambda: list(filter(scope.covers, known)))
            found = await read_backlog(lists, names)
        return limits_pb2.GetBacklogResponse(lambdas=map(_backlog, found))


def _is_seen(scope: Scope, name: str) -> bool:
    """Tell whether a resource is for all, or of a lambda or a whole namespace that the caller may see. A domain is for all."""
    if name.startswith(DOMAIN_QUOTA):
        return True
    if not is_quota(name):
        namespace = namespace_of(name)
        return not namespace or scope.covers_some_of(namespace)
    if name.startswith(_OF_NAMESPACES):
        namespace = bare_name(name)
        return scope.covers("" if namespace == DEFAULT_NAMESPACE else f"{namespace}/")
    return scope.covers(bare_name(name))


def _backlog(each: LambdaBacklog) -> limits_pb2.LambdaBacklog:
    message = limits_pb2.LambdaBacklog(
        ready=each.ready, enqueued=each.enqueued, held=each.held, parked=each.parked
    )
    setattr(message, "lambda", each.lambda_name)
    if each.ready_since is not None:
        message.ready_since.FromDatetime(each.ready_since)
    return message


async def _keys(store: Store, state: ResourceState, most: int) -> list[KeyState]:
    if not most or not state.limit.per_key:
        return []
    return await store_resources.list_keys(store, state.limit.name, limit=most)


def _to_wire(state: ResourceState, keys: Sequence[KeyState]) -> limits_pb2.Resource:
    limit = state.limit
    message = limits_pb2.Resource(
        limit=_limit_to_wire(limit),
        used=state.used,
        parked=state.parked,
        keys=[limits_pb2.ResourceKey(key=each.key, used=each.used, parked=each.parked) for each in keys],
    )
    message.changed_at.FromDatetime(state.changed_at)
    message.set_by = state.set_by
    if state.declaration is not None:
        declaration = state.declaration
        message.declaration.CopyFrom(
            limits_pb2.ResourceDeclaration(owner=declaration.owner, version=declaration.version)
        )
    if state.starts_until is not None:
        message.starts_until.FromDatetime(state.starts_until)
    return message


def _limit_to_wire(limit: ResourceLimit) -> limits_pb2.ResourceLimit:
    message = limits_pb2.ResourceLimit(
        name=limit.name,
        capacity=None if limit.rate and limit.capacity == UNLIMITED else limit.capacity,
        per_key=limit.per_key,
        note=limit.note,
    )
    if limit.rate is not None:
        message.rate.units, message.rate.burst = limit.rate.units, limit.rate.burst
        message.rate.period.FromTimedelta(limit.rate.period)
    return message
