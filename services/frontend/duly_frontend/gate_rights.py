"""Says who may set, change and remove a gate: operators, and owners the pauses of their own lambdas."""

from duly_core.access.current import current_access, denied
from duly_core.access.roles import Action
from duly_core.gates import Gate, Kind
from duly_core.lambda_patterns import is_prefix
from duly_core.store.gates import NewGate

MOST_OF_OWNER = 50
"""Gates that a principal may have as an owner: there may be 1,000 in all, and operators must find room."""


def check_may_set(asked: NewGate) -> bool:
    """Let the call go on; return whether the caller is an operator of all that the gate covers.

    An owner may pause a lambda (or a version, collection, priority or session of it), and neither drop nor delay its tasks.

    Raises:
        PermissionDeniedError: the caller may not set this gate.
    """
    access, pattern = current_access(), asked.scope.pattern
    if access.scope(Action.OPERATE).covers_all_that_match(pattern):
        return True
    is_pause_of_a_lambda = asked.kind is Kind.PAUSE and not is_prefix(pattern)
    if is_pause_of_a_lambda and access.scope(Action.REGISTER).covers_all_of(pattern):
        return False
    raise denied(access, Action.OPERATE, pattern)


def may_change(gate: Gate) -> bool:
    """Whether the caller may change or remove a gate: an operator those of its lambdas, an owner those that it set itself."""
    access = current_access()
    if access.scope(Action.OPERATE).covers_all_that_match(gate.scope.pattern):
        return True
    is_own = bool(access.principal) and gate.owner == access.principal
    return is_own and access.scope(Action.REGISTER).covers_all_of(gate.scope.pattern)
