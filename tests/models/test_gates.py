"""Gates in the store hold, and lose nothing: whatever is asked, in whatever order, and however stale what services know of them."""

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

from duly_core.gates import store as gates
from duly_core.gates import sweeps as gate_sweeps
from duly_core.gates.rules import GateScope, GateSet, Kind
from duly_core.gates.store import NewGate
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks import updates as changes
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import (
    ClaimedTask,
    NewTask,
    Proposal,
    ReleasedClaim,
    Result,
    Session,
    TaskChange,
    TaskHeartbeat,
)
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import TaskId
from tests.fixtures import whole
from tests.models.world import EPOCH, World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "10"))
FAST = EXAMPLES < 1000
LAMBDAS = ("mail.send", "mail.sort")
SECOND = timedelta(seconds=1)
LEASE = 5 * SECOND
PRIORITIES = (Priority.HIGH, Priority.LOW)
OUTCOMES = (Outcome.SUCCESS, Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE, Outcome.SNOOZED)
COLLECTIONS = ("", "a", "b")
NEW = st.lists(
    st.tuples(
        st.sampled_from(LAMBDAS),
        st.sampled_from(PRIORITIES),
        st.sampled_from(COLLECTIONS),
        st.sampled_from([None, None, "s"]),
        st.integers(0, 2),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)
SCOPES = st.builds(
    GateScope,
    st.sampled_from([*LAMBDAS, "mail.*", "*"]),
    st.sampled_from([None, None, "a", "b"]),
    st.sampled_from([None, None, *PRIORITIES]),
    st.sampled_from([None, None, "s"]),
)
NAMES = st.sampled_from(["one", "two"])
PICKS = st.integers(0, 1000)

STATE = """
select assoc.task_id, assoc.status::text, assoc.lambda, assoc.priority, assoc.collection, assoc.session, assoc.passed_gates,
    assoc.parked_on, assoc.parked_key
from task_assoc as assoc
"""


class GateMachine(RuleBasedStateMachine):
    world: World

    @initialize()
    def begin(self) -> None:
        self.world.reset()
        self.now: datetime = EPOCH
        self.claimed: dict[TaskId, ClaimedTask] = {}
        self.enqueued: dict[TaskId, str] = {}
        self.count = 0
        self.stale = GateSet()
        policies = [LambdaPolicy(name, max_attempts=100, max_crashes=100) for name in LAMBDAS]
        self.world.run(lambdas.register(self.world.store, policies))

    def _gates(self) -> GateSet:
        return GateSet(self.world.run(gates.read_gates(self.world.store, -1)).gates or ())

    @rule(asked=NEW)
    def schedule(self, asked: list[tuple[str, Priority, str, str | None, int, bool]]) -> None:
        new = []
        for name, priority, collection, session, delay, expires in asked:
            self.count += 1
            new.append(
                NewTask(
                    bytes.fromhex("019b0000000070008000000000000000")[:14] + self.count.to_bytes(2),
                    name,
                    b"",
                    priority=priority,
                    collection=collection,
                    delay=delay * SECOND,
                    session=Session(session) if session else None,
                    expires_at=self.now + (delay + 20) * SECOND if expires else None,
                )
            )
        self.world.run(schedule.schedule(self.world.store, new))

    @rule(
        name=NAMES,
        kind=st.sampled_from([each for each in Kind if each is not Kind.UNKNOWN]),
        scope=SCOPES,
        lasts=st.sampled_from([None, 3, 10]),
    )
    def put_gate(self, name: str, kind: Kind, scope: GateScope, lasts: int | None) -> None:
        self.stale = self._gates()
        delay = 2 * SECOND if kind is Kind.DELAY else None
        duration = lasts and lasts * SECOND
        asked = NewGate(name, kind, scope, delay, "", "", None, duration)
        assert self.world.run(whole.put_gate(self.world.store, asked)) is not None

    @rule(name=NAMES)
    def delete_gate(self, name: str) -> None:
        self.stale = self._gates()
        self.world.run(gates.delete_gates(self.world.store, [name]))

    @rule(is_stale=st.booleans())
    def sweep(self, is_stale: bool) -> None:
        """A Store Consumer's round, of one that may know only what was in force before the last change."""
        known = self.stale if is_stale else self._gates()
        queues = [QueueKey(name, priority) for name in LAMBDAS for priority in Priority]
        for gate in known.gates:
            if gate.sweeps:
                covered = [
                    queue
                    for queue in queues
                    if gate.scope.covers(queue.lambda_name) and gate.scope.priority in (None, queue.priority)
                ]
                self.world.run(gate_sweeps.sweep(self.world.store, gate, covered, None))
        self.world.run(gate_sweeps.take_from_queues(self.world.store, known, LAMBDAS))
        self.world.run(gates.expire_gates(self.world.store))
        self.world.run(gate_sweeps.release_parked(self.world.store))

    @rule(most=st.integers(1, 10))
    def claim_work(self, most: int) -> None:
        self._claim_work(most)

    def _claim_work(self, most: int) -> int:
        known, before = self._gates(), self._rows()
        picks = [
            Pick(QueueKey(name, priority), most, 0)
            for priority in PRIORITIES
            for name in LAMBDAS
            if not known.is_closed(QueueKey(name, priority))
        ]
        caller = Caller("host", os.urandom(14))
        work = self.world.run(claims.claim_work(self.world.store, picks, [caller], most, LEASE, known))
        for task in work.tasks:
            assert known.holding(*before[task.task_id][2:7]) == []
        self.claimed |= {task.task_id: task for task in work.tasks}
        return len(work.tasks)

    @rule(room=st.integers(1, 5))
    def enqueue(self, room: int) -> None:
        known, before = self._gates(), self._rows()
        queues = [QueueKey(name, priority) for name in LAMBDAS for priority in PRIORITIES]
        rooms = {queue: room for queue in queues if not known.is_closed(queue)}
        due = self.world.run(polling.enqueue(self.world.store, rooms, LEASE, known))
        for task in due:
            assert known.holding(*before[task.task_id][2:7]) == []
        self.enqueued |= {each.task_id: each.queue.lambda_name for each in due}

    @precondition(lambda self: self.enqueued)
    @rule(number=PICKS)
    def claim(self, number: int) -> None:
        known, before = self._gates(), self._rows()
        task_id = sorted(self.enqueued)[number % len(self.enqueued)]
        proposal = Proposal(task_id, os.urandom(16), self.enqueued.pop(task_id))
        (task,) = self.world.run(claims.claim(self.world.store, [(proposal, "host")], LEASE, known))
        if task is not None:
            assert known.holding(*before[task_id][2:7]) == []
            self.claimed[task_id] = task

    @precondition(lambda self: self.claimed)
    @rule()
    def hand_back_what_is_gated(self) -> None:
        known = self._gates()
        beats = [TaskHeartbeat(task.task_id, task.token) for task in self.claimed.values()]
        answers = self.world.run(claims.heartbeat(self.world.store, beats, LEASE, known))
        gated = [beat for beat, answer in zip(beats, answers, strict=True) if answer.name == "GATED"]
        released = [ReleasedClaim(beat.task_id, beat.token) for beat in gated]
        if released:
            self.world.run(claims.release(self.world.store, released))
        self.claimed = {
            each: task for each, task in self.claimed.items() if each not in {b.task_id for b in gated}
        }

    @precondition(lambda self: self.claimed)
    @rule(number=PICKS, outcome=st.sampled_from(OUTCOMES), more=st.booleans())
    def end(self, number: int, outcome: Outcome, more: bool) -> None:
        ids = sorted(self.claimed)
        self._end(outcome, [self.claimed.pop(each) for each in (ids if more else [ids[number % len(ids)]])])

    def _end(self, outcome: Outcome, ended: list[ClaimedTask]) -> None:
        failed = outcome in (Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE)
        kind = FailureKind.CALLBACK if failed else None
        results = [
            Result(task.task_id, task.token, outcome, retry_after=SECOND, failure_kind=kind) for task in ended
        ]
        self.world.run(set_results(self.world.store, results))

    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3))
    def cancel(self, numbers: list[int]) -> None:
        live = sorted(self.world.rows())
        if live:
            picked = {live[number % len(live)] for number in numbers}
            self.world.run(tasks.cancel_tasks(self.world.store, [*picked]))

    @rule(number=PICKS, priority=st.sampled_from(PRIORITIES))
    def update(self, number: int, priority: Priority) -> None:
        live = sorted(self.world.rows())
        if live:
            change = TaskChange(live[number % len(live)], priority=priority)
            self.world.run(changes.update_pending(self.world.store, [change]))

    @rule(seconds=st.integers(1, 8), queues=st.booleans())
    def time_passes(self, seconds: int, queues: bool) -> None:
        self.stale = self._gates()
        self.now += seconds * SECOND
        self.world.fix(self.now, 0.5)
        room = {QueueKey(name, priority): 5 for name in LAMBDAS for priority in PRIORITIES}
        found = self.world.run(
            polling.handle_timeouts(self.world.store, room if queues else None, LEASE, 1000)
        )
        self.enqueued |= {each.task_id: each.queue.lambda_name for each in found.again} if queues else {}

    @invariant()
    def what_is_parked_is_parked_on_a_gate_with_an_id(self) -> None:
        for row in self._rows().values():
            if row[7] is not None:
                assert (row[1], str(row[7])[:5]) == ("waiting", "gate:")
                assert int(str(row[8])) > 0

    def teardown(self) -> None:
        """Whatever happened: without gates, a look releases all that is parked, and all runs to its end."""
        if not hasattr(self, "claimed"):
            return
        self.world.run(gates.delete_gates(self.world.store, ["one", "two"]))
        for _ in range(10):
            _, more = self.world.run(gate_sweeps.release_parked(self.world.store))
            if not more:
                break
        assert [row for row in self._rows().values() if row[7] is not None] == []
        for _ in range(60):
            self.now += 10 * SECOND
            self.world.fix(self.now, 0.5)
            self.world.run(polling.handle_timeouts(self.world.store, None, LEASE, 1000))
            self.claimed.clear()
            for _ in range(40):
                found = self._claim_work(100)
                self._end(Outcome.SUCCESS, [*self.claimed.values()])
                self.claimed.clear()
                if not found:
                    break
            if not self._rows():
                break
        assert self._rows() == {}

    def _rows(self) -> dict[TaskId, tuple[object, ...]]:
        async def read() -> list[tuple[object, ...]]:
            async with self.world.store.connection() as connection:
                return await (await connection.execute(STATE.encode(), binary=True)).fetchall()

        return {bytes(row[0]): row for row in self.world.run(read())}  # type: ignore[call-overload]


@pytest.mark.timeout(max(900, EXAMPLES * 3))
@pytest.mark.parametrize(
    "examples", [min(EXAMPLES, 5), pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "all"]
)
def test_gates_hold_and_lose_nothing(world: World, examples: int) -> None:
    machine = type("GateMachineOnADatabase", (GateMachine,), {"world": world})
    budget = settings(
        max_examples=examples,
        stateful_step_count=30 if FAST else 60,
        derandomize=FAST,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(machine, settings=budget)
