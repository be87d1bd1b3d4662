"""Checks of requests that set gates."""

from datetime import timedelta

from duly.enums import Priority
from duly.v1 import gates_pb2
from duly_core.access.current import current_access
from duly_core.access.grants import pattern_problem
from duly_core.access.principal import is_reserved
from duly_core.gates import EVERYTHING, GateScope, Kind
from duly_core.rpc.checks import check_text, read_duration, read_instant
from duly_core.rpc.names import check_lambda_name, check_name
from duly_core.rpc.problem import Problem
from duly_core.store.gates import NewGate

MOST = 100
LONGEST_REASON = 1024
LONGEST_NAME = 1_000
"""Of a gate or a lambda in a request that removes; nothing has a longer one."""
_LONGEST_OWNER = 255
_LONGEST_SESSION = 255
_LONGEST = timedelta(days=365)
_SHORTEST_DELAY = timedelta(milliseconds=1)
_SHORTEST = timedelta(seconds=1)
KINDS = {
    gates_pb2.GATE_KIND_PAUSE: Kind.PAUSE,
    gates_pb2.GATE_KIND_DROP: Kind.DROP,
    gates_pb2.GATE_KIND_DELAY: Kind.DELAY,
}


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
    """Return who sets a gate: the caller, or what the request says where nobody is asked who they are.

    Raises:
        Problem: the name is too long, or reserved.
    """
    check_text("owner", asked, _LONGEST_OWNER)
    if is_reserved(asked):
        raise Problem("owner", f"{asked!r} is reserved for the gates of breakers")
    return current_access().principal or asked


def read_gate(request: gates_pb2.PutGateRequest) -> NewGate:
    """Return the gate that a request asks for.

    Raises:
        Problem: it is invalid.
    """
    asked = request.gate
    check_name("gate.name", asked.name)
    kind = KINDS.get(asked.kind)
    if kind is None:
        raise Problem("gate.kind", "must be PAUSE, DROP or DELAY")
    check_text("gate.reason", asked.reason, LONGEST_REASON)
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
