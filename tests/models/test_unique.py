"""Unique keys in the store, whatever is asked, in whatever order: each answer is that of a model, and no key has two tasks that wait."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import FINAL, HELD, Status
from duly_core.tasks.task import (
    ClaimedTask,
    Debounce,
    NewTask,
    Result,
    Scheduled,
    Scheduling,
    Session,
    Unique,
)
from duly_core.tasks.unique import schedule_unique
from duly_wire.enums import FailureKind, HeldWhile, OnConflict, Outcome, Priority
from duly_wire.ids import TaskId
from tests.models.world import EPOCH, Row, World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "10"))
FAST = EXAMPLES < 1000
LAMBDA = "mail.send"
SECOND = timedelta(seconds=1)
LEASE = 5 * SECOND
AT_MOST = 8 * SECOND
PICKS = st.integers(0, 1000)
OUTCOMES = (Outcome.SUCCESS, Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE)
LIVE_KEY, ANY_KEY, DEBOUNCED_KEY = "live", "any", "debounced"
PERIODS = st.sampled_from([timedelta(), 4 * SECOND, 60 * SECOND])
UNIQUES = st.one_of(
    st.builds(
        Unique, st.just(LIVE_KEY), st.just(HeldWhile.LIVE), PERIODS, st.sampled_from(OnConflict), st.none()
    ),
    st.builds(
        Unique, st.just(ANY_KEY), st.sampled_from(HeldWhile), PERIODS, st.sampled_from(OnConflict), st.none()
    ),
    st.just(Unique(DEBOUNCED_KEY, on_conflict=OnConflict.REPLACE, debounce=Debounce(3 * SECOND, AT_MOST))),
)
NEW = st.lists(
    st.tuples(UNIQUES, st.sampled_from([None, None, "s"]), st.integers(0, 3)), min_size=1, max_size=5
)


@dataclass(slots=True)
class Held:
    """Which task has a key, says the model."""

    task_id: TaskId
    taken_at: datetime


class UniqueMachine(RuleBasedStateMachine):
    world: World

    @initialize()
    def begin(self) -> None:
        self.world.reset()
        self.now: datetime = EPOCH
        self.count = 0
        self.held: dict[str, Held] = {}
        self.payloads: dict[TaskId, bytes] = {}
        self.sent: dict[TaskId, tuple[NewTask, Scheduled]] = {}
        self.claimed: dict[TaskId, ClaimedTask] = {}
        self.has_failed = False
        policy = LambdaPolicy(LAMBDA, max_attempts=100, max_crashes=100)
        self.world.run(lambdas.register(self.world.store, [policy]))

    @rule(asked=NEW)
    def schedule(self, asked: list[tuple[Unique, str | None, int]]) -> None:
        new = []
        for unique, session, delay in asked:
            self.count += 1
            task_id = bytes.fromhex("0dbd9a0000007000800000000000")[:14] + self.count.to_bytes(2)
            new.append(
                NewTask(
                    task_id,
                    LAMBDA,
                    b"%d" % self.count,
                    delay=None if unique.debounce else delay * SECOND,
                    session=Session(session) if session else None,
                    unique=unique,
                )
            )
        self._schedule(new)

    @precondition(lambda self: self.sent)
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3))
    def repeat(self, numbers: list[int]) -> None:
        """An answer was lost: of what was written or merged the answer is the same, and nothing changes."""
        sent = list(self.sent.values())
        picked = {number % len(sent) for number in numbers}
        for task, answer in [sent[place] for place in sorted(picked)]:
            if answer.verdict not in (Scheduling.CREATED, Scheduling.REPLACED):
                self._schedule([task])
                continue
            before = self.world.rows(), self._payloads()
            (again,) = self.world.run(schedule_unique(self.world.store, [task])).answers
            wanted = Scheduling.REPEATED if answer.verdict is Scheduling.CREATED else Scheduling.REPLACED
            assert (again.verdict, again.task_id) == (wanted, answer.task_id)
            assert (self.world.rows(), self._payloads()) == before

    def _schedule(self, new: Sequence[NewTask]) -> None:
        statuses = {task_id: row.status for task_id, row in self.world.rows().items()}
        answers = self.world.run(schedule_unique(self.world.store, new)).answers
        for task, answer in zip(new, answers, strict=True):
            assert answer[:2] == self._expected(task, statuses), task
            self.sent[task.task_id] = task, answer

    def _expected(self, task: NewTask, statuses: dict[TaskId, Status]) -> tuple[Scheduling, TaskId]:
        """Say what becomes of a task, and that it did."""
        unique = task.unique
        assert unique is not None
        held = self.held.get(unique.key)
        status = statuses[held.task_id] if held else None
        runs = status in HELD
        waits = status is not None and status not in HELD | FINAL
        in_period = held is not None and self.now - held.taken_at < unique.period
        if held is None or not (waits or in_period or (runs and unique.held_while is HeldWhile.LIVE)):
            self.held[unique.key] = Held(task.task_id, self.now)
            self.payloads[task.task_id] = task.payload
            statuses[task.task_id] = Status.NEW
            return Scheduling.CREATED, task.task_id
        if unique.on_conflict is OnConflict.REPLACE and waits:
            self.payloads[held.task_id] = task.payload
            return Scheduling.REPLACED, held.task_id
        refused = {
            OnConflict.IGNORE: Scheduling.IGNORED,
            OnConflict.REJECT: Scheduling.REJECTED,
            OnConflict.REPLACE: Scheduling.NOT_REPLACED,
        }
        return refused[unique.on_conflict], held.task_id

    @rule(most=st.integers(1, 4))
    def claim(self, most: int) -> None:
        picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), most, 0)]
        caller = Caller("host", os.urandom(14))
        work = self.world.run(claims.claim_work(self.world.store, picks, [caller], most, LEASE))
        for task in work.tasks:
            assert task.payload == self.payloads[task.task_id]
            self.claimed[task.task_id] = task

    @precondition(lambda self: self.claimed)
    @rule(number=PICKS, outcome=st.sampled_from(OUTCOMES))
    def end(self, number: int, outcome: Outcome) -> None:
        task = self.claimed.pop(sorted(self.claimed)[number % len(self.claimed)])
        kind = None if outcome is Outcome.SUCCESS else FailureKind.CALLBACK
        result = Result(task.task_id, task.token, outcome, failure_kind=kind, retry_after=SECOND)
        self.world.run(set_results(self.world.store, [result]))
        self.has_failed |= outcome is Outcome.FATAL_FAILURE

    @rule(number=PICKS)
    def cancel(self, number: int) -> None:
        live = sorted(each for each, row in self.world.rows().items() if row.status not in FINAL)
        if live:
            self.world.run(tasks.cancel_tasks(self.world.store, [live[number % len(live)]]))

    @precondition(lambda self: self.has_failed)
    @rule(number=PICKS, prefers_taken=st.booleans())
    def redrive(self, number: int, *, prefers_taken: bool) -> None:
        """`prefers_taken`: one whose key another task has meanwhile."""
        rows = self.world.rows()
        dead = [(task_id, *self._holder(task_id, rows)) for task_id in sorted(self.world.dead_letters())]
        if prefers_taken:
            dead = [each for each in dead if each[-1]] or dead
        if not dead:
            return
        task_id, key, other, is_taken = dead[number % len(dead)]

        answer = self.world.run(dead_letters.redrive(self.world.store, [task_id]))[task_id]

        if is_taken:
            assert (answer.verdict, answer.holder) == (dead_letters.Verdict.KEY_TAKEN, other)
        else:
            assert answer.verdict is dead_letters.Verdict.REDRIVEN
            self.held[key] = Held(task_id, self.now)

    def _holder(self, task_id: TaskId, rows: Mapping[TaskId, Row]) -> tuple[str, TaskId, bool]:
        """Return the key of a task, who had it last, and whether that is another task that lives."""
        (key,) = {
            task.unique.key for task, _ in self.sent.values() if task.task_id == task_id and task.unique
        }
        other = self.held[key].task_id
        return key, other, other != task_id and rows[other].status not in FINAL

    @rule(seconds=st.integers(1, 8))
    def time_passes(self, seconds: int) -> None:
        """Holders of claims fall silent."""
        self.now += seconds * SECOND
        self.world.fix(self.now, 0.5)
        self.world.run(polling.handle_timeouts(self.world.store, None, LEASE, 1000))

    @invariant()
    def no_two_tasks_of_a_key_wait_for_their_first_run(self) -> None:
        unstarted = self.world.execute(
            "select unique_key from task_assoc join task using (task_id) where task_assoc.fence = 0"
        )
        assert len(unstarted) == len(set(unstarted))

    @invariant()
    def a_key_that_is_held_until_the_end_has_one_live_task(self) -> None:
        query = "select count(*) from task_assoc join task using (task_id) where unique_key = %s"
        assert self.world.execute(query, [LIVE_KEY]) in ([(0,)], [(1,)])

    @invariant()
    def a_debounced_task_is_due_in_time(self) -> None:
        query = """select task_id from task_assoc join task using (task_id)
            where unique_key = %s and fence = 0 and due_at > created_at + %s and task.session is null"""
        assert self.world.execute(query.replace("fence", "task_assoc.fence"), [DEBOUNCED_KEY, AT_MOST]) == []

    @invariant()
    def what_waits_has_the_latest_payload(self) -> None:
        stored = self._payloads()
        assert {each: self.payloads[each] for each in stored} == stored

    def _payloads(self) -> dict[TaskId, bytes]:
        return {
            row[0].bytes: row[1]
            for row in self.world.execute("select task_id, payload from task join task_assoc using (task_id)")
        }


def machine_on(world: World) -> type[UniqueMachine]:
    """Return the machine, on a database."""
    return type("UniqueMachineOnADatabase", (UniqueMachine,), {"world": world})


@pytest.mark.timeout(max(600, EXAMPLES * 3))
@pytest.mark.parametrize(
    "examples", [min(EXAMPLES, 5), pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "all"]
)
def test_each_answer_is_the_models_and_a_key_has_one_task(world: World, examples: int) -> None:
    budget = settings(
        max_examples=examples,
        stateful_step_count=30 if FAST else 60,
        derandomize=FAST,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine_on(world), settings=budget)
