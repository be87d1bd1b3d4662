"""Turns in the store are those of weighted round robin, whatever is scheduled and picked, with a queue beside the store or without one."""

import os
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from duly_core.fairness.cursors import TurnCursors
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import NewTask
from duly_wire.enums import Priority
from duly_wire.ids import TaskId
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA
from tests.models.world import World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "10"))
QUEUE = QueueKey(LAMBDA, Priority.NORMAL)
KEYS = ["a", "b", "c", "d", "é", "zz"]
ARRIVALS = st.lists(st.tuples(st.sampled_from(KEYS), st.integers(1, 12)), min_size=1, max_size=4)
WEIGHTS = st.dictionaries(st.sampled_from(KEYS), st.integers(1, 4), max_size=4)


class TurnMachine(RuleBasedStateMachine):
    world: World
    has_queue: bool

    @initialize(weights=WEIGHTS)
    def begin(self, weights: dict[str, int]) -> None:
        self.world.reset()
        self.world.run(lambdas.register(self.world.store, [LambdaPolicy(LAMBDA)]))
        self.weights = dict.fromkeys(KEYS, 1) | weights
        self.world.run(self._weigh(weights))
        self.cursors = TurnCursors()
        self.keys: dict[TaskId, str] = {}
        self.due: Counter[str] = Counter()
        self.passed_over: dict[str, Counter[str]] = {}
        """By each key that has something due: what others got since it had its turn."""

    async def _weigh(self, weights: dict[str, int]) -> None:
        async with self.world.store.connection() as connection:
            for key, weight in weights.items():
                await connection.execute(
                    b"insert into fair_weight values (%s, %s, %s, now())", [LAMBDA, key, weight]
                )

    @rule(arrivals=ARRIVALS)
    def schedule(self, arrivals: list[tuple[str, int]]) -> None:
        new = []
        for key, count in arrivals:
            for _ in range(count):
                number = len(self.keys)
                task_id = bytes.fromhex("019b0000000070008000000000000000")[:14] + number.to_bytes(2)
                self.keys[task_id] = key
                new.append(NewTask(task_id, LAMBDA, b"", fair_key=key))
            if not self.due[key]:
                self.passed_over[key] = Counter()
            self.due[key] += count
        self.world.run(schedule.schedule(self.world.store, new))

    @rule(most=st.one_of(st.integers(1, 4), st.integers(5, 40)))
    def pick(self, most: int) -> None:
        got = Counter(self.keys[task_id] for task_id in self._picked(most))
        assert got.total() == min(most, self.due.total())
        self.due -= got
        for key in KEYS:
            if got[key] or not self.due[key]:
                self.passed_over[key] = Counter()
                continue
            self.passed_over[key] += got
            # at most one turn of each other key
            assert all(count <= self.weights[other] for other, count in self.passed_over[key].items())
        for key in +self.due:  # who could have had more had its part
            turns = got[key] // self.weights[key]
            for other, count in got.items():
                assert count <= (turns + 2) * self.weights[other], (got, self.due, self.weights)

    def _picked(self, most: int) -> list[TaskId]:
        fair = {LAMBDA: True}
        if self.has_queue:
            found = polling.enqueue(
                self.world.store, {QUEUE: most}, ENQUEUE_TIMEOUT, fair=fair, cursors=self.cursors
            )
            return [task.task_id for task in self.world.run(found)]
        caller = Caller("host", os.urandom(14))
        work = claims.claim_work(
            self.world.store,
            [Pick(QUEUE, most, 0)],
            [caller],
            most,
            CLAIM_TIMEOUT,
            fair=fair,
            cursors=self.cursors,
        )
        return [task.task_id for task in self.world.run(work).tasks]


@pytest.mark.timeout(max(600, EXAMPLES * 3))
@pytest.mark.parametrize("has_queue", [False, True], ids=["store", "queue"])
@pytest.mark.parametrize(
    "examples", [min(EXAMPLES, 5), pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "all"]
)
def test_each_key_has_its_turn_after_at_most_one_turn_of_each_other(
    world: World, examples: int, has_queue: bool
) -> None:
    machine = type("TurnMachineOnADatabase", (TurnMachine,), {"world": world, "has_queue": has_queue})
    budget = settings(
        max_examples=examples,
        stateful_step_count=30,
        derandomize=EXAMPLES < 1000,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=budget)
