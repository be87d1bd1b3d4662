"""Unique keys in the store: one task of a key, whatever asks for it at the same time."""

import asyncio
from datetime import timedelta

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.limits.store import ResourceLimit
from duly_core.results.store import set_results
from duly_core.tasks import claims, dead_letters, polling
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.dead_letters import Answer, Spread, Verdict
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.store import TaskFilter, cancel_tasks
from duly_core.tasks.task import (
    Debounce,
    NewTask,
    Proposal,
    ResourceNeed,
    Result,
    Scheduling,
    Session,
    Unique,
)
from duly_core.tasks.unique import schedule_unique
from duly_core.upkeep.retention import Retention
from duly_wire.enums import FailureKind, HeldWhile, OnConflict, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures import whole
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import LAMBDA, SECOND

CREATED, IGNORED, REPEATED = Scheduling.CREATED, Scheduling.IGNORED, Scheduling.REPEATED
REPLACED, NOT_REPLACED, REJECTED = Scheduling.REPLACED, Scheduling.NOT_REPLACED, Scheduling.REJECTED
KEY = "user:7"
DAY = timedelta(days=1)
UNIQUE = Unique(KEY)
REPLACE = Unique(KEY, on_conflict=OnConflict.REPLACE)
DEBOUNCE = Unique(KEY, on_conflict=OnConflict.REPLACE, debounce=Debounce(5 * SECOND, 8 * SECOND))


def a_task(unique, **overrides):
    return NewTask(
        **{"task_id": new_task_id().bytes, "lambda_name": LAMBDA, "payload": b"{}", "unique": unique}
        | overrides
    )


async def schedule(task_states, *tasks):
    answers = (await schedule_unique(task_states.store, tasks)).answers
    return answers[0] if len(answers) == 1 else answers


async def test_while_a_task_is_pending_another_of_its_key_is_not_written(task_states, dsn):
    first = a_task(Unique(KEY))
    created = await schedule(task_states, first)

    second = await schedule(task_states, a_task(Unique(KEY)))

    assert (created.verdict, created.due_in) == (CREATED, timedelta())
    assert (second.verdict, second.task_id) == (IGNORED, first.task_id)
    assert ask(dsn, "select count(*) from task_assoc") == [(1,)]
    assert (await task_states.row(first.task_id))["unique_key"] == KEY


@pytest.mark.parametrize(("held_while", "verdict"), [(HeldWhile.PENDING, CREATED), (HeldWhile.LIVE, IGNORED)])
async def test_a_running_task_has_its_key_if_that_is_held_while_it_lives(task_states, held_while, verdict):
    await schedule(task_states, a_task(Unique(KEY)))
    await task_states.take()

    second = await schedule(task_states, a_task(Unique(KEY, held_while)))

    assert second.verdict is verdict


async def test_a_period_counts_from_the_schedule_whatever_became_of_the_task(task_states, clock):
    unique = Unique(KEY, period=60 * SECOND)
    first = a_task(unique)
    await schedule(task_states, first)
    await task_states.fail(await task_states.take())
    await clock.tick(59 * SECOND)

    within = await schedule(task_states, a_task(unique))
    await clock.tick(SECOND)
    after = await schedule(task_states, a_task(unique))

    assert (within.verdict, within.task_id) == (IGNORED, first.task_id)
    assert after.verdict is CREATED


async def test_a_pending_task_gets_payload_priority_and_due_time_of_the_next(task_states):
    first = a_task(REPLACE, payload=b"1", delay=60 * SECOND)
    await schedule(task_states, first)

    second = await schedule(
        task_states, a_task(REPLACE, payload=b"2", priority=Priority.HIGH, scheduled_by="ada")
    )

    row = await task_states.row(first.task_id)
    assert (second.verdict, second.task_id, second.due_in) == (REPLACED, first.task_id, timedelta())
    assert (row["payload"], row["priority"], row["edits"]) == (b"2", Priority.HIGH, 1)
    assert row["next_trigger_at"] < row["created_at"] + SECOND * 30
    claimed = await task_states.take()
    assert claimed.payload == b"2"


async def test_a_debounced_task_waits_after_each_call_but_not_beyond_at_most(task_states, clock):
    first = a_task(DEBOUNCE, payload=b"1")
    created = await schedule(task_states, first)
    begun = await task_states.row(first.task_id)
    await clock.tick(SECOND)
    await schedule(task_states, a_task(DEBOUNCE, payload=b"2"))
    second = await task_states.row(first.task_id)
    await clock.tick(4 * SECOND)
    await schedule(task_states, a_task(DEBOUNCE, payload=b"3"))
    third = await task_states.row(first.task_id)

    assert created.due_in == 5 * SECOND
    assert 6 * SECOND <= second["next_trigger_at"] - begun["created_at"] < 8 * SECOND
    assert 8 * SECOND <= third["next_trigger_at"] - begun["created_at"] < 8.1 * SECOND
    assert third["payload"] == b"3"


@pytest.mark.parametrize(("unique", "after"), [(REPLACE, 2 * SECOND), (DEBOUNCE, 9 * SECOND)])
async def test_a_task_that_is_due_keeps_its_place_however_often_it_is_replaced(
    task_states, clock, unique, after
):
    first = a_task(unique)
    await schedule(task_states, first)
    await clock.tick(after)
    due_at = (await task_states.row(first.task_id))["next_trigger_at"]

    await schedule(task_states, a_task(unique, payload=b"2"))

    row = await task_states.row(first.task_id)
    assert (row["next_trigger_at"], row["payload"]) == (due_at, b"2")


async def test_after_a_debounced_task_began_the_next_call_makes_another(task_states, clock):
    await schedule(task_states, a_task(DEBOUNCE))
    await clock.tick(5 * SECOND)
    await task_states.take()

    second = await schedule(task_states, a_task(DEBOUNCE))

    assert (second.verdict, second.due_in) == (CREATED, 5 * SECOND)


async def test_tasks_of_one_request_are_written_as_if_one_came_after_the_other(task_states):
    tasks = [a_task(DEBOUNCE, payload=b"%d" % number) for number in range(5)]
    other, reject = a_task(Unique("other")), a_task(Unique(KEY, on_conflict=OnConflict.REJECT))

    answers = await schedule(task_states, *tasks[:4], other, reject, tasks[4])

    assert [answer.verdict for answer in answers] == [CREATED, *[REPLACED] * 3, CREATED, REJECTED, REPLACED]
    assert {answer.task_id for answer in answers} == {tasks[0].task_id, other.task_id}
    assert (await task_states.row(tasks[0].task_id))["payload"] == b"4"


async def test_a_repeat_of_a_merged_task_changes_nothing(task_states):
    first, second, third = (a_task(DEBOUNCE, payload=b"%d" % number) for number in range(3))
    await schedule(task_states, first)
    await schedule(task_states, second)
    await schedule(task_states, third)
    before = await task_states.row(first.task_id)

    again = await schedule(task_states, second, first)

    after = await task_states.row(first.task_id)
    assert [(each.verdict, each.task_id) for each in again] == [
        (REPLACED, first.task_id),
        (REPEATED, first.task_id),
    ]
    assert after == before
    assert after["payload"] == b"2"


async def test_a_repeat_of_a_merged_task_is_answered_alike_after_the_other_has_run(task_states, dsn):
    first, second = a_task(REPLACE), a_task(REPLACE, payload=b"2")
    await schedule(task_states, first, second)
    await task_states.end_all_that_may_run()

    again = await schedule(task_states, second)

    assert (again.verdict, again.task_id) == (REPLACED, first.task_id)
    assert ask(dsn, "select count(*) from task_assoc") == [(0,)]


async def test_of_many_concurrent_callers_one_makes_the_task(task_states, dsn):
    policies = [Unique(KEY), REPLACE, DEBOUNCE, Unique(KEY, HeldWhile.LIVE)]

    answers = await asyncio.gather(
        *(schedule(task_states, a_task(policies[number % 4])) for number in range(16))
    )

    assert ask(dsn, "select count(*) from task_assoc") == [(1,)]
    assert [answer.verdict for answer in answers].count(CREATED) == 1
    assert len({answer.task_id for answer in answers}) == 1


async def test_requests_with_the_same_keys_in_other_orders_do_not_deadlock(task_states, dsn):
    keys = [f"k{number}" for number in range(8)]
    uniques = [Unique(key, on_conflict=OnConflict.REPLACE) for key in keys]
    sessions = [Session(f"s{number % 3}") if number % 2 else None for number in range(8)]

    await asyncio.gather(
        *(
            schedule(
                task_states,
                *(
                    a_task(uniques[(start + step * number) % 8], session=sessions[(start + number) % 8])
                    for number in range(8)
                ),
            )
            for start in range(8)
            for step in (1, 3)
        )
    )

    assert ask(dsn, "select count(*), count(distinct task_id) from task_assoc") == [(8, 8)]
    assert ask(
        dsn, "select count(*) from pg_stat_database where datname = current_database() and deadlocks > 0"
    ) == [(0,)]


@pytest.mark.parametrize("end", ["success", "failure", "cancel"])
async def test_an_ended_task_has_no_key(task_states, end):
    first = a_task(Unique(KEY, HeldWhile.LIVE))
    await schedule(task_states, first)
    if end == "cancel":
        await cancel_tasks(task_states.store, [first.task_id])
    else:
        claimed = await task_states.take()
        outcome = Outcome.SUCCESS if end == "success" else Outcome.FATAL_FAILURE
        kind = None if end == "success" else FailureKind.CALLBACK
        await set_results(
            task_states.store, [Result(claimed.task_id, claimed.token, outcome, failure_kind=kind)]
        )

    second = await schedule(task_states, a_task(Unique(KEY, HeldWhile.LIVE)))

    assert second.verdict is CREATED


async def test_a_task_that_expired_has_no_key(task_states, clock):
    now = (await task_states.row((await task_states.new()).task_id))["created_at"]
    await schedule(task_states, a_task(Unique(KEY), expires_at=now + SECOND))
    await clock.tick(2 * SECOND)

    second = await schedule(task_states, a_task(Unique(KEY)))

    assert second.verdict is CREATED


async def test_a_task_that_waits_in_its_session_is_replaced(task_states):
    session = Session("s")
    await schedule(task_states, a_task(Unique("other"), session=session))
    waiting = a_task(REPLACE, session=session)
    await schedule(task_states, waiting)

    second = await schedule(task_states, a_task(REPLACE, session=session, payload=b"2"))

    row = await task_states.row(waiting.task_id)
    assert (second.verdict, second.task_id, second.due_in) == (REPLACED, waiting.task_id, None)
    assert (row["status"], row["payload"]) == ("waiting", b"2")


async def test_a_task_whose_key_is_of_a_lambda_that_is_gone_is_refused_and_leaves_no_row(task_states, dsn):
    answer = await schedule(task_states, a_task(Unique(KEY), lambda_name="no.such"))

    assert answer.verdict is Scheduling.UNKNOWN_LAMBDA
    assert ask(dsn, "select count(*) from unique_key") == [(0,)]


async def test_an_idempotency_key_is_answered_first(task_states):
    first = a_task(Unique(KEY), idempotency_key="order-1")
    await schedule(task_states, first)

    again = await schedule(task_states, a_task(Unique(KEY), idempotency_key="order-1"))
    other = await schedule(task_states, a_task(Unique(KEY), idempotency_key="order-2"))

    assert (again.verdict, again.task_id) == (REPEATED, first.task_id)
    assert (other.verdict, other.task_id) == (IGNORED, first.task_id)


async def dead_of(task_states, unique=UNIQUE):
    task = a_task(unique)
    await schedule(task_states, task)
    await task_states.fail(await task_states.take())
    return task.task_id


async def test_a_dead_letter_is_redriven_unless_another_live_task_has_its_key(task_states):
    first, second = await dead_of(task_states), await dead_of(task_states)
    live = await schedule(task_states, a_task(Unique(KEY)))

    taken = await dead_letters.redrive(task_states.store, [first, second])
    await cancel_tasks(task_states.store, [live.task_id])
    free = await dead_letters.redrive(task_states.store, [first, second])

    assert {(each.verdict, each.holder) for each in taken.values()} == {(Verdict.KEY_TAKEN, live.task_id)}
    assert free == {
        first: Answer(Verdict.REDRIVEN, Status.NEW),
        second: Answer(Verdict.KEY_TAKEN, Status.FATAL_FAILURE, first),
    }
    again = await schedule(task_states, a_task(Unique(KEY)))
    assert (again.verdict, again.task_id) == (IGNORED, first)


async def test_a_redrive_by_filter_leaves_out_what_has_a_taken_key_and_ends(task_states):
    await dead_of(task_states)
    await dead_of(task_states)
    await schedule(task_states, a_task(Unique(KEY)))
    plain = await task_states.claimed(lambda_name=LAMBDA)
    await task_states.fail(plain)

    first = await dead_letters.redrive_where(task_states.store, TaskFilter(), Spread(), 3)
    second = await dead_letters.redrive_where(task_states.store, TaskFilter(), Spread(), 1)

    assert (first.count, first.more) == (1, False)
    assert (second.count, second.more) == (0, False)


async def test_a_redrive_by_filter_goes_on_behind_dead_letters_whose_keys_are_taken(task_states):
    for _ in range(3):
        await dead_of(task_states)
    live = await schedule(task_states, a_task(Unique(KEY)))
    plain = await task_states.claimed(priority=Priority.HIGH)
    await task_states.fail(plain)
    spread, count, calls = Spread(), 0, 0

    more = True
    while more:
        page = await dead_letters.redrive_where(task_states.store, TaskFilter(), spread, 1)
        spread, count, calls, more = page.spread, count + page.count, calls + 1, page.more

    assert live.verdict is CREATED
    assert count == 1
    assert await task_states.status(plain.task_id) == Status.NEW


async def test_a_redrive_and_a_schedule_at_the_same_time_make_one_live_task(task_states, dsn):
    for number in range(5):
        unique = Unique(f"k{number}", HeldWhile.LIVE)
        dead = await dead_of(task_states, unique)

        await asyncio.gather(
            dead_letters.redrive(task_states.store, [dead]),
            *(schedule(task_states, a_task(unique)) for _ in range(3)),
        )

        assert ask(dsn, "select count(*) from task_assoc") == [(1,)]
        await task_states.end_all_that_may_run()


async def test_a_sent_task_is_replaced_and_its_message_is_void(task_states):
    first = a_task(REPLACE)
    await schedule(task_states, first)
    room = {QueueKey(LAMBDA, priority): 100 for priority in Priority}
    await polling.enqueue(task_states.store, room, 60 * SECOND)

    second = await schedule(task_states, a_task(REPLACE, payload=b"2", delay=60 * SECOND))

    proposal = Proposal(first.task_id, bytes(16), LAMBDA)
    assert second.verdict is REPLACED
    assert await claims.claim(task_states.store, [(proposal, "host")], SECOND) == [None]


async def test_a_task_that_is_parked_for_units_is_replaced_and_parked_again(task_states, clock):
    await whole.put_resource(task_states.store, ResourceLimit("db", 1))
    needs = (ResourceNeed("db"),)
    await task_states.new(resources=needs)
    parked = a_task(REPLACE, resources=needs)
    await schedule(task_states, parked)
    await task_states.take_of(LAMBDA)
    assert await task_states.status(parked.task_id) == "waiting"

    second = await schedule(task_states, a_task(REPLACE, payload=b"2", resources=needs))

    assert second.verdict is REPLACED
    assert (await task_states.row(parked.task_id))["payload"] == b"2"
    picks = [Pick(QueueKey(LAMBDA, priority), 10, 0) for priority in Priority]
    await claims.claim_work(task_states.store, picks, [Caller("host", bytes(14))], 10, SECOND)
    assert await task_states.status(parked.task_id) == "waiting"


async def test_keys_of_tasks_that_are_gone_leave_and_have_no_effect_before(task_states, dsn, clock):
    unique = Unique(KEY, period=86_400 * SECOND)
    first, kept = a_task(unique), a_task(Unique("kept", period=86_400 * SECOND))
    await schedule(task_states, first, kept, a_task(REPLACE._replace(key="kept"), payload=b"2"))
    await task_states.end_all_that_may_run()
    ask(dsn, "delete from task where unique_key = 'user:7' returning task_id")
    second = await schedule(task_states, a_task(unique))
    await task_states.end_all_that_may_run()
    ask(dsn, "delete from task where unique_key = 'user:7' returning task_id")
    retention = Retention(task_states.store, SECOND, SECOND, DAY)
    await retention.run_once()
    await clock.tick(3600 * SECOND)

    await Retention(task_states.store, SECOND, SECOND, 365 * DAY).run_once()

    assert second.verdict is CREATED
    assert ask(dsn, "select key from unique_key") == [("kept",)]
    assert ask(dsn, "select count(*) from merged_task") == [(0,)]


@pytest.mark.parametrize("unique", [UNIQUE, REPLACE])
async def test_two_tries_of_one_request_at_the_same_time_leave_the_key_with_its_task(
    task_states, dsn, unique
):
    await schedule(task_states, a_task(UNIQUE))
    await task_states.end_all_that_may_run()
    task = a_task(unique)
    async with await psycopg.AsyncConnection.connect(dsn) as locking:
        await locking.execute("select from unique_key for update")
        tries = [asyncio.create_task(schedule(task_states, task)) for _ in range(2)]
        await until_a_statement_waits_for_a_lock(dsn, 2)
    answers = await asyncio.gather(*tries)

    other = await schedule(task_states, a_task(UNIQUE))

    assert sorted(answer.verdict.value for answer in answers) == ["created", "repeated"]
    assert (other.verdict, other.task_id) == (IGNORED, task.task_id)
