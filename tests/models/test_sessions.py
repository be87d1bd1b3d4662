"""Sessions in the store do what their model does, whatever is asked, in whatever order."""

import os
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
from duly_core.lambdas.session_names import SessionId
from duly_core.results.store import set_results
from duly_core.sessions import store as sessions
from duly_core.tasks import claims, dead_letters, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import FINAL, Status
from duly_core.tasks.task import ClaimedTask, NewTask, Result, Session
from duly_wire.enums import FailureKind, Outcome, Priority, SessionOrder, SessionPolicy
from duly_wire.ids import TaskId
from tests.models.session_model import Member, SessionModel
from tests.models.world import EPOCH, World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "20"))
FAST = EXAMPLES < 1000
LAMBDA = "mail.send"
LONG = timedelta(days=1000)
SECOND = timedelta(seconds=1)
ORDERS = {"a": SessionOrder.SCHEDULED, "b": SessionOrder.SCHEDULED, "by-due": SessionOrder.DUE}
OUTCOMES = {
    Outcome.SUCCESS: Status.SUCCESS,
    Outcome.FATAL_FAILURE: Status.FATAL_FAILURE,
    Outcome.RETRIABLE_FAILURE: Status.RETRIABLE_FAILURE,
}
NEW = st.lists(
    st.tuples(st.sampled_from([*ORDERS]), st.sampled_from(SessionPolicy), st.integers(0, 3)),
    min_size=1,
    max_size=4,
)
PICKS = st.integers(0, 1000)


class SessionMachine(RuleBasedStateMachine):
    world: World

    @initialize()
    def begin(self) -> None:
        self.world.reset()
        self.now: datetime = EPOCH
        self.model = SessionModel()
        self.claimed: dict[TaskId, ClaimedTask] = {}
        self.count = 0
        policy = LambdaPolicy(LAMBDA, max_attempts=100)
        self.world.run(lambdas.register(self.world.store, [policy]))

    @rule(asked=NEW)
    def schedule(self, asked: list[tuple[str, SessionPolicy, int]]) -> None:
        new = []
        for key, policy, delay in asked:
            session = Session(key, ORDERS[key], policy)
            # the ids of one request need not ascend
            task_id = bytes.fromhex(f"019b0000{(self.count * 7919) % 65536:04x}7000800000000000")[:14]
            task_id += self.count.to_bytes(2)
            self.count += 1
            new.append(NewTask(task_id, LAMBDA, b"", session=session, delay=delay * SECOND))
        self.world.run(schedule.schedule(self.world.store, new))
        for task in new:
            assert task.session is not None
            assert task.delay is not None
            self.model.join(task.task_id, task.session, self.now + task.delay)
        self.model.settle({key for key, _, _ in asked})

    @rule()
    def claim(self) -> None:
        picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), 1000, 0)]
        caller = Caller("host", os.urandom(14))
        work = self.world.run(claims.claim_work(self.world.store, picks, [caller], 1000, LONG))
        for task in work.tasks:
            member = self.model.members[task.task_id]
            line = self.model.lines[member.session.key]
            assert line.head is member
            assert member.status in (Status.NEW, Status.RETRIABLE_FAILURE)
            member.status, member.was_claimed = Status.CLAIMED, True
            self.claimed[task.task_id] = task

    @precondition(lambda self: self.claimed)
    @rule(pick=PICKS, outcome=st.sampled_from([*OUTCOMES]), more=st.booleans())
    def end(self, pick: int, outcome: Outcome, more: bool) -> None:
        ids = sorted(self.claimed)
        picked = ids if more else [ids[pick % len(ids)]]
        failed = {} if outcome is Outcome.SUCCESS else {"failure_kind": FailureKind.CALLBACK}
        ended = [self.claimed.pop(each) for each in picked]
        results = [Result(task.task_id, task.token, outcome, retry_after=SECOND, **failed) for task in ended]
        self.world.run(set_results(self.world.store, results))
        for task in ended:
            if outcome is Outcome.RETRIABLE_FAILURE:
                self.model.members[task.task_id].status = Status.RETRIABLE_FAILURE
            else:
                self.model.end(task.task_id, OUTCOMES[outcome])

    @precondition(lambda self: self._live())
    @rule(numbers=st.lists(PICKS, min_size=1, max_size=4))
    def cancel(self, numbers: list[int]) -> None:
        live = self._live()
        picked = {live[number % len(live)].task_id for number in numbers}
        cancelled = self.world.run(tasks.cancel_tasks(self.world.store, [*picked]))
        for task_id in sorted(picked, key=lambda each: self.model.members[each].status is Status.WAITING):
            member = self.model.members[task_id]
            if member.status is Status.CLAIMED:
                assert cancelled.statuses[task_id] is Status.CLAIMED
                # asked to stop: it does so as it ends next
                task = self.claimed.pop(task_id)
                result = Result(task_id, task.token, Outcome.CANCELLED)
                self.world.run(set_results(self.world.store, [result]))
            else:
                assert cancelled.statuses[task_id] is Status.CANCELLED
            self.model.end(task_id, Status.CANCELLED)

    @precondition(lambda self: self._dead())
    @rule(pick=PICKS)
    def redrive(self, pick: int) -> None:
        dead = self._dead()
        member = dead[pick % len(dead)]
        self.world.run(dead_letters.redrive(self.world.store, [member.task_id]))
        self.model.join(member.task_id, member.session, self.now)
        self.model.settle({member.session.key})

    @rule()
    def end_what_is_to_end_without_a_run(self) -> None:
        self.world.run(polling.handle_timeouts(self.world.store, None, SECOND, 1000))
        for member in [each for each in self._live() if each.is_doomed]:
            self.model.end(member.task_id, Status.FATAL_FAILURE)

    @rule(key=st.sampled_from([*ORDERS]))
    def unblock(self, key: str) -> None:
        unblocked = self.world.run(sessions.unblock_sessions(self.world.store, [SessionId("", key)]))
        assert (SessionId("", key) in unblocked.now) == self.model.unblock(key)

    @rule(seconds=st.integers(1, 3))
    def tick(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.world.fix(self.now, 0.5)

    @invariant()
    def the_store_says_what_the_model_says(self) -> None:
        found = self.world.run(
            sessions.get_sessions(self.world.store, [SessionId("", key) for key in ORDERS], 1000)
        )
        said = {
            session.key: (
                state.length,
                state.head,
                state.blocked_by,
                state.failing,
                list(state.waiting),
            )
            for session, state in found.items()
        }
        assert said == {
            key: (
                len(line.live),
                line.head and line.head.task_id,
                line.blocked_by,
                sum(each.is_doomed for each in line.live),
                [each.task_id for each in line.waiting],
            )
            for key, line in self.model.lines.items()
        }
        statuses = {task_id: row.status for task_id, row in self.world.rows().items()}
        assert statuses == {task_id: each.status for task_id, each in self.model.members.items()}

    def _live(self) -> list[Member]:
        return [each for each in self.model.members.values() if each.status not in FINAL]

    def _dead(self) -> list[Member]:
        return [each for each in self.model.members.values() if each.status is Status.FATAL_FAILURE]


def machine_on(world: World) -> type[SessionMachine]:
    return type("SessionMachineOnADatabase", (SessionMachine,), {"world": world})


@pytest.mark.timeout(max(600, EXAMPLES * 3))
@pytest.mark.parametrize(
    "examples", [min(EXAMPLES, 5), pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "all"]
)
def test_sessions_in_the_store_do_what_their_model_does(world: World, examples: int) -> None:
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
