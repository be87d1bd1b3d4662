"""GateService: sets gates and breakers, and shows them."""

from datetime import timedelta

from duly.enums import Priority
from duly.time_conversion import to_duration, to_timestamp
from duly.v1 import gates_pb2, gates_pb2_grpc, task_pb2
from duly_core.access.current import current_access, restriction
from duly_core.access.grants import pattern_problem
from duly_core.access.roles import Action
from duly_core.gates import EVERYTHING, Gate, GateScope, Kind
from duly_core.lifecycle import Status
from duly_core.rpc.checks import check_count, check_text, read_duration, read_instant
from duly_core.rpc.names import check_lambda_name, check_name
from duly_core.rpc.problem import Problem
from duly_core.rpc.stubs import Context
from duly_core.store import gates as store_gates
from duly_core.store.gates import NewGate
from duly_core.store.lambdas import list_lambdas
from duly_frontend import events
from duly_frontend.convert import STATUS_TO_WIRE
from duly_frontend.stores import FrontendStores

_MOST = 100
_LONGEST_REASON = 1024
_LONGEST_OWNER = 255
_LONGEST_SESSION = 255
_LONGEST = timedelta(days=365)
_SHORTEST_DELAY = timedelta(milliseconds=1)
_SHORTEST = timedelta(seconds=1)
_KINDS = {
    gates_pb2.GATE_KIND_PAUSE: Kind.PAUSE,
    gates_pb2.GATE_KIND_DROP: Kind.DROP,
    gates_pb2.GATE_KIND_DELAY: Kind.DELAY,
}
_KIND_TO_WIRE = {kind: number for number, kind in _KINDS.items()}


class GateServicer(gates_pb2_grpc.GateServiceServicer):
    """Every service hears of a change at once, or within a second."""

    def __init__(self, stores: FrontendStores) -> None:
        self._stores = stores

    async def PutGate(  # noqa: N802 (the wire's name)
        self, request: gates_pb2.PutGateRequest, _context: Context
    ) -> gates_pb2.PutGateResponse:
        asked = _read(request)
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
        gate = await store_gates.put_gate(self._stores.writes, asked)
        if gate is None:
            raise Problem("gate", f"there are {store_gates.MOST_GATES:,} gates: remove some first")
        events.gates_changed.inc()
        events.log.info("gate set", gate=gate.name, kind=str(gate.kind), pattern=gate.scope.pattern)
        return gates_pb2.PutGateResponse(gate=to_wire(gate))

    async def DeleteGates(  # noqa: N802
        self, request: gates_pb2.DeleteGatesRequest, _context: Context
    ) -> gates_pb2.DeleteGatesResponse:
        check_count("names", len(request.names), _MOST)
        gone = await store_gates.delete_gates(self._stores.writes, [*request.names])
        events.gates_changed.inc(len(gone))
        for name in sorted(gone):
            events.log.info("gate removed", gate=name)
        return gates_pb2.DeleteGatesResponse(results=[_deleted(name in gone, name) for name in request.names])

    async def ListGates(  # noqa: N802
        self, _request: gates_pb2.ListGatesRequest, _context: Context
    ) -> gates_pb2.ListGatesResponse:
        scope = restriction(Action.READ)
        with self._stores.listing("ListGates") as lists:
            found = await store_gates.list_gates(lists)
            if scope is not None:
                seen = [
                    each.policy.name for each in await list_lambdas(lists) if scope.covers(each.policy.name)
                ]
                found = [each for each in found if any(map(each.gate.scope.covers, seen))]
        return gates_pb2.ListGatesResponse(gates=[to_wire(each.gate, each.parked) for each in found])


def _deleted(was_there: bool, name: str) -> gates_pb2.DeleteGateResult:  # noqa: FBT001
    if was_there:
        return gates_pb2.DeleteGateResult()
    problem = Problem("name", f"there is no gate {name!r}", task_pb2.ERROR_CODE_UNKNOWN_GATE)
    return gates_pb2.DeleteGateResult(error=problem.to_wire())


def check_pattern(field: str, pattern: str) -> None:
    """Check which lambdas a gate covers.

    Raises:
        Problem: no lambda can have such a name.
    """
    if not pattern:
        raise Problem(field, "is missing: write a lambda, a prefix and *, or * for all")
    if pattern.endswith(EVERYTHING):
        if reason := pattern_problem(pattern):
            raise Problem(field, reason)
    else:
        check_lambda_name(field, pattern)


def owner_of(asked: str) -> str:
    """Return who sets a gate: the caller, or what the request says where nobody is asked who they are."""
    check_text("owner", asked, _LONGEST_OWNER)
    return current_access().principal or asked


def _read(request: gates_pb2.PutGateRequest) -> NewGate:
    asked = request.gate
    check_name("gate.name", asked.name)
    kind = _KINDS.get(asked.kind)
    if kind is None:
        raise Problem("gate.kind", "must be PAUSE, DROP or DELAY")
    check_text("gate.reason", asked.reason, _LONGEST_REASON)
    delay = None
    if kind is Kind.DELAY:
        delay = read_duration("gate.delay", asked.delay, _LONGEST, least=_SHORTEST_DELAY)
    elif asked.HasField("delay"):
        raise Problem("gate.delay", "only a gate of kind DELAY has one")
    expires_at = read_instant("gate.expires_at", asked.expires_at) if asked.HasField("expires_at") else None
    duration = None
    if request.HasField("duration"):
        if expires_at is not None:
            raise Problem("duration", "say either gate.expires_at or duration")
        duration = read_duration("duration", request.duration, _LONGEST, least=_SHORTEST)
    return NewGate(
        asked.name,
        kind,
        _scope(asked.scope),
        delay,
        owner_of(asked.owner),
        asked.reason,
        expires_at,
        duration,
    )


def _scope(asked: gates_pb2.GateScope) -> GateScope:
    pattern: str = getattr(asked, "lambda")
    check_pattern("gate.scope.lambda", pattern)
    if asked.collection:
        check_name("gate.scope.collection", asked.collection)
    check_text("gate.scope.session", asked.session, _LONGEST_SESSION)
    try:
        priority = Priority(asked.priority) if asked.priority else None
    except ValueError:
        raise Problem("gate.scope.priority", "must be URGENT, HIGH, NORMAL or LOW") from None
    return GateScope(pattern, asked.collection or None, priority, asked.session or None)


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
        kind=_KIND_TO_WIRE[gate.kind],
        scope=scope,
        delay=None if gate.delay is None else to_duration(gate.delay),
        reason=gate.reason,
        owner=gate.owner,
        created_at=to_timestamp(gate.created_at),
        expires_at=None if gate.expires_at is None else to_timestamp(gate.expires_at),
        parked=parked,
    )
