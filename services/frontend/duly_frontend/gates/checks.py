"""Checks of requests that set gates."""

from datetime import timedelta

from google.protobuf.field_mask_pb2 import FieldMask

from duly_core.access.current import current_access
from duly_core.access.grants import pattern_problem
from duly_core.access.principal import is_reserved
from duly_core.gates.rules import Gate, GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.lambdas.patterns import is_prefix
from duly_core.rpc.requests.checks import check_text, read_duration, read_instant
from duly_core.rpc.requests.field_masks import merged, named_fields
from duly_core.rpc.requests.names import check_lambda_name, check_name
from duly_core.rpc.requests.problem import Problem
from duly_frontend.gates.wire import KINDS, to_wire
from duly_wire.enums import Priority
from duly_wire.v1 import gates_pb2

MOST = 100
LONGEST_REASON = 1024
LONGEST_NAME = 1_000
"""Of a gate or a lambda in a request that removes; nothing has a longer one."""
_LONGEST_OWNER = 255
_LONGEST_SESSION = 255
_LONGEST = timedelta(days=365)
_SHORTEST_DELAY = timedelta(milliseconds=1)
_SHORTEST = timedelta(seconds=1)
GATE_FIELDS = (
    "kind",
    "scope.lambda",
    "scope.collection",
    "scope.priority",
    "scope.session",
    "delay",
    "reason",
    "expires_at",
)
"""What a mask may name of a gate."""
_EXPIRES_AT = frozenset({"expires_at"})


def check_pattern(field: str, pattern: str) -> None:
    """Check which lambdas a gate covers.

    Raises:
        Problem: no lambda can have such a name.
    """
    if not pattern:
        raise Problem(field, "is missing: write a lambda, a prefix and *, or * for all")
    if is_prefix(pattern):
        if reason := pattern_problem(pattern):
            raise Problem(field, reason)
    else:
        check_lambda_name(field, pattern)


def owner_of(asked: str) -> str:
    """Return who sets a gate: the caller, or what the request says where nobody is asked who they are.

    Raises:
        Problem: the name is too long, or reserved.
    """
    check_text("owner", asked, _LONGEST_OWNER)
    if is_reserved(asked):
        raise Problem("owner", f"{asked!r} is reserved for the gates of breakers")
    return current_access().principal or asked


def read_named(request: gates_pb2.PutGateRequest) -> frozenset[str]:
    """Return which fields of a gate a request sets.

    Raises:
        Problem: its mask, its name or its duration is invalid.
    """
    if request.gate.name or not request.dry_run:  # without a name a dry run is about a new gate
        check_name("gate.name", request.gate.name)
    mask: FieldMask | None = request.update_mask if request.HasField("update_mask") else None
    named = named_fields("update_mask", mask, request.gate, GATE_FIELDS)
    if not request.HasField("duration"):
        return named
    if request.gate.HasField("expires_at"):
        raise Problem("duration", "say either gate.expires_at or duration")
    read_duration("duration", request.duration, _LONGEST, least=_SHORTEST)
    return named | _EXPIRES_AT


def read_gate(request: gates_pb2.PutGateRequest, before: Gate | None, named: frozenset[str]) -> NewGate:
    """Return the gate to be: `before`, with the named fields as the request has them.

    Raises:
        Problem: it is invalid, or contradicts what stays.
    """
    if before is not None and before.kind is Kind.UNKNOWN and not {"kind", "delay"} <= named:
        raise Problem(
            "gate.kind",
            "this release does not know what it does: use a newer one, or name kind and delay, too",
        )
    asked = merged(gates_pb2.Gate() if before is None else to_wire(before), request.gate, named)
    kind = KINDS.get(asked.kind)
    if kind is None:
        raise Problem("gate.kind", "must be PAUSE, DROP or DELAY: a new gate needs one")
    check_text("gate.reason", asked.reason, LONGEST_REASON)
    delay = None
    if kind is Kind.DELAY:
        delay = read_duration("gate.delay", asked.delay, _LONGEST, least=_SHORTEST_DELAY)
    elif asked.HasField("delay"):
        fix = (
            "name kind DELAY, too"
            if "delay" in named
            else "to change its kind, name delay, too, and leave it unset"
        )
        raise Problem("gate.delay", f"only a gate of kind DELAY has one: {fix}")
    expires_at = read_instant("gate.expires_at", asked.expires_at) if asked.HasField("expires_at") else None
    is_for = request.HasField("duration")
    return NewGate(
        request.gate.name,
        kind,
        _scope(asked.scope),
        delay,
        owner_of(request.gate.owner) if before is None else before.owner,
        asked.reason,
        None if is_for else expires_at,
        read_duration("duration", request.duration, _LONGEST, least=_SHORTEST) if is_for else None,
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
