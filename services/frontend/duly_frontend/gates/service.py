"""GateService: sets gates, and shows them."""

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import islice, takewhile

from duly_core.access.current import restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.errors import PermissionDeniedError
from duly_core.gates import breakers as store_breakers
from duly_core.gates import store as store_gates
from duly_core.gates.rules import Gate
from duly_core.gates.store import ListedGate, NewGate
from duly_core.lambdas.names import base_name
from duly_core.lambdas.patterns import covers, is_prefix, shared
from duly_core.lambdas.store import list_names
from duly_core.rpc.requests.checks import check_count, check_text
from duly_core.rpc.requests.field_masks import changed_fields, merged, named_fields
from duly_core.rpc.requests.names import check_lambda_name
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.stubs import Context
from duly_core.tasks.lifecycle import Status
from duly_frontend import events
from duly_frontend.gates.breakers import BREAKER_FIELDS, breaker_to_wire, deleted_breaker, read_breaker
from duly_frontend.gates.checks import (
    GATE_FIELDS,
    LONGEST_NAME,
    MOST,
    check_pattern,
    read_gate,
    read_named,
)
from duly_frontend.gates.rights import check_may_set, may_change, most_gates
from duly_frontend.gates.wire import to_wire
from duly_frontend.stores import FrontendStores
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.v1 import gates_pb2, gates_pb2_grpc, task_pb2


class GateServicer(gates_pb2_grpc.GateServiceServicer):
    """Every service hears of a change at once, or within a second."""

    def __init__(self, stores: FrontendStores) -> None:
        self._stores = stores

    async def PutGate(  # noqa: N802 (the wire's name)
        self, request: gates_pb2.PutGateRequest, _context: Context
    ) -> gates_pb2.PutGateResponse:
        named, name = read_named(request), request.gate.name

        def make(before: Gate | None) -> NewGate:
            asked = read_gate(request, before, named)
            check_may_set(asked)
            return asked

        most, most_of_one = most_gates()
        try:
            if request.dry_run:
                return await self._count(request, named, make)
            done = await store_gates.put_gate(self._stores.writes, name, make, may_change, most_of_one, most)
        except store_gates.GateRefusedError:
            message = (
                f"a gate {name!r} is there that somebody else set: choose another name, or ask an operator"
            )
            raise PermissionDeniedError(message) from None
        if done is None:
            whose = f"you may have {most_of_one:,} gates, and " if most_of_one < most else ""
            raise Problem("gate", f"{whose}there may be {most:,} gates in all: remove some first")
        gate, before = done
        after = to_wire(gate)
        changed = changed_fields(gates_pb2.Gate() if before is None else to_wire(before), after, GATE_FIELDS)
        events.gates_changed.inc()
        events.log.info(
            "gate set",
            gate=gate.name,
            kind=str(gate.kind),
            pattern=gate.scope.pattern,
            changed=[*changed.paths],
        )
        return gates_pb2.PutGateResponse(gate=after, created=before is None, changed_fields=changed)

    async def _count(
        self,
        request: gates_pb2.PutGateRequest,
        named: frozenset[str],
        make: Callable[[Gate | None], NewGate],
    ) -> gates_pb2.PutGateResponse:
        """Count what the gate would hit, as the request changes it."""
        name = request.gate.name
        async with self._stores.listing("PutGate") as lists:
            before = await store_gates.gate_in_force(lists, name, may_change) if name else None
            asked = make(before)
            counts, is_truncated = await store_gates.count_hits(lists, asked.scope)
        current = gates_pb2.Gate(name=name) if before is None else to_wire(before)
        to_be = merged(current, request.gate, named)
        return gates_pb2.PutGateResponse(
            gate=to_be,
            changed_fields=changed_fields(current, to_be, GATE_FIELDS),
            hits=[
                gates_pb2.GateHits(status=STATUS_TO_WIRE[Status(status)], count=count)
                for status, count in sorted(counts.items())
            ],
            truncated=is_truncated,
            created=before is None,
        )

    async def DeleteGates(  # noqa: N802
        self, request: gates_pb2.DeleteGatesRequest, _context: Context
    ) -> gates_pb2.DeleteGatesResponse:
        check_count("names", len(request.names), MOST)
        for name in request.names:
            check_text("names", name, LONGEST_NAME)
        gone, refused = await store_gates.delete_gates(self._stores.writes, [*request.names], may_change)
        seen = restriction(Action.READ)
        denied = {
            each.name for each in refused if seen is None or seen.covers_all_that_match(each.scope.pattern)
        }
        events.gates_changed.inc(len(gone))
        for name in sorted(gone):
            events.log.info("gate removed", gate=name)
        return gates_pb2.DeleteGatesResponse(results=[_deleted(name, gone, denied) for name in request.names])

    async def ListGates(  # noqa: N802
        self, request: gates_pb2.ListGatesRequest, _context: Context
    ) -> gates_pb2.ListGatesResponse:
        scope = restriction(Action.READ)
        name: str = getattr(request, "lambda")
        if name:
            check_pattern("lambda", name)
        async with self._stores.listing("ListGates") as lists:
            found = await store_gates.list_gates(lists)
            if name:
                found = [each for each in found if shared(each.gate.scope.pattern, name)]
            if scope is not None:
                found = await asyncio.to_thread(_seen, found, scope, await list_names(lists))
        return gates_pb2.ListGatesResponse(gates=[to_wire(each.gate, each.parked) for each in found])

    async def PutBreaker(  # noqa: N802 (the wire's name)
        self, request: gates_pb2.PutBreakerRequest, _context: Context
    ) -> gates_pb2.PutBreakerResponse:
        name: str = getattr(request.breaker, "lambda")
        check_lambda_name("breaker.lambda", name)
        mask = request.update_mask if request.HasField("update_mask") else None
        named = named_fields("update_mask", mask, request.breaker, BREAKER_FIELDS)
        done = await store_breakers.put_breaker(
            self._stores.writes, name, lambda before: read_breaker(request.breaker, before, named)
        )
        if done is None:
            raise Problem(
                "breaker", f"there are {store_breakers.MOST_BREAKERS:,} breakers: remove some first"
            )
        after = breaker_to_wire(done.breaker)
        before = gates_pb2.Breaker() if done.before is None else breaker_to_wire(done.before)
        changed = changed_fields(before, after, BREAKER_FIELDS)
        events.gates_changed.inc()
        events.log.info(
            "breaker set",
            **{"lambda": name},
            failure_rate=done.breaker.failure_rate,
            changed=[*changed.paths],
        )
        return gates_pb2.PutBreakerResponse(
            breaker=after, created=done.before is None, changed_fields=changed
        )

    async def DeleteBreakers(  # noqa: N802
        self, request: gates_pb2.DeleteBreakersRequest, _context: Context
    ) -> gates_pb2.DeleteBreakersResponse:
        check_count("lambdas", len(request.lambdas), MOST)
        for name in request.lambdas:
            check_text("lambdas", name, LONGEST_NAME)
        gone = await store_breakers.delete_breakers(self._stores.writes, [*request.lambdas])
        events.gates_changed.inc(len(gone))
        for name in sorted(gone):
            events.log.info("breaker removed", **{"lambda": name})
        return gates_pb2.DeleteBreakersResponse(
            results=[deleted_breaker(name, gone) for name in request.lambdas]
        )

    async def ListBreakers(  # noqa: N802
        self, _request: gates_pb2.ListBreakersRequest, _context: Context
    ) -> gates_pb2.ListBreakersResponse:
        scope = restriction(Action.READ)
        async with self._stores.listing("ListBreakers") as lists:
            found = await store_breakers.list_breakers(lists)
        seen = [each for each in found if scope is None or scope.covers(each.lambda_name)]
        return gates_pb2.ListBreakersResponse(breakers=map(breaker_to_wire, seen))


def _seen(found: Sequence[ListedGate], scope: Scope, lambdas: Sequence[str]) -> list[ListedGate]:
    """Return the gates that may hit tasks of lambdas that the scope covers; the lambdas are sorted.

    Of a gate that reaches further it is not told how many tasks are parked: they may be those of others.
    """
    names = list(filter(scope.covers, lambdas))
    exact = {*names, *map(base_name, names)}

    def is_seen(pattern: str) -> bool:
        if not is_prefix(pattern):
            return pattern in exact
        # names that go on from a prefix with a slash are of another namespace, and stand between those that it covers
        first = bisect_left(names, pattern[:-1])
        behind = islice(names, first, None)
        return any(
            covers(pattern, name) for name in takewhile(lambda name: name.startswith(pattern[:-1]), behind)
        )

    own = {each for each in found if scope.covers_all_that_match(each.gate.scope.pattern)}
    return [
        each if each in own else each._replace(parked=0)
        for each in found
        if each in own or is_seen(each.gate.scope.pattern)
    ]


def _deleted(name: str, gone: set[str], denied: set[str]) -> gates_pb2.DeleteGateResult:
    if name in gone:
        return gates_pb2.DeleteGateResult()
    if name in denied:
        problem = Problem(
            "name",
            f"somebody else set the gate {name!r}: only an operator may remove it",
            task_pb2.ERROR_CODE_PERMISSION_DENIED,
        )
        return gates_pb2.DeleteGateResult(error=problem.to_wire())
    problem = Problem(
        "name",
        f"there is no gate {name!r}: `duly gates list` has their names",
        task_pb2.ERROR_CODE_UNKNOWN_GATE,
    )
    return gates_pb2.DeleteGateResult(error=problem.to_wire())
