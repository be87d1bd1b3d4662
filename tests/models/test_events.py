"""Events in the store do what their model does: who waits receives, once, the first that it has not; nothing is lost."""

import os
from base64 import b64decode
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from duly_core.events import store as events
from duly_core.events.rules import EventWait, RefusedEvent
from duly_core.events.store import EventKeyId, NewEvent, Sent, SentAll
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.statements import TRANSITIONS, Statement
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Applied, ClaimedTask, NewTask, Result
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import TaskId
from tests.models.world import EPOCH, World

EXAMPLES = int(os.environ.get("DULY_MODEL_EXAMPLES", "10"))
FAST = EXAMPLES < 1000
LAMBDAS = ("a/run", "b/run")
KEYS = ("k", "l", "m")
SECOND = timedelta(seconds=1)
LEASE = timedelta(days=1)
KEPT = 300 * SECOND
EVENTS: dict[str, Statement] = events._EVENTS
PICKS = st.integers(0, 1000)
_LEFT = """
insert into event_wait (key, task_id, fence, wait, needs_all) values (%s, %s, 0, 'earlier', false) on conflict do nothing
"""
WAITS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=3, unique=True)


@dataclass
class Waiting:
    """A wait that is not over."""

    name: str
    keys: list[str]
    needs_all: bool
    until: datetime
    got: set[str] = field(default_factory=set)


@dataclass
class ModelTask:
    """A task: what it received, in order, and what it waits for."""

    namespace: str
    created_at: datetime
    status: Status = Status.NEW
    received: list[tuple[str, str, bytes]] = field(default_factory=list)
    """The wait, the key and the value; a timeout has neither."""
    last: dict[str, int] = field(default_factory=dict)
    """By key, the number of the newest event that it received."""
    until: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """When the wait ends at the latest in which it received an event: by wait and key."""
    waiting: Waiting | None = None
    waits: int = 0

    def receive(self, wait: Waiting, key: str, number: int, value: bytes) -> None:
        self.received.append((wait.name, key, value))
        self.last[key] = number
        self.until[wait.name, key] = wait.until
        wait.got.add(key)

    @property
    def values(self) -> list[tuple[str, str, bytes]]:
        """What it received and may refuse."""
        return [each for each in self.received if each[0] and each[1]]

    def is_over(self, wait: Waiting) -> bool:
        return len(wait.got) == len(wait.keys) if wait.needs_all else bool(wait.got)


class EventMachine(RuleBasedStateMachine):
    world: World

    @initialize()
    def begin(self) -> None:
        self.world.reset()
        self.now = EPOCH
        self.made = 0
        self.tasks: dict[TaskId, ModelTask] = {}
        self.claims: dict[TaskId, ClaimedTask] = {}
        self.events: list[tuple[str, str, str, bytes, datetime]] = []
        """Namespace, key, id, value, and when it was sent: in the order of the sends."""
        policies = [LambdaPolicy(name, max_attempts=100) for name in LAMBDAS]
        self.world.run(lambdas.register(self.world.store, policies))

    def _bytes(self) -> bytes:
        self.made += 1
        return self.made.to_bytes(16, "big")

    def _held(self) -> list[TaskId]:
        return [task_id for task_id in self.claims if self.tasks[task_id].status is Status.CLAIMED]

    @rule(name=st.sampled_from(LAMBDAS), count=st.integers(1, 2))
    def schedule(self, name: str, count: int) -> None:
        tasks = [NewTask(self._bytes(), name, b"{}") for _ in range(count)]
        self.world.run(schedule.schedule(self.world.store, tasks))
        for task in tasks:
            self.tasks[task.task_id] = ModelTask(name[0], self.now)

    @rule()
    def claim(self) -> None:
        picks = [Pick(QueueKey(name, Priority.NORMAL), 100, 0) for name in LAMBDAS]
        caller = Caller("host", self._bytes()[::-1][:14])
        found = self.world.run(claims.claim_work(self.world.store, picks, [caller], 200, LEASE)).tasks
        due = {task_id for task_id, task in self.tasks.items() if task.status is Status.NEW}
        assert {each.task_id for each in found} == due
        for each in found:
            task = self.tasks[each.task_id]
            task.status = Status.CLAIMED
            self.claims[each.task_id] = each
            assert [
                (one["wait"], one.get("key", ""), b64decode(one.get("value", "")))
                for one in each.received or ()
            ] == task.received
            assert (each.failures, each.crashes) == (0, 0)

    @precondition(lambda self: self._held())
    @rule(
        asked=st.lists(
            st.tuples(PICKS, WAITS, st.booleans(), st.sampled_from([5, 60])), min_size=1, max_size=4
        ),
        repeated=st.booleans(),
        forged=st.booleans(),
    )
    def wait(self, asked: list[tuple[int, list[str], bool, int]], *, repeated: bool, forged: bool) -> None:
        held = self._held()
        results: dict[TaskId, Result] = {}
        for number, keys, needs_all, seconds in asked:
            task_id = held[number % len(held)]
            if task_id in results:
                continue
            task = self.tasks[task_id]
            task.waits += 1
            wait = EventWait(f"{task.waits}", tuple(keys), needs_all, seconds * SECOND)
            token = self._bytes() if forged else self.claims[task_id].token
            results[task_id] = Result(task_id, token, Outcome.WAIT_FOR_EVENT, event_wait=wait)
        for verdict in [Applied.APPLIED] + [Applied.ALREADY_APPLIED] * repeated:
            written = self.world.run(set_results(self.world.store, [*results.values()]))
            assert written.verdicts == [Applied.LOST if forged else verdict] * len(results)
        if not forged:
            for task_id, result in results.items():
                assert result.event_wait is not None
                self._wait(self.tasks[task_id], result.event_wait)

    @rule(keys=WAITS, needs_all=st.booleans())
    def all_wait(self, keys: list[str], *, needs_all: bool) -> None:
        """All that can run wait for the same: more than one page of tasks, some of which have events of these keys."""
        self.claim()
        if held := self._held():
            asked = [(number, keys, needs_all, 60) for number in range(len(held))]
            self.wait(asked, repeated=False, forged=False)

    @precondition(lambda self: self.tasks)
    @rule()
    def earlier_waits_leave_rows(self) -> None:
        """What ends a wait may leave its rows: their fence is of an earlier run."""
        for task_id, task in self.tasks.items():
            for key in KEYS:
                self.world.execute(_LEFT, [str(EventKeyId(task.namespace, key)), UUID(bytes=task_id)])

    def _refusing(self) -> list[TaskId]:
        return [task_id for task_id in self._held() if self.tasks[task_id].values]

    @precondition(lambda self: self._refusing())
    @rule(number=PICKS, which=PICKS, repeated=st.booleans(), forged=st.booleans())
    def refuse(self, number: int, which: int, *, repeated: bool, forged: bool) -> None:
        """A callback cannot read something that it received: that is put aside, and the same wait goes on."""
        refusing = self._refusing()
        task_id = refusing[number % len(refusing)]
        task = self.tasks[task_id]
        values = task.values
        name, key, _ = values[which % len(values)]
        wait = EventWait(name, (key,), needs_all=False, timeout=LEASE, refused=(RefusedEvent(key, "why"),))
        token = self._bytes() if forged else self.claims[task_id].token
        result = Result(task_id, token, Outcome.WAIT_FOR_EVENT, event_wait=wait)
        before = self._stored(task_id)
        for verdict in [Applied.APPLIED] + [Applied.ALREADY_APPLIED] * repeated:
            written = self.world.run(set_results(self.world.store, [result]))
            assert written.verdicts == [Applied.LOST if forged else verdict]
        if forged:
            assert self._stored(task_id) == before
        else:
            rest = [each for each in task.received if each[1] != key or each[0] not in ("", name)]
            task.received = [("", key, b""), *rest]
            self._wait(task, wait._replace(timeout=task.until[name, key] - self.now))

    def _stored(self, task_id: TaskId) -> list[tuple[object, ...]]:
        return self.world.execute("select received from task where task_id = %s", [UUID(bytes=task_id)])

    def _wait(self, task: ModelTask, asked: EventWait) -> None:
        wait = Waiting(asked.name, [*asked.keys], asked.needs_all, self.now + asked.timeout)
        there = []
        for number, (namespace, key, _, value, sent_at) in enumerate(self.events):
            is_new = number > task.last.get(key, -1) and key not in {each[1] for each in there}
            in_time = task.created_at <= sent_at and sent_at + KEPT > self.now
            if namespace == task.namespace and key in wait.keys and is_new and in_time:
                there.append((number, key, value))
        for number, key, value in there if wait.needs_all else there[:1]:
            task.receive(wait, key, number, value)
        task.status = Status.NEW if task.is_over(wait) else Status.WAITING
        task.waiting = None if task.is_over(wait) else wait

    @rule(
        asked=st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from(KEYS), st.sampled_from(["1", "2", ""])),
            min_size=1,
            max_size=4,
        ),
        ended_by=st.sampled_from(["sender", "store consumer", "repeat", "next send"]),
    )
    def send(self, asked: list[tuple[str, str, str]], ended_by: str) -> None:
        """`ended_by`: who gives the events to the tasks behind the first page; PAGE is a task or two."""
        batch = [
            NewEvent(EventKeyId(namespace, key), event_id or self._bytes().hex(), b"%d" % self.made, 1)
            for namespace, key, event_id in asked
        ]
        answers = self.world.run(self._send(batch, ended_by)).answers
        new: list[tuple[int, NewEvent]] = []
        for each in batch:
            known = {(one[0], one[1], one[2]) for one in self.events}
            if (each.key.namespace, each.key.key, each.event_id) not in known:
                new.append((len(self.events), each))
                self.events.append((each.key.namespace, each.key.key, each.event_id, each.value, self.now))
        receivers = self._give(new)
        left = dict(reversed([(id(each), number) for number, each in new]))
        expected = [
            Sent(receivers.get(left[id(each)], 0)) if id(each) in left else Sent(is_repeated=True)
            for each in batch
        ]
        if ended_by != "sender":  # it died, and did not see all receivers
            expected, answers = (
                [each._replace(receivers=0) for each in all_] for all_ in (expected, answers)
            )
        assert answers == expected

    async def _send(self, batch: list[NewEvent], ended_by: str) -> SentAll:
        store = self.world.store
        if ended_by == "sender":
            return await events.send(store, batch, KEPT)
        async with store.connection() as connection, connection.transaction():
            sent = await events.send_within(connection, batch, KEPT)
        if ended_by == "repeat":
            await events.send(store, batch, KEPT)
        elif ended_by == "next send":
            for each in batch:  # a key at a time: what a task waits for first is not the key of this send
                await events.send(store, [each], KEPT)
        else:
            await events.give_rest(store)
        return sent

    def _give(self, new: list[tuple[int, NewEvent]]) -> dict[int, int]:
        receivers: dict[int, int] = {}
        first: dict[EventKeyId, tuple[int, NewEvent]] = {}
        for number, each in new:
            first.setdefault(each.key, (number, each))
        for task in self.tasks.values():
            wait = task.waiting
            if wait is None:
                continue
            for number, each in sorted(first.values(), key=lambda one: one[0]):
                key = each.key.key
                if each.key.namespace != task.namespace or key not in wait.keys or key in wait.got:
                    continue
                if not wait.needs_all and wait.got:
                    break
                task.receive(wait, key, number, each.value)
                receivers[number] = receivers.get(number, 0) + 1
            if task.is_over(wait):
                task.status, task.waiting = Status.NEW, None
        return receivers

    @rule(seconds=st.sampled_from([1, 10, 100]))
    def time_passes(self, seconds: int) -> None:
        self.now += seconds * SECOND
        self.world.fix(self.now, 0.5)
        found = self.world.run(polling.handle_timeouts(self.world.store, None, LEASE, 1000))
        late = [task for task in self.tasks.values() if task.waiting and task.waiting.until <= self.now]
        for task in late:
            assert task.waiting is not None
            task.received.append((task.waiting.name, "", b""))
            task.status, task.waiting = Status.NEW, None
        assert (found.event_waits, found.ended) == (len(late), 0)

    @precondition(lambda self: self.tasks)
    @rule(number=PICKS)
    def cancel(self, number: int) -> None:
        task_id = [*self.tasks][number % len(self.tasks)]
        task = self.tasks[task_id]
        if task.status in (Status.NEW, Status.WAITING):
            self.world.run(tasks.cancel_tasks(self.world.store, [task_id]))
            task.status, task.waiting = Status.CANCELLED, None

    @precondition(lambda self: self._held())
    @rule(number=PICKS, is_redriven=st.booleans())
    def end(self, number: int, *, is_redriven: bool) -> None:
        """It fails for good; a redrive forgets the waits whose time was over, and nothing else."""
        held = self._held()
        task_id = held[number % len(held)]
        task, claim = self.tasks[task_id], self.claims[task_id]
        failed = Result(task_id, claim.token, Outcome.FATAL_FAILURE, failure_kind=FailureKind.CALLBACK)
        self.world.run(set_results(self.world.store, [failed]))
        task.status = Status.FATAL_FAILURE
        if is_redriven:
            self.world.run(dead_letters.redrive(self.world.store, [task_id]))
            task.status = Status.NEW
            task.received = [each for each in task.received if each[1]]

    @invariant()
    def rows_are_the_models(self) -> None:
        if not hasattr(self, "tasks"):
            return
        rows = self.world.rows()
        assert {task_id: row.status for task_id, row in rows.items()} == {
            task_id: task.status for task_id, task in self.tasks.items()
        }
        for task_id, task in self.tasks.items():
            if task.waiting is not None:
                assert rows[task_id].next_trigger_at == task.waiting.until


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_GIVEN_AT_ONCE", 2)


def machine_on(world: World) -> type[EventMachine]:
    return type("EventMachineOnADatabase", (EventMachine,), {"world": world})


@pytest.mark.timeout(max(600, EXAMPLES * 3))
@pytest.mark.parametrize(
    "examples", [min(EXAMPLES, 5), pytest.param(EXAMPLES, marks=pytest.mark.long)], ids=["a few", "all"]
)
def test_events_do_what_their_model_does(world: World, examples: int) -> None:
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


MUTATIONS: dict[str, tuple[str, str | tuple[str, ...], str]] = {
    "a wait needs no token": ("wait_for_event", ("assoc.token = asked.token and ", "assoc.token = held.token and "), ""),
    "an event of before the task counts": ("wait_for_event", "event.sent_at >= wanted.created_at and", ""),
    "an event is received twice": ("wait_for_event", "jsonb_array_elements(wanted.received)", "jsonb_array_elements('[]'::jsonb)"),
    "a wait for all ends with the first": ("end_event_waits", "bool_and(not needs_all or there = needed)", "true"),
    "a task that waits no more receives": ("end_event_waits", "wait.fence = held.fence", "true"),
    "a sender that dies leaves the rest without": ("note_given", "given_to = asked.given_to", "given_to = null"),
    "the rest receives what it has": ("end_event_waits", "where each ->> 'key' = substr", "where 'no' = substr"),
    "the rest receives an event of before the task": ("end_event_waits", "old.sent_at < task.created_at", "false"),
    "a refused event is given again": ("put_events_aside", "'refused', true", "'refused', false, 'seq', 0"),
    "a refusal needs no token": ("put_events_aside", "assoc.token = asked.token and ", ""),
    "a refusal lets the wait begin again": ("put_events_aside", "min((event ->> 'until')::int8)", "max(9e15::int8)"),
    "a timeout forgets to say so": ("time_out_event_waits", "'timed_out', true", "'timed', true"),
    "a wait ends before its time": (
        "time_out_event_waits",
        "assoc.next_trigger_at <= (select duly_now())",
        "assoc.next_trigger_at <= (select duly_now()) + interval '30 s'",
    ),
}  # fmt: skip
"""Guards, taken out: a statement, and what stands in it for what. Where two guards do the same, both."""


def _home(statement: str) -> dict[str, Statement]:
    return TRANSITIONS if statement in TRANSITIONS else EVENTS


def _mutated(name: str) -> Statement:
    statement, guards, instead = MUTATIONS[name]
    found = _home(statement)[statement]
    sql = found.sql
    for guard in (guards,) if isinstance(guards, str) else guards:
        assert guard in sql, f"{statement} has no {guard!r}"
        sql = sql.replace(guard, instead)
    return Statement(found.name, sql, found.anew)


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_guard_of_events_is_still_in_its_statement(name: str) -> None:
    assert _mutated(name).sql != _home(statement := MUTATIONS[name][0])[statement].sql


@pytest.mark.long  # each searches for seconds
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_guard_of_events_that_is_taken_out_is_missed(
    world: World, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    statement = MUTATIONS[name][0]
    monkeypatch.setitem(_home(statement), statement, _mutated(name))
    search = settings(
        max_examples=1500,
        stateful_step_count=40,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )

    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine_on(world), settings=search)
