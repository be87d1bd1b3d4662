"""Finds what holds tasks back on purpose, or because their runs fail: gates and breakers."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from duly_core.gates.rules import Gate
from duly_core.gates.rules import Kind as GateKind
from duly_core.lambdas.patterns import EVERYTHING
from duly_core.postgres.arrays import texts
from duly_core.postgres.pool import Store
from duly_core.problems.kinds import Kind, Severity
from duly_core.problems.problem import FoundProblem, found
from duly_core.problems.statements import PROBLEMS
from duly_wire.gate_names import BREAKER

MOST_OF_A_KIND = 50
"""Problems of one kind in a round."""
_MOST_PARKED = 1_000
"""Of the tasks parked on a gate so many are counted."""


async def paused(store: Store, gates: Sequence[Gate], late: Mapping[str, Counter[str]]) -> list[FoundProblem]:
    """Return a problem, which is information, for each gate that somebody set; `late` has due tasks of queues that it holds.

    Raises:
        StoreUnavailableError: ask again.
    """
    by_people = [gate for gate in gates if not gate.name.startswith(BREAKER)][:MOST_OF_A_KIND]
    if not by_people:
        return []
    parked = await parked_on(store, [gate.name for gate in by_people])
    return [
        _paused(gate, parked.get(gate.name, Counter()) + late.get(gate.name, Counter())) for gate in by_people
    ]


def _paused(gate: Gate, parked: Counter[str]) -> FoundProblem:
    # a gate on one lambda is shown to the lambda's owner before it has held anything
    named = {} if gate.scope.pattern.endswith("*") else {gate.scope.pattern: 0}
    return found(
        Kind.PAUSED,
        Severity.INFORMATION,
        gate.created_at,
        gate.name,
        # each cell has an id of its own for a gate on all lambdas, which is one problem
        gate.name if gate.scope.pattern == EVERYTHING else str(gate.gate_id),
        lambdas=named | parked,
        at_least=parked.total() >= _MOST_PARKED,
        does={GateKind.DROP: "drops", GateKind.DELAY: "delays"}.get(gate.kind, "pauses"),
        what=what_of(gate),
        pattern=gate.scope.pattern,
        owner=gate.owner,
        reason=gate.reason,
        until=gate.expires_at.isoformat() if gate.expires_at else "",
    )


def what_of(gate: Gate) -> str:
    """Return which tasks a gate is for, in words."""
    scope = gate.scope
    words = "all lambdas" if scope.pattern == "*" else scope.pattern
    if scope.priority is not None:
        named = getattr(scope.priority, "name", str(scope.priority)).lower()
        words += f", priority {named}"
    if scope.collection is not None:
        words += f", collection {scope.collection}"
    if scope.session is not None:
        words += f", session {scope.session}"
    return words


async def breakers_open(store: Store, late: Mapping[str, Counter[str]]) -> list[FoundProblem]:
    """Return a problem for each breaker that is not closed; `late` has due tasks of queues that its gate holds.

    Raises:
        StoreUnavailableError: ask again.
    """
    rows = await store.run(PROBLEMS["breakers_not_closed"], {"most": MOST_OF_A_KIND})
    if not rows:
        return []
    parked = await parked_on(store, [f"{BREAKER}{row[0]}" for row in rows])
    return [
        _breaker(
            lambda_name,
            state,
            since_at,
            parked.get(f"{BREAKER}{lambda_name}", Counter()) + late.get(f"{BREAKER}{lambda_name}", Counter()),
        )
        for lambda_name, state, since_at in rows
    ]


def _breaker(lambda_name: str, state: str, since_at: datetime, parked: Counter[str]) -> FoundProblem:
    return found(
        Kind.BREAKER_OPEN,
        Severity.CRITICAL,
        since_at,
        lambda_name,
        lambdas={lambda_name: 0} | parked,
        at_least=parked.total() >= _MOST_PARKED,
        state=state,
    )


async def parked_on(store: Store, gates: Sequence[str]) -> dict[str, Counter[str]]:
    """Return how many tasks of which lambdas are parked on gates: of each gate some.

    Raises:
        StoreUnavailableError: ask again.
    """
    parked: dict[str, Counter[str]] = {}
    for name, lambda_name, count in await store.run(
        PROBLEMS["parked_on_gates"], {"gates": texts(gates), "most": _MOST_PARKED}
    ):
        parked.setdefault(name, Counter())[lambda_name] = count
    return parked
