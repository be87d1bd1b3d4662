"""Gates in the store: what they hold is not picked, what they park, drop and delay, and that nothing is lost when they go."""

import asyncio
import os
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from duly_core.gates import store as gates
from duly_core.gates import sweeps as gate_sweeps
from duly_core.gates.cache import GateCache
from duly_core.gates.rules import GateScope, Kind
from duly_core.gates.store import NewGate
from duly_core.lambdas import administration as lambda_changes
from duly_core.lambdas import live_tasks as live_counts
from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks import updates as changes
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import (
    Encoding,
    HeartbeatAnswer,
    NewTask,
    Proposal,
    ResourceNeed,
    Session,
    TaskChange,
    TaskHeartbeat,
)
from duly_core.tasks.updates import ChangeVerdict
from duly_store_consumer import gate_loop
from duly_store_consumer.gate_loop import GateLoop
from duly_wire.enums import EdgeCondition, FailureKind, Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import write_graph
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

OTHER = "report.make"
HOUR = timedelta(hours=1)
ROOM = {QueueKey(LAMBDA, priority): 100 for priority in Priority}


@pytest.fixture
async def cache(store):
    return GateCache(store)


@pytest.fixture
async def loop(store, cache):
    """The loop of a Store Consumer; `due` has what it told of."""
    due = []
    made = GateLoop(
        store,
        cache,
        lambda: [LAMBDA, OTHER],
        lambda ahead, lambdas, count: due.append((ahead, set(lambdas), count)),
        has_queues=True,
    )
    made.due = due
    return made


@pytest.fixture
async def put(store, cache):
    """Set a gate, and read it."""

    async def put_gate(name="held", kind=Kind.PAUSE, pattern=LAMBDA, *, duration=None, delay=None, **scope):
        asked = NewGate(name, kind, GateScope(pattern, **scope), delay, "ann", "a test", None, duration)
        gate = await whole.put_gate(store, asked)
        await cache.run_once()
        return gate

    return put_gate


async def a_task(store, **fields):
    task = NewTask(**{"task_id": new_task_id().bytes, "lambda_name": LAMBDA, "payload": b"{}"} | fields)
    await schedule.schedule(store, [task])
    return task.task_id


async def pick(store, gate_set, *names, most=100):
    """Claim what may run now; the ids."""
    picks = [
        Pick(QueueKey(name, priority), most, 0)
        for priority in Priority
        for name in names or (LAMBDA,)
        if not gate_set.is_closed(QueueKey(name, priority))
    ]
    work = await claims.claim_work(
        store, picks, [Caller("host", os.urandom(14))], most, CLAIM_TIMEOUT, gate_set
    )
    return {task.task_id for task in work.tasks}


async def sweep(loop):
    """Turn rounds until nothing is left to do."""
    loop._rests_until = float("-inf")
    while await loop.run_once() <= timedelta():
        pass


# ---- what is held ------------------------------------------------------------------------------------------


async def test_a_pause_of_a_lambda_closes_its_queues_and_those_of_its_versions_and_no_others(put, cache):
    await put()

    assert cache.now.is_closed(QueueKey(LAMBDA, Priority.LOW))
    assert cache.now.is_closed(QueueKey(f"{LAMBDA}@2", Priority.URGENT))
    assert not cache.now.is_closed(QueueKey(OTHER, Priority.NORMAL))
    assert not cache.now.holds_rows([LAMBDA])


async def test_a_pause_of_a_priority_closes_that_queue_only(put, cache, store, task_states):
    await task_states.register()
    await put(priority=Priority.LOW)
    low, high = await a_task(store, priority=Priority.LOW), await a_task(store, priority=Priority.HIGH)

    assert await pick(store, cache.now) == {high}
    assert await task_states.status(low) == "new"


async def test_a_pause_of_a_namespace_holds_its_lambdas(put, cache):
    await put(pattern="shop/*")

    assert cache.now.is_closed(QueueKey("shop/mail.send", Priority.NORMAL))
    assert not cache.now.is_closed(QueueKey("shopping", Priority.NORMAL))


async def test_a_pause_of_a_collection_holds_its_tasks_and_lets_others_of_their_queue_pass(
    put, cache, store, loop, task_states
):
    await task_states.register()
    held = [await a_task(store, collection="marketing") for _ in range(3)]
    free = await a_task(store)
    await put(collection="marketing")

    assert await pick(store, cache.now) == {free}
    assert {await task_states.status(each) for each in held} == {"new"}
    await sweep(loop)
    assert {await task_states.status(each) for each in held} == {"waiting"}
    assert (await gates.list_gates(store))[0].parked == 3


async def test_a_pause_of_a_session_holds_its_head_and_so_the_whole_session(
    put, cache, store, loop, task_states
):
    await task_states.register()
    held, behind, other = [await a_task(store, session=Session(key)) for key in ("ann", "ann", "bob")]
    await put(pattern="*", session="ann")

    await sweep(loop)
    assert await pick(store, cache.now) == {other}
    await gates.delete_gates(store, ["held"])
    await sweep(loop)

    assert await pick(store, cache.now) == {held}
    assert await task_states.status(behind) == "waiting"


async def test_what_is_parked_is_due_again_when_the_gate_is_removed(put, cache, store, loop, task_states):
    await task_states.register()
    ids = {await a_task(store, collection="marketing") for _ in range(5)}
    await put(collection="marketing")
    await sweep(loop)

    await gates.delete_gates(store, ["held"])
    await sweep(loop)

    assert loop.due == [(timedelta(), {LAMBDA}, 5)]
    assert await pick(store, cache.now) == ids


async def test_what_is_parked_is_due_again_when_the_gate_expires(put, cache, store, loop, clock, task_states):
    await task_states.register()
    task = await a_task(store, collection="marketing")
    await put(collection="marketing", duration=HOUR)
    await sweep(loop)
    assert await task_states.status(task) == "waiting"

    await clock.tick(HOUR + SECOND)
    fresh = GateCache(store)
    await sweep(GateLoop(store, fresh, lambda: [LAMBDA], lambda *_: None, has_queues=False))

    assert not fresh.now
    assert await pick(store, fresh.now) == {task}
    assert await gates.list_gates(store) == []


async def test_tasks_that_were_due_before_their_lambda_was_known_are_parked_in_the_next_round(
    put, cache, store, clock, task_states
):
    await task_states.register()
    task = await a_task(store, collection="marketing")
    await clock.tick(HOUR)
    await put(collection="marketing")
    known = []
    loop = GateLoop(store, cache, lambda: known, lambda *_: None, has_queues=False)
    await sweep(loop)
    assert await task_states.status(task) == "new"

    known.append(LAMBDA)
    await sweep(loop)

    assert await task_states.status(task) == "waiting"


async def test_a_gate_that_expires_while_it_is_removed_causes_no_deadlock(put, store, clock, dsn):
    await put(duration=HOUR)
    await clock.tick(HOUR + SECOND)

    async with store.connection() as operator, operator.transaction():
        await gates.change_gates(operator)
        expiring = asyncio.create_task(gates.expire_gates(store))
        await until_a_statement_waits_for_a_lock(dsn)
        await operator.execute("delete from gate where name = 'held'")

    assert await expiring == []


async def test_a_gate_that_is_set_for_other_tasks_releases_what_it_held_before(
    put, cache, store, loop, task_states
):
    await task_states.register()
    first, second = await a_task(store, collection="a"), await a_task(store, collection="b")
    before = await put(collection="a")
    await sweep(loop)

    after = await put(collection="b")
    await sweep(loop)

    assert after.gate_id != before.gate_id
    assert await pick(store, cache.now) == {first}
    assert await task_states.status(second) == "waiting"


async def test_a_gate_that_is_set_again_for_longer_keeps_what_it_holds(put, store, loop, task_states):
    await task_states.register()
    task = await a_task(store, collection="a")
    before = await put(collection="a", duration=HOUR)
    await sweep(loop)

    after = await put(collection="a", duration=2 * HOUR)
    await sweep(loop)

    assert after.gate_id == before.gate_id
    assert after.expires_at > before.expires_at
    assert await task_states.status(task) == "waiting"


async def test_a_sweep_parks_nothing_for_a_gate_that_is_gone(put, store, task_states):
    await task_states.register()
    task = await a_task(store, collection="a")
    gate = await put(collection="a")
    await gates.delete_gates(store, ["held"])

    swept = await gate_sweeps.sweep(store, gate, [*ROOM], None)

    assert swept.tasks == 0
    assert await task_states.status(task) == "new"


async def test_a_gate_that_is_removed_while_a_sweep_parks_leaves_nothing_parked(
    put, store, dsn, loop, task_states
):
    await task_states.register()
    task = await a_task(store, collection="a")
    gate = await put(collection="a")
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        # as a sweep does: the gate stays locked until what was parked is committed
        await other.execute("select from gate where gate_id = %s for share", [gate.gate_id])
        removing = asyncio.ensure_future(gates.delete_gates(store, ["held"]))
        await other.execute(
            "update task_assoc set status = 'waiting', next_trigger_at = 'infinity', parked_on = 'gate:held', "
            "parked_key = %s where task_id = %s",
            [str(gate.gate_id), UUID(bytes=task)],
        )
        done, _ = await asyncio.wait({removing}, timeout=0.2)
        assert not done
        await other.commit()
    await removing

    await sweep(loop)

    assert await task_states.status(task) == "new"


# ---- drop and delay ----------------------------------------------------------------------------------------


async def test_a_drop_gate_ends_due_tasks_with_its_name_and_also_those_scheduled_later(
    put, store, loop, task_states
):
    await task_states.register()
    await put("bad-deploy", Kind.DROP)
    now, later = await a_task(store), await a_task(store, delay=HOUR)
    await sweep(loop)
    after = await a_task(store)
    await sweep(loop)

    row = (await tasks.get_tasks(store, [now]))[now]
    assert (row["status"], row["failure_kind"]) == (Status.DROPPED, FailureKind.GATE_DROPPED)
    assert row["failure_message"] == "dropped by the gate bad-deploy: a test"
    assert await task_states.status(after) == "dropped"
    assert await task_states.status(later) == "new"


async def test_what_a_drop_gate_hits_is_not_picked_before_it_is_dropped(put, cache, store, task_states):
    await task_states.register()
    await a_task(store)
    await put(kind=Kind.DROP)

    assert await pick(store, cache.now) == set()


async def test_the_next_task_of_a_session_runs_when_the_head_was_dropped(
    put, cache, store, loop, task_states
):
    await task_states.register()
    head = await a_task(store, session=Session("ann"), collection="a")
    behind = await a_task(store, session=Session("ann"))
    await put(kind=Kind.DROP, collection="a")

    await sweep(loop)

    assert await task_states.status(head) == "dropped"
    assert await pick(store, cache.now) == {behind}


async def test_a_node_that_is_dropped_counts_as_cancelled_in_its_graph(put, store, loop, task_states):
    await task_states.register()
    waits = {"next": {"first": EdgeCondition.SUCCEEDED}, "cleanup": {"first": EdgeCondition.FINISHED}}
    graph = await write_graph(store, waits)
    gate = await put(kind=Kind.DROP)
    await gate_sweeps.sweep(store, gate, [*ROOM], None)
    await gates.delete_gates(store, ["held"])

    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)

    statuses = {label: await task_states.status(task_id) for label, task_id in graph.ids.items()}
    assert statuses == {"first": "dropped", "next": "dropped", "cleanup": "new"}
    async with store.connection() as connection:
        cursor = await connection.execute("select cancelled, skipped, open from graph")
        assert await cursor.fetchall() == [(1, 1, 1)]


async def test_a_delay_gate_moves_the_due_time_once(put, cache, store, loop, clock, task_states):
    await task_states.register()
    task = await a_task(store)
    gate = await put(kind=Kind.DELAY, delay=HOUR)
    assert await pick(store, cache.now) == set()

    await sweep(loop)

    row = await task_states.row(task)
    assert row["next_trigger_at"] == gate.created_at + HOUR
    await clock.tick(HOUR + SECOND)
    await sweep(loop)
    assert await pick(store, cache.now) == {task}


# ---- queues and claims -------------------------------------------------------------------------------------


async def test_a_reference_in_a_queue_is_refused_and_its_task_waits_in_the_store(
    put, cache, store, task_states
):
    await task_states.register()
    task = await task_states.enqueued()
    await put()

    proposal = Proposal(task.task_id, os.urandom(16), LAMBDA)
    answers = await claims.claim(store, [(proposal, "host")], CLAIM_TIMEOUT, cache.now)

    assert answers == [None]
    assert await task_states.status(task.task_id) == "new"


async def test_a_claim_of_other_tasks_in_the_same_call_is_granted(put, cache, store, task_states):
    await task_states.register()
    held = await task_states.enqueued(collection="a")
    free = await task_states.enqueued()
    await put(collection="a")

    proposals = [(Proposal(each.task_id, os.urandom(16), LAMBDA), "host") for each in (held, free)]
    answers = await claims.claim(store, proposals, CLAIM_TIMEOUT, cache.now)

    assert [answer and answer.task_id for answer in answers] == [None, free.task_id]


async def test_nothing_is_enqueued_that_a_gate_holds(put, cache, store, task_states):
    await task_states.register()
    await a_task(store, collection="a")
    free = await a_task(store)
    await put(collection="a")

    due = await polling.enqueue(store, ROOM, ENQUEUE_TIMEOUT, cache.now)

    assert [each.task_id for each in due] == [free]


async def test_the_loop_takes_what_is_held_out_of_the_queues(put, store, loop, task_states):
    await task_states.register()
    held, free = await task_states.enqueued(collection="a"), await task_states.enqueued()
    await put(collection="a")

    await sweep(loop)

    assert await task_states.status(held.task_id) == "waiting"
    assert await task_states.status(free.task_id) == "enqueued"


async def test_a_heartbeat_tells_that_a_gate_holds_the_task_and_renews_the_claim(
    put, cache, store, task_states
):
    await task_states.register()
    claimed = await task_states.claimed()
    beat = TaskHeartbeat(claimed.task_id, claimed.token)
    await put()

    answers = await claims.heartbeat(store, [beat], HEARTBEAT_TIMEOUT, cache.now)

    assert answers == [HeartbeatAnswer.GATED]
    assert await task_states.status(claimed.task_id) == "processing"


# ---- cancel, update, expiry --------------------------------------------------------------------------------


async def test_a_parked_task_can_be_cancelled(put, store, loop, task_states):
    await task_states.register()
    task = await a_task(store, collection="a")
    await put(collection="a")
    await sweep(loop)

    await tasks.cancel_tasks(store, [task])

    assert await task_states.status(task) == "cancelled"


async def test_a_parked_task_can_be_changed_and_is_parked_again(put, store, loop, task_states):
    await task_states.register()
    task = await a_task(store, collection="a")
    await put(collection="a")
    await sweep(loop)

    answers = (
        await changes.update_pending(store, [TaskChange(task, payload=b"new", encoding=Encoding.JSON)])
    ).answers

    assert answers[task].verdict is ChangeVerdict.CHANGED
    await sweep(loop)
    assert await task_states.status(task) == "waiting"
    assert (await tasks.get_tasks(store, [task]))[task]["payload"] == b"new"


async def test_a_change_that_is_refused_leaves_a_task_parked(put, store, loop, task_states):
    await task_states.register(payload_limit=3)
    task = await a_task(store, collection="a")
    await put(collection="a")
    await sweep(loop)
    before = await task_states.row(task)

    answers = (
        await changes.update_pending(store, [TaskChange(task, payload=b"long", encoding=Encoding.JSON)])
    ).answers

    assert answers[task].verdict is ChangeVerdict.PAYLOAD_TOO_LARGE
    assert await task_states.row(task) == before
    assert before["status"] == "waiting"


async def test_a_parked_task_expires_in_time(put, store, loop, clock, task_states):
    await task_states.register()
    task = await a_task(store, collection="a", expires_at=await _now(store) + HOUR)
    await put(collection="a")
    await sweep(loop)

    await clock.tick(HOUR + SECOND)
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 100)

    assert await task_states.status(task) == "fatal_failure"


async def _now(store):
    async with store.connection() as connection:
        ((now,),) = await (await connection.execute("select duly_now()")).fetchall()
    return now


# ---- dry run, bounds ---------------------------------------------------------------------------------------


async def test_a_dry_run_counts_by_status_what_a_gate_would_hit(store, task_states):
    await task_states.register()
    await task_states.register(f"{LAMBDA}@2")
    await task_states.register(OTHER)
    await task_states.claimed()
    await task_states.enqueued()
    await a_task(store, delay=HOUR)
    await a_task(store, lambda_name=f"{LAMBDA}@2", delay=HOUR)
    await a_task(store, lambda_name=OTHER)

    counts, is_truncated = await gates.count_hits(store, GateScope(LAMBDA))

    assert (counts, is_truncated) == ({"claimed": 1, "enqueued": 1, "new": 2}, False)
    assert (await gates.count_hits(store, GateScope("*")))[0]["new"] == 3
    assert (await gates.count_hits(store, GateScope(LAMBDA, priority=Priority.LOW)))[0] == {}


async def test_no_more_gates_are_set_than_services_keep_in_memory(store, put, monkeypatch):
    monkeypatch.setattr(gates, "MOST_GATES", 2)

    assert await put("a")
    assert await put("b")
    assert await put("c") is None
    assert await put("b", kind=Kind.DROP)


# ---- rounds ------------------------------------------------------------------------------------------------


async def test_gates_expire_in_time_while_sweeps_rest_after_a_long_turn(put, cache, store, loop, clock):
    await put("brief", duration=timedelta(minutes=1))
    await put("marketing", collection="marketing")
    await sweep(loop)
    loop._rests_until = float("inf")

    await clock.tick(timedelta(minutes=2))
    pause = await loop.run_once()

    assert [each.gate.name for each in await gates.list_gates(store)] == ["marketing"]
    assert pause <= timedelta(seconds=1)


async def test_a_round_ends_after_its_time_and_the_next_sweeps_the_other_gates(
    put, cache, store, loop, task_states, monkeypatch
):
    await task_states.register()
    ones = [await a_task(store, collection=name) for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        await put(name, collection=name)
    monkeypatch.setattr(gate_loop, "_LONGEST_ROUND", 0.0)
    monkeypatch.setattr(loop, "_sweep", swept_one := OneAtATime(loop._sweep))

    while not swept_one.names >= {"a", "b", "c"}:
        swept_one.in_round = 0
        await loop.run_once()
        assert swept_one.in_round <= 1

    assert {await task_states.status(each) for each in ones} == {"waiting"}


class OneAtATime:
    """Counts the sweeps of a round, and lets time pass in each."""

    def __init__(self, sweep):
        self._sweep = sweep
        self.in_round = 0
        self.names = set()

    async def __call__(self, gate, now):
        self.in_round += 1
        self.names.add(gate.name)
        return await self._sweep(gate, now)


async def test_lambdas_whose_units_a_dequeue_frees_are_told(put, store, loop, task_states, cache):
    await task_states.register()
    await whole.put_resource(store, ResourceLimit("database", 1))
    need = (ResourceNeed("database"),)
    sent, behind = [await a_task(store, resources=need, collection=name) for name in ("marketing", "")]
    await polling.enqueue(store, ROOM, ENQUEUE_TIMEOUT)
    assert await task_states.status(behind) == "waiting"
    await put(collection="marketing")
    told = []

    proposal = Proposal(sent, new_task_id().bytes, LAMBDA)
    await claims.claim(store, [(proposal, "host")], CLAIM_TIMEOUT, cache.now, told.append)

    assert told == [{LAMBDA}]
    assert await task_states.status(behind) == "new"


# ---- newer releases ----------------------------------------------------------------------------------------


async def test_a_gate_of_an_unknown_kind_holds_as_a_pause_and_parks_nothing(
    put, cache, store, loop, task_states
):
    await task_states.register()
    held, free = await a_task(store, collection="marketing"), await a_task(store)
    await put(collection="marketing")
    await as_a_newer_release_writes(store, "alter table gate drop constraint gate_kind_check")
    await as_a_newer_release_writes(store, "update gate set kind = 'slow'")
    async with store.connection() as connection:
        await gates.change_gates(connection)
    await cache.run_once()
    await sweep(loop)

    assert await pick(store, cache.now) == {free}
    assert await task_states.status(held) == "new"


async def test_a_gate_of_an_unknown_priority_holds_no_task_of_a_known_one(put, cache, store, task_states):
    await task_states.register()
    free = await a_task(store, priority=Priority.LOW)
    await put(priority=Priority.LOW)
    await as_a_newer_release_writes(store, "alter table gate drop constraint gate_priority_check")
    await as_a_newer_release_writes(store, "update gate set priority = 9")
    async with store.connection() as connection:
        await gates.change_gates(connection)
    await cache.run_once()

    assert await pick(store, cache.now) == {free}


async def as_a_newer_release_writes(store, statement):
    async with store.connection() as connection:
        await connection.execute(statement.encode())


async def test_a_count_that_does_not_read_all_says_so_and_deletes_no_lambda(store, task_states, monkeypatch):
    await task_states.register()
    await task_states.register(OTHER)
    for _ in range(2):
        await task_states.claimed()
    monkeypatch.setattr(live_counts, "MOST_READ", 1)

    counts, is_truncated = await gates.count_hits(store, GateScope(LAMBDA))
    deletion = await lambda_changes.delete(
        store, OTHER, "ann", despite_tasks=False, dry_run=False, expected_revision=None
    )

    assert (counts, is_truncated) == ({"claimed": 1}, True)
    assert (deletion.pending, deletion.running, deletion.counts_are_complete) == (0, 0, False)
    assert not deletion.deleted
