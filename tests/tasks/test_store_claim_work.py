"""Claims of what is due, without a queue: who gets what, in which order, and how a lost reply is found again."""

import asyncio
import os
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store, fetch_as
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import TRANSITIONS
from duly_core.tasks import claims, polling, schedule
from duly_core.tasks.claims import Caller, Pick
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import (
    TOKEN_PREFIX_BYTES,
    Applied,
    Encoding,
    HeartbeatAnswer,
    NewTask,
    ReleasedClaim,
    TaskHeartbeat,
)
from duly_wire.enums import Priority
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.guards import InStatement
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, LAMBDA, SECOND

NORMAL = QueueKey(LAMBDA, Priority.NORMAL)
ALL = {QueueKey(LAMBDA, priority): 100 for priority in Priority}
OTHER = "report.make"
SILENT = CLAIM_TIMEOUT + SECOND


def caller(holder="host"):
    return Caller(holder, os.urandom(TOKEN_PREFIX_BYTES))


def picks(queues):
    return [Pick(queue, size, 0) for queue, size in queues.items()]


async def look(task_states, *callers, queues=ALL, most=100, store=None, within=3_600 * SECOND):
    """Claim for these callers, or for one of whom nothing matters."""
    return await claims.claim_work(
        store or task_states.store, picks(queues), callers or [caller()], most, CLAIM_TIMEOUT, within=within
    )


def ids(tasks):
    return [task.task_id for task in tasks]


def pairs(tasks):
    return sorted((task.task_id, task.token) for task in tasks)


def by_place(tasks, *callers):
    """The tasks in the order in which they were picked, as their tokens tell."""
    numbers = {who.token_prefix: number for number, who in enumerate(callers)}
    places = {
        int.from_bytes(task.token[TOKEN_PREFIX_BYTES:]) * len(callers)
        + numbers[task.token[:TOKEN_PREFIX_BYTES]]: task
        for task in tasks
    }
    assert sorted(places) == list(range(len(tasks)))
    return [places[place] for place in sorted(places)]


async def scheduled(task_states, count, **overrides):
    return [await task_states.new(**overrides) for _ in range(count)]


# ---- what is claimed ---------------------------------------------------------------------------------------


async def test_a_task_whose_entity_was_removed_by_hand_is_given_to_nobody(task_states, dsn):
    lost, task = await scheduled(task_states, 2)
    with psycopg.connect(dsn) as connection:
        connection.execute("delete from task where task_id = %s", [UUID(bytes=lost.task_id)])

    work = await look(task_states)

    assert ids(work.tasks) == [task.task_id]


async def test_a_claimed_task_carries_everything_its_executor_needs(task_states):
    await task_states.register(max_runtime=timedelta(minutes=7))
    task = await task_states.new(payload=b"\x00\xff", encoding=Encoding.RAW, priority=Priority.URGENT)

    (claimed,) = (await look(task_states, who := caller())).tasks

    row = await task_states.row(task.task_id)
    assert (claimed.task_id, claimed.token) == (task.task_id, who.token_prefix + b"\0\0")
    assert (claimed.lambda_name, claimed.priority) == (LAMBDA, Priority.URGENT)
    assert (claimed.payload, claimed.encoding) == (b"\x00\xff", Encoding.RAW)
    assert (claimed.fence, claimed.failures, claimed.crashes) == (1, 0, 0)
    assert claimed.max_runtime == timedelta(minutes=7)
    assert claimed.due_at_us == round(row["scheduled_at"].timestamp() * 1_000_000)
    assert (row["status"], row["holder"], row["fence"]) == ("claimed", "host", 1)


async def test_what_is_not_due_expired_or_held_by_others_is_left_alone(task_states, clock):
    held, sent = await task_states.claimed(), await task_states.enqueued()
    created_at = (await task_states.row(held.task_id))["created_at"]
    expired = await task_states.new(expires_at=created_at + 2 * SECOND)
    later = await task_states.new(delay=60 * SECOND)
    due = await task_states.new()
    await clock.tick(3 * SECOND)

    work = await look(task_states)

    assert ids(work.tasks) == [due.task_id]
    left = [await task_states.status(task.task_id) for task in (held, sent, expired, later)]
    assert left == ["claimed", "enqueued", "new", "new"]


async def test_a_failed_attempt_is_claimed_again_when_its_backoff_is_over(task_states, clock):
    task = await task_states.claimed()
    await clock.tick(SILENT)
    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)

    (claimed,) = (await look(task_states)).tasks

    assert (claimed.task_id, claimed.fence, claimed.crashes) == (task.task_id, 2, 1)


async def test_the_best_priority_goes_first_and_the_oldest_first_within_one(task_states, clock):
    normal, urgent = [], []
    for _ in range(3):
        normal += await scheduled(task_states, 1)
        urgent += await scheduled(task_states, 1, priority=Priority.URGENT)
        await clock.tick(SECOND)
    who = caller()

    work = await look(task_states, who)

    assert ids(by_place(work.tasks, who)) == ids([*urgent, *normal])


async def test_no_more_is_taken_than_of_each_queue_and_in_all_was_asked_for(task_states):
    await scheduled(task_states, 4)
    await scheduled(task_states, 4, priority=Priority.LOW)
    queues = {NORMAL: 3, QueueKey(LAMBDA, Priority.LOW): 3}

    first = await look(task_states, queues=queues, most=4)
    second = await look(task_states, queues=queues, most=10)

    assert sorted(task.priority for task in first.tasks) == [3, 3, 3, 4]
    assert sorted(task.priority for task in second.tasks) == [3, 4, 4, 4]


async def test_of_lambdas_that_were_not_named_nothing_is_taken(task_states):
    await task_states.register(OTHER)
    await task_states.new(lambda_name=OTHER)

    work = await look(task_states)

    assert (work.tasks, work.ahead) == ([], {})


async def test_callers_get_tasks_in_turn_under_their_own_prefix_numbered_from_zero(task_states):
    await scheduled(task_states, 5)
    first, second = caller("one"), caller("two")

    work = await look(task_states, first, second)

    by_place(work.tasks, first, second)
    holders = {task.token: (await task_states.row(task.task_id))["holder"] for task in work.tasks}
    assert holders == {first.token_prefix + bytes([0, n]): "one" for n in range(3)} | {
        second.token_prefix + bytes([0, n]): "two" for n in range(2)
    }


async def test_concurrent_callers_never_get_the_same_task(task_states, dsn):
    tasks = [NewTask(os.urandom(16), LAMBDA, b"1") for _ in range(200)]
    await schedule.schedule(task_states.store, tasks)
    async with Store(StoreSettings(dsn=dsn)) as other:
        looks = [look(task_states, most=20, store=store) for store in (task_states.store, other) * 10]
        found = [task.task_id for work in await asyncio.gather(*looks) for task in work.tasks]

        while more := (await look(task_states)).tasks:
            found += ids(more)

    assert sorted(found) == sorted(ids(tasks))


async def test_a_row_that_somebody_has_locked_is_passed_over_without_waiting(task_states, dsn):
    locked, free = await scheduled(task_states, 2)
    with psycopg.connect(dsn) as connection:
        connection.execute("select from task_assoc where task_id = %s for update", [locked.task_id.hex()])

        work = await look(task_states)

        connection.rollback()
    assert ids(work.tasks) == [free.task_id]
    assert ids((await look(task_states)).tasks) == [locked.task_id]


# ---- what is ahead -----------------------------------------------------------------------------------------


async def test_a_look_tells_how_long_until_each_queue_has_something_more(task_states):
    await task_states.new(delay=30 * SECOND)
    await task_states.new(delay=7 * SECOND)
    await task_states.new(delay=90 * SECOND, priority=Priority.LOW)

    work = await look(task_states)

    low = QueueKey(LAMBDA, Priority.LOW)
    assert work.ahead is not None
    assert work.ahead.keys() == {NORMAL, low}
    assert 5 * SECOND < work.ahead[NORMAL] <= 7 * SECOND
    assert 80 * SECOND < work.ahead[low] <= 90 * SECOND
    assert (await look(task_states, within=60 * SECOND)).ahead.keys() == {NORMAL}


async def test_what_was_claimed_just_now_is_not_ahead_nor_is_what_will_have_expired(task_states):
    created_at = (await task_states.row((await task_states.claimed()).task_id))["created_at"]
    await task_states.new(delay=60 * SECOND, expires_at=created_at - SECOND)
    await task_states.new()

    work = await look(task_states)

    assert (len(work.tasks), work.ahead) == (1, {})


async def test_a_look_that_found_as_much_as_it_wanted_does_not_say_what_is_ahead(task_states):
    await scheduled(task_states, 2)
    await task_states.new(delay=30 * SECOND)

    assert (await look(task_states, most=2)).ahead is None
    assert (await look(task_states, most=2)).ahead is not None


# ---- a lost reply ------------------------------------------------------------------------------------------


async def test_exactly_the_claims_of_a_prefix_are_found_by_it(task_states):
    await scheduled(task_states, 5)
    first, second = caller("one"), caller("two")
    work = await look(task_states, first, second)
    await task_states.claimed()

    found = await claims.claims_under(task_states.store, [first.token_prefix])

    mine = [task for task in work.tasks if task.token.startswith(first.token_prefix)]
    assert len(mine) == 3
    assert sorted(found) == pairs(mine)
    both = await claims.claims_under(task_states.store, [first.token_prefix, second.token_prefix])
    assert sorted(both) == pairs(work.tasks)
    assert await claims.claims_under(task_states.store, [os.urandom(TOKEN_PREFIX_BYTES)]) == []


async def test_claims_that_ended_are_found_under_no_prefix(task_states):
    await scheduled(task_states, 2)
    who = caller()
    first, second = (await look(task_states, who)).tasks

    await claims.release(task_states.store, [ReleasedClaim(first.task_id, first.token)])
    await look(task_states)  # it is another's now

    assert await claims.claims_under(task_states.store, [who.token_prefix]) == pairs([second])


async def test_what_is_handed_back_by_its_prefix_is_due_at_once_and_uncharged(task_states):
    task = await task_states.new()
    who = caller()
    await look(task_states, who)

    found = await claims.claims_under(task_states.store, [who.token_prefix])
    verdicts, _ = await claims.release(task_states.store, [ReleasedClaim(*each) for each in found])

    row = await task_states.row(task.task_id)
    assert verdicts == [Applied.APPLIED]
    assert (row["status"], row["failures"], row["crashes"]) == ("new", 0, 0)
    (again,) = (await look(task_states)).tasks
    assert (again.task_id, again.fence, again.failures + again.crashes) == (task.task_id, 2, 0)


async def test_what_a_lost_reply_held_is_claimed_anew_and_its_old_tokens_are_void(task_states):
    await scheduled(task_states, 2)
    first, second = caller(), caller()
    lost = (await look(task_states, first)).tasks
    other = await task_states.new()

    again = await claims.claim_again(task_states.store, second, [first.token_prefix], CLAIM_TIMEOUT)

    assert sorted(ids(again)) == sorted(ids(lost))
    assert {task.token for task in again} == {second.token_prefix + bytes([0, n]) for n in range(2)}
    assert {task.fence for task in again} == {1}
    assert await task_states.status(other.task_id) == "new"
    gone = [ReleasedClaim(task.task_id, task.token) for task in lost]
    assert (await claims.release(task_states.store, gone))[0] == [Applied.LOST] * 2
    beats = [TaskHeartbeat(task.task_id, task.token) for task in again]
    assert await claims.heartbeat(task_states.store, beats, CLAIM_TIMEOUT) == [HeartbeatAnswer.KEPT] * 2


async def test_what_runs_or_is_another_holders_is_not_claimed_anew(task_states):
    await scheduled(task_states, 2)
    mine, other = caller("one"), caller("two")
    work = await look(task_states, mine, other)
    runs = next(task for task in work.tasks if task.token.startswith(mine.token_prefix))
    await claims.heartbeat(task_states.store, [TaskHeartbeat(runs.task_id, runs.token)], CLAIM_TIMEOUT)

    lost = [mine.token_prefix, other.token_prefix]
    again = await claims.claim_again(task_states.store, caller("one"), lost, CLAIM_TIMEOUT)

    assert again == []


# ---- silence, without a queue ------------------------------------------------------------------------------


async def test_what_a_queue_held_that_is_no_more_is_due_when_its_time_in_the_queue_is_over(
    task_states, clock
):
    task = await task_states.enqueued()
    assert (await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)).again == []
    assert await task_states.status(task.task_id) == "enqueued"
    await clock.tick(ENQUEUE_TIMEOUT + SECOND)

    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)

    assert await task_states.status(task.task_id) == "new"
    assert ids((await look(task_states)).tasks) == [task.task_id]


@pytest.mark.parametrize("has_queue", [True, False])
async def test_a_reclaimed_task_is_sent_to_its_queue_or_without_one_due_at_once(
    task_states, clock, has_queue
):
    await task_states.new()
    (held,) = (await look(task_states)).tasks
    await clock.tick(SILENT)

    room = {NORMAL: 10} if has_queue else None
    silence = await polling.handle_timeouts(task_states.store, room, ENQUEUE_TIMEOUT, 100)

    row = await task_states.row(held.task_id)
    assert ids(silence.again) == [held.task_id]
    assert row["status"] == (Status.ENQUEUED if has_queue else Status.RETRIABLE_FAILURE)
    assert (row["crashes"], row["failures"]) == (1, 0)
    assert ids((await look(task_states)).tasks) == ([] if has_queue else [held.task_id])


async def test_a_result_under_a_token_of_a_prefix_is_refused_once_its_task_was_reclaimed(task_states, clock):
    await task_states.new()
    (held,) = (await look(task_states)).tasks
    await clock.tick(SILENT)
    await polling.handle_timeouts(task_states.store, None, ENQUEUE_TIMEOUT, 100)

    verdicts, _ = await claims.release(task_states.store, [ReleasedClaim(held.task_id, held.token)])

    assert verdicts == [Applied.LOST]


async def test_a_later_pick_of_a_queue_goes_on_where_the_earlier_one_ended(task_states):
    await task_states.register(OTHER)
    due = [await task_states.new() for _ in range(10)]
    other = QueueKey(OTHER, Priority.NORMAL)
    planned = [Pick(NORMAL, 4, 0), Pick(other, 4, 0), Pick(NORMAL, 8, 4), Pick(other, 8, 4)]

    work = await claims.claim_work(task_states.store, planned, [caller()], 8, CLAIM_TIMEOUT)

    assert sorted(ids(work.tasks)) == sorted(ids(due)[:8])
    assert work.ahead is None


class InTransaction:
    """A store whose statements run on one connection, in a transaction that is open."""

    def __init__(self, connection):
        self._connection = connection

    async def run_as(self, shape, statement, parameters):
        return await fetch_as(shape, self._connection, statement, parameters)


STATUS_OF_CLAIM = "and assoc.status::text in ('new', 'retriable_failure')"


@pytest.mark.parametrize(("guard", "claims_of_second"), [("", 0), (STATUS_OF_CLAIM, 1)])
async def test_the_status_alone_keeps_a_claim_from_what_was_claimed_since_it_was_picked(
    task_states, dsn, monkeypatch, guard, claims_of_second
):
    # `eligible` locks what it picks, so that nothing comes between; without the lock the status must hold by itself
    unlocked = InStatement("claim_work", "for update skip locked").mutated(TRANSITIONS["claim_work"])
    if guard:
        unlocked = replace(unlocked, sql=unlocked.sql.replace(guard, ""))
    monkeypatch.setitem(TRANSITIONS, "claim_work", unlocked)
    task = await task_states.new()
    async with task_states.store.connection() as connection, connection.transaction():
        first = await claims.claim_work(
            InTransaction(connection), picks(ALL), [caller("first")], 1, CLAIM_TIMEOUT
        )
        second = asyncio.ensure_future(look(task_states, caller("second")))
        await until_a_statement_waits_for_a_lock(dsn)

    assert ids(first.tasks) == [task.task_id]
    assert len((await second).tasks) == claims_of_second
