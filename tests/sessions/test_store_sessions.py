"""Sessions in the store: one task at a time, in order, whatever ends it; nothing is left of a drained one."""

import asyncio
import os
from datetime import timedelta

import pytest
from prometheus_client import REGISTRY

from duly_core.lambdas.names import QueueKey
from duly_core.lambdas.session_names import SessionId
from duly_core.postgres.pool import fetch
from duly_core.postgres.statements import TRANSITIONS
from duly_core.results.store import set_results
from duly_core.results.successes import success_parameters
from duly_core.sessions import store as sessions
from duly_core.tasks import claims, dead_letters, polling, schedule
from duly_core.tasks import store as tasks
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Applied, NewTask, Result, Scheduling, Session
from duly_store_consumer.counting.session_watch import count_blocked
from duly_wire.enums import FailureKind, Outcome, Priority, SessionOrder, SessionPolicy
from duly_wire.ids import new_task_id
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA

KEY = "vlan-7"
SESSION = SessionId("", KEY)
MINUTE = timedelta(minutes=1)


def a_task(key: str = KEY, **fields) -> NewTask:
    order = fields.pop("order", SessionOrder.SCHEDULED)
    policy = fields.pop("policy", SessionPolicy.SKIP)
    return NewTask(
        task_id=new_task_id().bytes,
        lambda_name=fields.pop("lambda_name", LAMBDA),
        payload=b"{}",
        session=Session(key, order, policy),
        **fields,
    )


async def scheduled(store, *new_tasks):
    answers = await schedule.schedule(store, new_tasks)
    assert [answer.verdict for answer in answers] == [Scheduling.CREATED] * len(new_tasks)
    return answers


async def claim_all(store):
    picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), 1000, 0)]
    work = await claims.claim_work(store, picks, [Caller("host", os.urandom(14))], 1000, CLAIM_TIMEOUT)
    return work.tasks


async def end(store, claimed, outcome=Outcome.SUCCESS):
    failed = (
        {} if outcome is Outcome.SUCCESS else {"failure_kind": FailureKind.CALLBACK, "failure_message": "no"}
    )
    written = await set_results(
        store, [Result(task.task_id, task.token, outcome, **failed) for task in claimed]
    )
    assert set(written.verdicts) <= {Applied.APPLIED}
    return written


async def run_to_the_end(store, most=100):
    """Claim and finish what may run until nothing does; the ids in the order in which they ran."""
    order = []
    for _ in range(most):
        claimed = await claim_all(store)
        if not claimed:
            return order
        order += [task.task_id for task in claimed]
        await end(store, claimed)
    raise AssertionError("it does not end")


@pytest.fixture
async def registered(store, task_states):
    await task_states.register()
    return store


async def test_tasks_of_a_session_run_one_at_a_time_in_the_order_of_the_request(registered):
    asked = [a_task() for _ in range(5)]
    shuffled = [asked[place] for place in (3, 0, 4, 1, 2)]
    await scheduled(registered, *shuffled)

    for task in shuffled:
        (claimed,) = await claim_all(registered)
        assert claimed.task_id == task.task_id
        assert await claim_all(registered) == []
        await end(registered, [claimed])

    assert await sessions.list_sessions(registered, after="", blocked=False, limit=10) == []


async def test_only_the_first_task_is_due_and_the_end_of_one_tells_of_the_next(registered):
    first, second = await scheduled(registered, a_task(), a_task())
    assert first.due_in == timedelta()
    assert second.due_in is None

    written = await end(registered, await claim_all(registered))

    assert written.due_in is not None
    assert written.due_in <= timedelta()
    assert written.due_lambdas == {LAMBDA}


async def test_sessions_do_not_wait_for_each_other(registered):
    await scheduled(registered, *(a_task(f"s{number % 10}") for number in range(30)), a_task("other"))

    assert len(await claim_all(registered)) == 11


async def test_a_plain_task_beside_those_of_sessions_is_written_in_its_place(registered):
    plain = a_task()._replace(session=None)
    answers = await scheduled(registered, a_task(), plain, a_task())

    assert answers[1].task_id == plain.task_id
    assert len(await claim_all(registered)) == 2


async def test_a_retry_keeps_its_place_before_the_others(registered, clock):
    first, second = a_task(), a_task()
    await scheduled(registered, first, second)
    await end(registered, await claim_all(registered), Outcome.RETRIABLE_FAILURE)

    assert await claim_all(registered) == []
    await clock.tick(timedelta(days=1))
    assert [task.task_id for task in await claim_all(registered)] == [first.task_id]


async def test_by_due_time_an_earlier_task_goes_before_one_that_nobody_has_claimed(registered, clock):
    late = a_task(order=SessionOrder.DUE, delay=2 * MINUTE)
    soon = a_task(order=SessionOrder.DUE, delay=MINUTE)
    now = a_task(order=SessionOrder.DUE)
    await scheduled(registered, late)
    await scheduled(registered, soon)
    await scheduled(registered, now)

    (claimed,) = await claim_all(registered)
    assert claimed.task_id == now.task_id
    earlier = a_task(order=SessionOrder.DUE)
    await scheduled(registered, earlier)
    await end(registered, [claimed])
    await clock.tick(3 * MINUTE)
    assert await run_to_the_end(registered) == [earlier.task_id, soon.task_id, late.task_id]


async def test_with_skip_the_next_task_runs_after_a_failure(registered):
    await scheduled(registered, a_task(), second := a_task())
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    assert await run_to_the_end(registered) == [second.task_id]


async def test_a_redriven_task_waits_behind_those_of_its_session(registered):
    first, second = a_task(), a_task()
    await scheduled(registered, first, second)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    answers = await dead_letters.redrive(registered, [first.task_id])

    assert answers[first.task_id].status is Status.WAITING
    assert await run_to_the_end(registered) == [second.task_id, first.task_id]


async def test_with_block_nothing_runs_until_the_failed_task_is_redriven(registered):
    first, second = a_task(policy=SessionPolicy.BLOCK), a_task()
    await scheduled(registered, first, second)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    assert await claim_all(registered) == []
    third = a_task()
    await scheduled(registered, third)
    assert await claim_all(registered) == []
    (state,) = await sessions.list_sessions(registered, after="", blocked=True, limit=10)
    assert (state.session_id, state.length, state.head, state.blocked_by) == (SESSION, 2, None, first.task_id)
    assert state.blocked_at is not None

    answers = await dead_letters.redrive(registered, [first.task_id])
    assert answers[first.task_id].status is Status.NEW
    assert await run_to_the_end(registered) == [first.task_id, second.task_id, third.task_id]


async def test_a_blocked_session_goes_on_with_the_next_task_when_it_is_unblocked(registered):
    first, second = a_task(policy=SessionPolicy.BLOCK), a_task()
    await scheduled(registered, first, second)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    assert (await sessions.unblock_sessions(registered, [SESSION, SessionId("", "unknown")])).now == {SESSION}
    assert (await sessions.unblock_sessions(registered, [SESSION])).now == set()
    assert await run_to_the_end(registered) == [second.task_id]


async def test_a_repeat_that_names_the_block_does_not_end_the_next_one(registered):
    first, second, third = (a_task(policy=SessionPolicy.BLOCK) for _ in range(3))
    await scheduled(registered, first, second, third)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    named = {SESSION: first.task_id}
    assert await sessions.unblock_sessions(registered, [SESSION], named) == ({SESSION}, set())
    assert await sessions.unblock_sessions(registered, [SESSION], named) == (set(), {SESSION})
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)
    assert await sessions.unblock_sessions(registered, [SESSION], named) == (set(), {SESSION})

    (state,) = await sessions.list_sessions(registered, after="", blocked=True, limit=10)
    assert state.blocked_by == second.task_id


async def test_a_block_that_never_was_is_not_answered_as_over(registered):
    first, second = a_task(policy=SessionPolicy.BLOCK), a_task()
    other = a_task("other", policy=SessionPolicy.BLOCK)
    await scheduled(registered, first, second, other)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)
    named = [new_task_id().bytes, second.task_id, other.task_id]

    answers = [
        await sessions.unblock_sessions(registered, [SESSION], {SESSION: task_id}) for task_id in named
    ]
    unknown = await sessions.unblock_sessions(
        registered, [SessionId("", "nobody")], {SessionId("", "nobody"): first.task_id}
    )

    assert [*answers, unknown] == [(set(), set())] * 4


async def test_a_block_that_a_redrive_ended_is_over(registered):
    first, second = a_task(policy=SessionPolicy.BLOCK), a_task()
    await scheduled(registered, first, second)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)
    await dead_letters.redrive(registered, [first.task_id])

    assert await sessions.unblock_sessions(registered, [SESSION], {SESSION: first.task_id}) == (
        set(),
        {SESSION},
    )


async def test_a_blocked_session_without_tasks_stays_until_it_is_unblocked(registered):
    await scheduled(registered, a_task(policy=SessionPolicy.BLOCK))
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)
    await scheduled(registered, waiting := a_task())
    await tasks.cancel_tasks(registered, [waiting.task_id])

    (state,) = await sessions.list_sessions(registered, after="", blocked=True, limit=10)
    assert state.length == 0
    assert (await sessions.unblock_sessions(registered, [SESSION])).now == {SESSION}
    assert await sessions.list_sessions(registered, after="", blocked=False, limit=10) == []


async def test_blocked_sessions_are_counted_without_those_that_still_fail(registered):
    for key, policy in (
        ("a", SessionPolicy.BLOCK),
        ("b", SessionPolicy.BLOCK),
        ("c", SessionPolicy.FAIL_REST),
    ):
        await scheduled(registered, a_task(key, policy=policy), a_task(key, policy=policy))
    await scheduled(registered, a_task("d"))
    assert await sessions.count_blocked(registered, 10) == 0
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    assert await sessions.count_blocked(registered, 10) == 2
    assert await sessions.count_blocked(registered, 1) == 1
    await count_blocked(registered)
    assert REGISTRY.get_sample_value("duly_sessions_blocked") == 2


async def test_with_fail_rest_those_that_wait_fail_and_later_ones_run(registered):
    first, *rest = [a_task(policy=SessionPolicy.FAIL_REST) for _ in range(4)]
    await scheduled(registered, first, *rest)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)
    await scheduled(registered, later := a_task())
    assert await claim_all(registered) == []

    found = await polling.handle_timeouts(registered, None, ENQUEUE_TIMEOUT, 100)

    assert found.ended == 3
    assert found.released == {LAMBDA}
    rows = await tasks.get_tasks(registered, [task.task_id for task in rest])
    assert {(row["status"], row["failure_kind"]) for row in rows.values()} == {
        ("fatal_failure", FailureKind.SESSION_FAILED)
    }
    assert await run_to_the_end(registered) == [later.task_id]


async def test_a_session_is_not_unblocked_while_its_tasks_are_to_end_with_a_failure(registered):
    await scheduled(registered, *(a_task(policy=SessionPolicy.FAIL_REST) for _ in range(3)))
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    unblocked = await sessions.unblock_sessions(registered, [SESSION])

    assert unblocked == (set(), set())
    assert (await sessions.get_sessions(registered, [SESSION], 10))[SESSION].failing == 2


async def test_a_task_that_is_to_end_with_a_failure_can_be_cancelled_until_it_has(registered):
    failing, waiting, another = (a_task(policy=SessionPolicy.FAIL_REST) for _ in range(3))
    await scheduled(registered, failing, waiting, another)
    await end(registered, await claim_all(registered), Outcome.FATAL_FAILURE)

    cancelled = await tasks.cancel_tasks(registered, [waiting.task_id])
    await polling.handle_timeouts(registered, None, ENQUEUE_TIMEOUT, 100)

    assert cancelled.statuses == {waiting.task_id: Status.CANCELLED}
    rows = await tasks.get_tasks(registered, [waiting.task_id, another.task_id])
    assert rows[waiting.task_id]["status"] == Status.CANCELLED
    assert rows[another.task_id]["status"] == Status.FATAL_FAILURE
    assert await sessions.get_sessions(registered, [SESSION], 10) == {}


async def test_a_cancelled_task_leaves_its_session_wherever_it_stands(registered):
    first, second, third, fourth = [a_task() for _ in range(4)]
    await scheduled(registered, first, second, third, fourth)

    cancelled = await tasks.cancel_tasks(registered, [third.task_id, first.task_id])

    assert cancelled.statuses == dict.fromkeys([first.task_id, third.task_id], Status.CANCELLED)
    assert set(cancelled.released) == {LAMBDA}
    assert await run_to_the_end(registered) == [second.task_id, fourth.task_id]


async def test_all_tasks_of_a_session_can_be_cancelled_at_once(registered):
    asked = [a_task() for _ in range(20)]
    await scheduled(registered, *asked)

    cancelled = await tasks.cancel_tasks(registered, [task.task_id for task in asked])

    assert set(cancelled.statuses.values()) == {Status.CANCELLED}
    assert len(cancelled.statuses) == 20
    assert await sessions.list_sessions(registered, after="", blocked=False, limit=10) == []


async def test_a_repeated_schedule_adds_nothing_and_another_session_is_a_conflict(registered):
    task = a_task()
    await scheduled(registered, task)

    (again,) = await schedule.schedule(registered, [task])
    (other,) = await schedule.schedule(registered, [task._replace(session=Session("another"))])
    (none,) = await schedule.schedule(registered, [task._replace(session=None)])

    assert again.verdict is Scheduling.REPEATED
    assert other.verdict is none.verdict is Scheduling.CONFLICT
    assert (await sessions.get_sessions(registered, [SESSION], 10))[SESSION].length == 1


async def test_schedules_and_ends_at_once_leave_no_session_without_a_head(registered):
    keys = [f"s{number}" for number in range(5)]
    written = [a_task(keys[number % 5]) for number in range(200)]
    ran = []

    async def write(some):
        for start in range(0, len(some), 5):
            await scheduled(registered, *some[start : start + 5])

    async def run():
        while len(ran) < len(written):
            claimed = await claim_all(registered)
            await end(registered, claimed)
            ran.extend(task.task_id for task in claimed)
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(write(written[:100]), write(written[100:]), run(), run()), 60)

    assert len(ran) == len(set(ran)) == 200
    assert await sessions.list_sessions(registered, after="", blocked=False, limit=10) == []


async def test_a_cancel_that_waited_for_sessions_does_not_wait_for_a_task_that_runs_since(registered, dsn):
    head, released, elsewhere = a_task("a"), a_task("a"), a_task("b")
    await scheduled(registered, head, released, a_task("b"), elsewhere)
    claimed = {task.task_id: task for task in await claim_all(registered)}

    async with registered.connection() as other, other.transaction():
        await other.execute("select from session where key = '/b' for update")
        async with registered.connection() as ending, ending.transaction():
            ended = Result(head.task_id, claimed[head.task_id].token, Outcome.SUCCESS)
            await fetch(ending, TRANSITIONS["finish"], success_parameters([ended]))
            cancelling = asyncio.create_task(
                tasks.cancel_tasks(registered, [released.task_id, elsewhere.task_id])
            )
            await until_a_statement_waits_for_a_lock(dsn)
        # or the end of `released` might lock session a before the cancel has woken up
        await until_a_statement_waits_for_a_lock(dsn, held_by=other.info.backend_pid)
        # the cancel holds session a now, and waits for b; the statement that waited saw `released` wait
        running = asyncio.create_task(end(registered, await claim_all(registered)))
        await until_a_statement_waits_for_a_lock(dsn, statements=2)
    await running
    cancelled = await cancelling

    assert cancelled.statuses == {elsewhere.task_id: Status.CANCELLED}
