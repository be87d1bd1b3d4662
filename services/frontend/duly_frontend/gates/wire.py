"""Gates from the store to the wire."""

from duly_core.gates.rules import Gate, Kind
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import gates_pb2, task_pb2

KINDS = {
    gates_pb2.GATE_KIND_PAUSE: Kind.PAUSE,
    gates_pb2.GATE_KIND_DROP: Kind.DROP,
    gates_pb2.GATE_KIND_DELAY: Kind.DELAY,
}
_KIND_TO_WIRE = {kind: number for number, kind in KINDS.items()}


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
