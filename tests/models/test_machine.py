"""The store answers and writes as the model does, whatever it is asked, in whatever order."""

import os

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.fixtures.moves import MOVES
from tests.models.machine import StoreMachine
from tests.models.world import World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "40"))
"""How many lives of a database are tried; `make models` tries far more."""

FAST = EXAMPLES < 1000

BUDGET = settings(
    max_examples=EXAMPLES,
    stateful_step_count=25 if FAST else 60,
    derandomize=FAST,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)

NOT_SEEN_AS_A_CHANGE = {
    "schedule",
    "tick",
    "enqueue_again",
    "claim_again",
    "claim_repeated",
    "request_cancel",
}
"""Their status is the same before and after, or there was none."""

OF_SESSIONS = {
    "schedule_in_sessions",
    "tick_in_sessions",
    "enter_nodes",
    "end_waiting",
    "cancel_waiting",
    "unblock_sessions",
}
"""test_sessions.py has a model of its own for these."""


def machine_on(world: World) -> type[StoreMachine]:
    return type("StoreMachineOnADatabase", (StoreMachine,), {"world": world})


@pytest.mark.timeout(max(240, EXAMPLES * 3))
@pytest.mark.parametrize(
    "examples",
    [
        min(EXAMPLES, 6),
        pytest.param(EXAMPLES, marks=pytest.mark.long),
    ],  # long: the first of the same lives
    ids=["a few", "all"],
)
def test_the_store_does_what_the_model_does(world, examples):
    run_state_machine_as_test(machine_on(world), settings=settings(BUDGET, max_examples=examples))

    # an examination that made no use of a move has not examined it; a short one may miss the rarest
    for move in MOVES:
        if not FAST and examples == EXAMPLES and move.name not in NOT_SEEN_AS_A_CHANGE | OF_SESSIONS:
            pairs = {(before, after) for before in move.before for after in move.after}
            assert pairs & world.changes.keys(), f"no task was ever seen to {move.name}"
