"""Says who may set, change and remove a gate: operators, and owners the pauses of their own lambdas."""

from duly_core.access.current import current_access, denied
from duly_core.access.roles import Action
from duly_core.gates import store as store_gates
from duly_core.gates.rules import Gate, Kind
from duly_core.gates.store import NewGate
from duly_core.lambdas.patterns import is_prefix

MOST_OF_ONE = 50
"""Gates that a principal may have who is no operator of all lambdas."""
MOST_OF_TENANTS = 900
"""Gates that there may be for such a principal to set another: of the 1,000 in all, operators of all lambdas must find room."""


def most_gates() -> tuple[int, int]:
    """Return how many gates there may be in all for the caller to set another, and how many of its own."""
    if current_access().scope(Action.OPERATE).is_everything:
        return store_gates.MOST_GATES, store_gates.MOST_GATES
    return MOST_OF_TENANTS, MOST_OF_ONE


def check_may_set(asked: NewGate) -> None:
    """Let the call go on.

    An owner may pause a lambda (or a version, collection, priority or session of it), and neither drop nor delay its tasks.

    Raises:
        PermissionDeniedError: the caller may not set this gate.
    """
    access, pattern = current_access(), asked.scope.pattern
    if access.scope(Action.OPERATE).covers_all_that_match(pattern):
        return
    is_pause_of_a_lambda = asked.kind is Kind.PAUSE and not is_prefix(pattern)
    if is_pause_of_a_lambda and access.scope(Action.REGISTER).covers_all_of(pattern):
        return
    raise denied(access, Action.OPERATE, pattern)


def may_change(gate: Gate) -> bool:
    """Whether the caller may change or remove a gate: an operator those of its lambdas, an owner those that it set itself."""
    access = current_access()
    if access.scope(Action.OPERATE).covers_all_that_match(gate.scope.pattern):
        return True
    is_own = bool(access.principal) and gate.owner == access.principal
    return is_own and access.scope(Action.REGISTER).covers_all_of(gate.scope.pattern)
