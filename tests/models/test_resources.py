"""Limits in the store hold, whatever is asked, in whatever order, with a queue beside the store or without one."""

import os
from collections import Counter
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
from duly_core.limits.store import ResourceLimit
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.task import ClaimedTask, NewTask, Proposal, ReleasedClaim, ResourceNeed, Result, Session
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import TaskId
from tests.fixtures import whole
from tests.models.world import EPOCH, World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "10"))
FAST = EXAMPLES < 1000
LAMBDAS = ("mail.send", "report.make")
SECOND = timedelta(seconds=1)
LEASE = 5 * SECOND
PRIORITIES = (Priority.HIGH, Priority.LOW)
OUTCOMES = (Outcome.SUCCESS, Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE, Outcome.SNOOZED)
PLACES = (("a", ""), ("b", ""), ("k", "x"), ("k", "y"))
NEEDS = st.lists(
    st.tuples(st.sampled_from(PLACES), st.integers(1, 4)), max_size=2, unique_by=lambda need: need[0]
)
NEW = st.lists(
    st.tuples(
        NEEDS,
        st.sampled_from(LAMBDAS),
        st.sampled_from(PRIORITIES),
        st.integers(0, 2),
        st.sampled_from([None, None, "s"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)
PICKS = st.integers(0, 1000)
SOME = st.sets(st.sampled_from(LAMBDAS), min_size=1)

STATE = """
select assoc.task_id, assoc.status::text, assoc.lambda, assoc.priority, assoc.due_at,
    nullif(assoc.next_trigger_at, 'infinity'),
    assoc.parked_on, assoc.parked_key, assoc.resources
from task_assoc as assoc
"""


class ResourceMachine(RuleBasedStateMachine):
    world: World

    @initialize()
    def begin(self) -> None:
        self.world.reset()
        self.now: datetime = EPOCH
        self.claimed: dict[TaskId, ClaimedTask] = {}
        self.enqueued: dict[TaskId, str] = {}
        self.count = 0
        self.capacities = {"a": 3, "b": 2, "k": 1}
        policies = [LambdaPolicy(name, max_attempts=100, max_crashes=100) for name in LAMBDAS]
        self.world.run(lambdas.register(self.world.store, policies))
        for name, capacity in self.capacities.items():
            limit = ResourceLimit(name, capacity, per_key=name == "k")
            self.world.run(whole.put_resource(self.world.store, limit))

    @rule(asked=NEW)
    def schedule(
        self, asked: list[tuple[list[tuple[tuple[str, str], int]], str, Priority, int, str | None, bool]]
    ) -> None:
        new = []
        for needs, name, priority, delay, session, expires in asked:
            self.count += 1
            task_id = bytes.fromhex("019b0000000070008000000000000000")[:14] + self.count.to_bytes(2)
            new.append(
                NewTask(
                    task_id,
                    name,
                    b"",
                    priority=priority,
                    delay=delay * SECOND,
                    session=Session(session) if session else None,
                    expires_at=self.now + (delay + 3) * SECOND if expires else None,
                    resources=tuple(ResourceNeed(*place, weight) for place, weight in needs),
                )
            )
        self.world.run(schedule.schedule(self.world.store, new))

    @rule(names=SOME, most=st.integers(1, 10))
    def claim_work(self, names: set[str], most: int) -> None:
        self._claim_work(sorted(names), most)

    def _claim_work(self, names: list[str], most: int) -> int:
        picks = [Pick(QueueKey(name, priority), most, 0) for priority in PRIORITIES for name in names]
        caller = Caller("host", os.urandom(14))
        work = self.world.run(claims.claim_work(self.world.store, picks, [caller], most, LEASE))
        self.claimed |= {task.task_id: task for task in work.tasks}
        return len(work.tasks)

    @rule(names=SOME, room=st.integers(1, 5))
    def enqueue(self, names: set[str], room: int) -> None:
        rooms = {QueueKey(name, priority): room for name in sorted(names) for priority in PRIORITIES}
        due = self.world.run(polling.enqueue(self.world.store, rooms, LEASE))
        self.enqueued |= {each.task_id: each.queue.lambda_name for each in due}

    @precondition(lambda self: self.enqueued)
    @rule(number=PICKS)
    def claim(self, number: int) -> None:
        task_id = sorted(self.enqueued)[number % len(self.enqueued)]
        proposal = Proposal(task_id, os.urandom(16), self.enqueued.pop(task_id))
        (task,) = self.world.run(claims.claim(self.world.store, [(proposal, "host")], LEASE))
        if task is not None:
            self.claimed[task_id] = task

    @precondition(lambda self: self.enqueued)
    @rule(number=PICKS)
    def put_back(self, number: int) -> None:
        task_id = sorted(self.enqueued)[number % len(self.enqueued)]
        del self.enqueued[task_id]
        self.world.run(polling.put_back(self.world.store, [task_id], SECOND))

    @precondition(lambda self: self.claimed)
    @rule(number=PICKS, outcome=st.sampled_from(OUTCOMES), more=st.booleans())
    def end(self, number: int, outcome: Outcome, more: bool) -> None:
        self._end(outcome, self._some(number, more))

    def _some(self, number: int, more: bool) -> list[ClaimedTask]:
        ids = sorted(self.claimed)
        return [self.claimed.pop(each) for each in (ids if more else [ids[number % len(ids)]])]

    def _end(self, outcome: Outcome, ended: list[ClaimedTask]) -> None:
        failed = outcome in (Outcome.FATAL_FAILURE, Outcome.RETRIABLE_FAILURE)
        kind = FailureKind.CALLBACK if failed else None
        results = [
            Result(task.task_id, task.token, outcome, retry_after=SECOND, failure_kind=kind) for task in ended
        ]
        self.world.run(set_results(self.world.store, results))

    @precondition(lambda self: self.claimed)
    @rule(number=PICKS, more=st.booleans())
    def release(self, number: int, more: bool) -> None:
        some = [ReleasedClaim(task.task_id, task.token) for task in self._some(number, more)]
        self.world.run(claims.release(self.world.store, some))

    @rule(numbers=st.lists(PICKS, min_size=1, max_size=3))
    def cancel(self, numbers: list[int]) -> None:
        live = sorted(self.world.rows())
        if live:
            picked = {live[number % len(live)] for number in numbers}
            self.world.run(tasks.cancel_tasks(self.world.store, [*picked]))

    @rule(seconds=st.integers(1, 8), queues=st.booleans())
    def time_passes(self, seconds: int, queues: bool) -> None:
        """Holders fall silent, tasks expire, references are lost; late results of before change nothing."""
        self.now += seconds * SECOND
        self.world.fix(self.now, 0.5)
        room = (
            {QueueKey(name, priority): 5 for name in LAMBDAS for priority in PRIORITIES} if queues else None
        )
        found = self.world.run(polling.handle_timeouts(self.world.store, room, LEASE, 1000))
        self.enqueued |= {each.task_id: each.queue.lambda_name for each in found.again} if queues else {}

    @rule(name=st.sampled_from(["a", "b", "k"]), capacity=st.integers(0, 4))
    def change(self, name: str, capacity: int) -> None:
        limit = ResourceLimit(name, capacity, per_key=name == "k")
        self.capacities[name] = capacity
        self.world.run(whole.put_resource(self.world.store, limit))

    @invariant()
    def what_is_used_is_what_is_held_by_those_that_may_hold(self) -> None:
        rows = self._rows(STATE)
        live = {row[0]: row for row in rows}
        used = {
            (row[0], row[1]): row[2] for row in self._rows("select resource, key, used from resource_use")
        }
        held: Counter[tuple[str, str]] = Counter()
        holders = set()
        for task_id, name, key, weight in self._rows(
            "select task_id, name, key, weight from task_assoc, "
            "jsonb_to_recordset(taken) as took (name text, key text, weight int4)"
        ):
            held[name, key] += weight
            holders.add(task_id)
        assert {place: number for place, number in used.items() if number} == +held
        at_work = {row[0] for row in rows if row[8] and row[1] in ("enqueued", "claimed", "processing")}
        assert holders == at_work
        for task_id in at_work:
            assert live[task_id][6] is None

    @invariant()
    def nothing_is_parked_that_fits_unless_others_were_released_for_it(self) -> None:
        rows = self._rows(STATE)
        used = {
            (row[0], row[1]): row[2] for row in self._rows("select resource, key, used from resource_use")
        }
        parked = [row for row in rows if row[6] is not None]
        first: dict[tuple[object, ...], tuple[object, ...]] = {}
        for row in sorted(parked, key=lambda row: (row[4], row[0])):
            first.setdefault((row[6], row[7], row[2], row[3]), row)
        for (name, key, lambda_name, priority), row in first.items():
            capacity = self.capacities[str(name)]
            (need,) = [each for each in row[8] if (each["name"], each["key"]) == (name, key)]  # type: ignore[attr-defined]
            fits = capacity > 0 and used[str(name), str(key)] + min(need["weight"], capacity) <= capacity
            released = [
                other
                for other in rows
                if other[1] == "new"
                and other[5] <= self.now
                and (other[2], other[3]) == (lambda_name, priority)
                and any((each["name"], each["key"]) == (name, key) for each in other[8] or ())
            ]
            assert not fits or released, row

    def teardown(self) -> None:
        """Whatever happened: with capacity, all that is left runs to its end."""
        if not hasattr(self, "capacities"):
            return
        for name in self.capacities:
            self.change(name, max(1, self.capacities[name]))
        for _ in range(60):
            self.now += 10 * SECOND
            self.world.fix(self.now, 0.5)
            self.world.run(polling.handle_timeouts(self.world.store, None, LEASE, 1000))
            self.claimed.clear()
            for _ in range(40):
                found = self._claim_work([*LAMBDAS], 100)
                self._end(Outcome.SUCCESS, [*self.claimed.values()])
                self.claimed.clear()
                if not found and not self._claim_work([*LAMBDAS], 100):
                    break
            if not self._rows(STATE):
                break
        assert self._rows(STATE) == []
        assert self._rows("select * from resource_use where used <> 0") == []

    def _rows(self, query: str) -> list[tuple[object, ...]]:
        async def read() -> list[tuple[object, ...]]:
            async with self.world.store.connection() as connection:
                return await (await connection.execute(query.encode())).fetchall()

        return self.world.run(read())


@pytest.mark.timeout(max(600, EXAMPLES * 3))
@pytest.mark.parametrize(
    "examples", [min(EXAMPLES, 5), pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "all"]
)
def test_limits_hold_and_leave_nothing_behind(world: World, examples: int) -> None:
    machine = type("ResourceMachineOnADatabase", (ResourceMachine,), {"world": world})
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
