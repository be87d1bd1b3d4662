"""GateService: sets gates, and shows them."""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence

from duly.time_conversion import to_duration, to_timestamp
from duly.v1 import gates_pb2, task_pb2
from duly_core.access.current import restriction
from duly_core.access.grants import Scope
from duly_core.access.roles import Action
from duly_core.errors import PermissionDeniedError
from duly_core.gates import EVERYTHING, Gate
from duly_core.lifecycle import Status
from duly_core.routing import base_name
from duly_core.rpc.checks import check_count, check_text
from duly_core.rpc.problem import Problem
from duly_core.rpc.stubs import Context
from duly_core.store import gates as store_gates
from duly_core.store.gates import ListedGate
from duly_core.store.lambdas import list_names
from duly_frontend import events
from duly_frontend.breakers import BreakerCalls
from duly_frontend.convert import STATUS_TO_WIRE
from duly_frontend.gate_checks import KINDS, LONGEST_NAME, MOST, read_gate
from duly_frontend.gate_rights import MOST_OF_OWNER, check_may_set, may_change
from duly_frontend.stores import FrontendStores

_KIND_TO_WIRE = {kind: number for number, kind in KINDS.items()}


class GateServicer(BreakerCalls):
    """Every service hears of a change at once, or within a second."""

    def __init__(self, stores: FrontendStores) -> None:
        self._stores = stores

    async def PutGate(  # noqa: N802 (the wire's name)
        self, request: gates_pb2.PutGateRequest, _context: Context
    ) -> gates_pb2.PutGateResponse:
        asked = read_gate(request)
        is_operator = check_may_set(asked)
        if request.dry_run:
            with self._stores.listing("PutGate") as lists:
                counts, is_truncated = await store_gates.count_hits(lists, asked.scope)
            return gates_pb2.PutGateResponse(
                gate=request.gate,
                hits=[
                    gates_pb2.GateHits(status=STATUS_TO_WIRE[Status(status)], count=count)
                    for status, count in sorted(counts.items())
                ],
                truncated=is_truncated,
            )
        most = store_gates.MOST_GATES if is_operator else MOST_OF_OWNER
        try:
            gate = await store_gates.put_gate(self._stores.writes, asked, may_change, most)
        except store_gates.GateRefusedError:
            message = f"a gate {asked.name!r} is there that somebody else set: choose another name, or ask an operator"
            raise PermissionDeniedError(message) from None
        if gate is None:
            whose = "" if is_operator else f" of {asked.owner!r}"
            raise Problem("gate", f"there are {most:,} gates{whose}: remove some first")
        events.gates_changed.inc()
        events.log.info("gate set", gate=gate.name, kind=str(gate.kind), pattern=gate.scope.pattern)
        return gates_pb2.PutGateResponse(gate=to_wire(gate))

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
        self, _request: gates_pb2.ListGatesRequest, _context: Context
    ) -> gates_pb2.ListGatesResponse:
        scope = restriction(Action.READ)
        with self._stores.listing("ListGates") as lists:
            found = await store_gates.list_gates(lists)
            if scope is not None:
                found = await asyncio.to_thread(_seen, found, scope, await list_names(lists))
        return gates_pb2.ListGatesResponse(gates=[to_wire(each.gate, each.parked) for each in found])


def _seen(found: Sequence[ListedGate], scope: Scope, lambdas: Sequence[str]) -> list[ListedGate]:
    """Return the gates that may hit tasks of lambdas that the scope covers; the lambdas are sorted."""
    names = list(filter(scope.covers, lambdas))
    exact = {*names, *map(base_name, names)}

    def is_seen(pattern: str) -> bool:
        if not pattern.endswith(EVERYTHING):
            return pattern in exact
        prefix = pattern.removesuffix(EVERYTHING)
        place = bisect_left(names, prefix)
        return place < len(names) and names[place].startswith(prefix)

    return [
        each
        for each in found
        if scope.covers_all_that_match(each.gate.scope.pattern) or is_seen(each.gate.scope.pattern)
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


def to_wire(gate: Gate, parked: int = 0) -> gates_pb2.Gate:
    """Return a gate as the wire has it."""
    scope = gates_pb2.GateScope(
        collection=gate.scope.collection or "",
        priority=gate.scope.priority or task_pb2.PRIORITY_UNSPECIFIED,  # type: ignore[arg-type]  # the same numbers
        session=gate.scope.session or "",
    )
    setattr(scope, "lambda", gate.scope.pattern)
    return gates_pb2.Gate(
        name=gate.name,
        kind=_KIND_TO_WIRE.get(gate.kind, gates_pb2.GATE_KIND_PAUSE),
        scope=scope,
        delay=None if gate.delay is None else to_duration(gate.delay),
        reason=gate.reason,
        owner=gate.owner,
        created_at=to_timestamp(gate.created_at),
        expires_at=None if gate.expires_at is None else to_timestamp(gate.expires_at),
        parked=parked,
    )
