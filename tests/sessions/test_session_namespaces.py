"""A session ends at its namespace: whatever tasks of one do, the same key in another goes on as if they were not there."""

import os
from datetime import timedelta

import psycopg
import pytest

from duly_core.explain.reads import read_explained
from duly_core.explain.waits import read_session
from duly_core.gates import store as gates
from duly_core.gates.rules import NO_GATES, GateScope, GateSet, Kind
from duly_core.gates.store import NewGate
from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.session_names import SessionId
from duly_core.results.store import set_results
from duly_core.sessions import store as sessions
from duly_core.tasks import claims, dead_letters, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.bulk import Place, purge_where
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import FINAL
from duly_core.tasks.store import TaskFilter
from duly_core.tasks.task import NewTask, Result, Scheduling, Session
from duly_core.upkeep.retention import Retention
from duly_wire.enums import FailureKind, Outcome, Priority, SessionOrder, SessionPolicy
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, SECOND

KEY = "customer-7"
OURS, OTHERS = "shop/order.price", "mail.send"
OF_OURS, OF_OTHERS = SessionId("shop", KEY), SessionId("", KEY)
DAY, MONTH = timedelta(days=1), timedelta(days=30)
BLOCK, FAIL_REST = SessionPolicy.BLOCK, SessionPolicy.FAIL_REST


class Sessions:
    """Tasks of two lambdas, in sessions with one key."""

    def __init__(self, store):
        self.store = store

    async def put(self, lambda_name, *, policy=SessionPolicy.SKIP, order=SessionOrder.SCHEDULED, **fields):
        session = Session(fields.pop("key", KEY), order, policy)
        task = NewTask(new_task_id().bytes, lambda_name, b"{}", session=session, **fields)
        (answer,) = await schedule.schedule(self.store, [task])
        assert answer.verdict is Scheduling.CREATED
        return task.task_id

    async def claim(self, lambda_name, gate_set=NO_GATES):
        picks = [Pick(QueueKey(lambda_name, Priority.NORMAL), 100, 0)]
        work = await claims.claim_work(
            self.store, picks, [Caller("host", os.urandom(14))], 100, CLAIM_TIMEOUT, gate_set
        )
        return work.tasks

    async def end(self, lambda_name, outcome=Outcome.SUCCESS):
        """Claim and end what may run of a lambda; the ids."""
        claimed = await self.claim(lambda_name)
        failed = {} if outcome is Outcome.SUCCESS else {"failure_kind": FailureKind.CALLBACK}
        await set_results(
            self.store, [Result(each.task_id, each.token, outcome, **failed) for each in claimed]
        )
        return [each.task_id for each in claimed]

    async def runnable(self, lambda_name, gate_set=NO_GATES):
        """Claim what may run; the ids."""
        return [each.task_id for each in await self.claim(lambda_name, gate_set)]

    async def of(self, session):
        return (await sessions.get_sessions(self.store, [session], 10)).get(session)

    async def end_what_timed_out(self):
        await polling.handle_timeouts(self.store, None, ENQUEUE_TIMEOUT, 100)


@pytest.fixture
async def both(store, task_states):
    for name in (OURS, OTHERS):
        await task_states.register(name, max_attempts=1)
    return Sessions(store)


async def test_tasks_of_two_namespaces_with_one_key_do_not_wait_for_each_other(both):
    theirs = await both.put(OTHERS)
    ours = await both.put(OURS)
    waiting = await both.put(OURS)

    assert await both.end(OURS) == [ours]
    assert await both.end(OURS) == [waiting]

    assert (await both.of(OF_OTHERS)).head == theirs
    assert await both.of(OF_OURS) is None


async def test_a_head_far_ahead_of_another_namespace_holds_nothing_up(both):
    await both.put(OTHERS, delay=MONTH)
    ours = await both.put(OURS)

    assert await both.runnable(OURS) == [ours]


async def test_one_request_with_tasks_of_two_namespaces_puts_each_into_its_own_session(both):
    new = [
        NewTask(new_task_id().bytes, name, b"{}", session=Session(KEY))
        for name in (OURS, OTHERS, OURS, OTHERS)
    ]

    await schedule.schedule(both.store, new)

    assert (await both.of(OF_OURS)).head == new[0].task_id
    assert (await both.of(OF_OTHERS)).head == new[1].task_id
    assert (await both.of(OF_OTHERS)).waiting == (new[3].task_id,)


@pytest.mark.parametrize("policy", [*SessionPolicy])
async def test_a_head_of_another_namespace_that_fails_does_nothing_to_ours(both, policy):
    await both.put(OTHERS, policy=policy)
    ours = await both.put(OURS)
    waiting = await both.put(OURS)

    await both.end(OTHERS, Outcome.FATAL_FAILURE)
    await both.end_what_timed_out()

    state = await both.of(OF_OURS)
    assert (state.head, state.blocked_by, state.failing, state.waiting) == (ours, None, 0, (waiting,))
    assert await both.end(OURS) == [ours]
    assert await both.end(OURS) == [waiting]


@pytest.mark.parametrize("policy", [BLOCK, FAIL_REST])
async def test_a_head_of_another_namespace_that_expires_does_nothing_to_ours(both, clock, policy):
    async with both.store.connection() as connection:
        cursor = await connection.execute("select duly_now() + interval '1 minute'")
        ((expires_at,),) = await cursor.fetchall()
    await both.put(OTHERS, policy=policy, expires_at=expires_at)
    ours = await both.put(OURS)
    await both.put(OURS)
    await clock.tick(timedelta(minutes=1) + SECOND)

    await both.end_what_timed_out()

    state = await both.of(OF_OURS)
    assert (state.head, state.blocked_by, state.failing, len(state.waiting)) == (ours, None, 0, 1)


async def test_an_earlier_task_of_another_namespace_takes_no_heads_place(both):
    ours = await both.put(OURS, order=SessionOrder.DUE, delay=DAY)

    earlier = await both.put(OTHERS, order=SessionOrder.DUE)

    assert (await both.of(OF_OURS)).head == ours
    assert await both.runnable(OTHERS) == [earlier]


async def test_an_end_and_a_cancel_of_another_namespace_release_nothing_of_ours(both):
    await both.put(OTHERS)
    cancelled = await both.put(OTHERS)
    ours = await both.put(OURS)
    waiting = await both.put(OURS)

    await tasks.cancel_tasks(both.store, [cancelled])
    await both.end(OTHERS)

    state = await both.of(OF_OURS)
    assert (state.head, state.length, state.waiting) == (ours, 2, (waiting,))
    assert await both.of(OF_OTHERS) is None


async def blocked_in_both(both):
    """Block both sessions; the tasks that do, and those that wait."""
    blockers = [await both.put(name, policy=BLOCK) for name in (OURS, OTHERS)]
    followers = [await both.put(name) for name in (OURS, OTHERS)]
    for name in (OURS, OTHERS):
        await both.end(name, Outcome.FATAL_FAILURE)
    return blockers, followers


async def test_the_end_of_a_block_ends_none_of_another_namespace(both):
    (blocker, _), (_, waiting) = await blocked_in_both(both)

    unblocked = await sessions.unblock_sessions(both.store, [OF_OTHERS])
    named = await sessions.unblock_sessions(both.store, [OF_OTHERS], {OF_OTHERS: blocker})

    assert unblocked.now == {OF_OTHERS}
    assert named == (set(), set())
    assert (await both.of(OF_OURS)).blocked_by == blocker
    assert (await both.of(OF_OTHERS)).head == waiting


async def test_a_redrive_ends_no_block_of_another_namespace(both):
    (blocker, theirs), _ = await blocked_in_both(both)

    await dead_letters.redrive(both.store, [theirs])

    assert (await both.of(OF_OURS)).blocked_by == blocker
    assert (await both.of(OF_OTHERS)).head == theirs


async def test_a_removed_blocker_ends_no_block_of_another_namespace(both):
    (blocker, theirs), (_, waiting) = await blocked_in_both(both)

    async with both.store.connection() as connection:
        await connection.execute("delete from dead_letter where task_id = %s", [theirs.hex()])
    await Retention(both.store, MONTH, MONTH, DAY).run_once()

    assert (await both.of(OF_OURS)).blocked_by == blocker
    assert (await both.of(OF_OTHERS)).head == waiting


async def test_a_purge_of_a_blocker_ends_no_block_of_another_namespace(both):
    (blocker, theirs), (_, waiting) = await blocked_in_both(both)

    await purge_where(both.store, TaskFilter(lambda_name=OTHERS, statuses=FINAL), Place(), 10)
    await Retention(both.store, MONTH, MONTH, DAY).run_once()

    assert theirs != blocker
    assert (await both.of(OF_OURS)).blocked_by == blocker
    assert (await both.of(OF_OTHERS)).head == waiting


@pytest.mark.parametrize(
    ("pattern", "held"), [("shop/*", [OURS]), (OURS, [OURS]), (OTHERS, [OTHERS]), ("*", [OURS, OTHERS])]
)
async def test_a_gate_on_a_session_holds_the_key_where_its_pattern_covers_lambdas(both, pattern, held):
    scope = GateScope(pattern, session=KEY)
    gate = await whole.put_gate(both.store, NewGate("held", Kind.PAUSE, scope, None, "ops", "", None))
    known = {name: await both.put(name) for name in (OURS, OTHERS)}
    others = {name: await both.put(name, key="another") for name in (OURS, OTHERS)}

    counts, _ = await gates.count_hits(both.store, scope)
    taken = {name: set(await both.runnable(name, GateSet([gate]))) for name in (OURS, OTHERS)}

    assert counts == {"new": len(held)}
    assert taken == {
        name: {others[name]} | (set() if name in held else {known[name]}) for name in (OURS, OTHERS)
    }


async def test_what_waits_is_counted_in_its_own_namespace(both):
    for _ in range(3):
        await both.put(OTHERS)
    await both.put(OURS)
    await both.put(OURS)
    last = await both.put(OURS)

    row = await read_explained(both.store, last)
    session = await read_session(both.store, row)

    assert session["before"] == 1


async def test_sessions_are_listed_by_namespace(both):
    names = [
        ("", KEY), ("", "shop/a"), ("shop", "a"), ("shop", KEY), ("shop", "ü"),
    ]  # fmt: skip
    for namespace, key in names:
        await both.put(OURS if namespace else OTHERS, key=key)

    async def listed(namespace, after=""):
        found = await sessions.list_sessions(
            both.store, namespace=namespace, after=after, blocked=False, limit=10
        )
        return [each.session_id for each in found]

    assert await listed(None) == [*map(SessionId._make, names)]
    assert await listed("shop") == [*map(SessionId._make, names[2:])]
    assert await listed("") == [*map(SessionId._make, names[:2])]
    assert await listed("sho") == []
    assert await listed("shop", after="/customer-7") == [*map(SessionId._make, names[2:])]
    assert await listed("", after="shop/a") == []
    assert await listed("shop", after="shop/a") == [*map(SessionId._make, names[3:])]


async def test_a_key_with_a_slash_is_no_key_of_the_namespace_before_it(both):
    looks_alike = await both.put(OTHERS, key=f"shop/{KEY}", delay=MONTH)
    ours = await both.put(OURS)

    assert await both.runnable(OURS) == [ours]
    assert (await both.of(SessionId("", f"shop/{KEY}"))).head == looks_alike


async def test_the_schema_takes_no_session_without_its_namespace(both):
    async with both.store.connection() as connection:
        with pytest.raises(psycopg.errors.CheckViolation):
            await connection.execute(
                "insert into session (key, head, length, last_seq) values ('plain', gen_random_uuid(), 1, 1)"
            )


async def test_the_same_task_in_the_same_session_is_a_repeat_and_in_another_a_conflict(both):
    task = NewTask(new_task_id().bytes, OURS, b"{}", session=Session(KEY), idempotency_key="once")
    await schedule.schedule(both.store, [task])

    (again,) = await schedule.schedule(both.store, [task._replace(task_id=new_task_id().bytes)])
    (another,) = await schedule.schedule(
        both.store, [task._replace(task_id=new_task_id().bytes, session=Session("another"))]
    )

    assert (again.verdict, again.task_id) == (Scheduling.REPEATED, task.task_id)
    assert another.verdict is Scheduling.CONFLICT
