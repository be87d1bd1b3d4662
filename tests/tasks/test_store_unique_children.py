"""Unique keys of tasks that callbacks schedule: judged with the success of their parents, in the same transaction."""

import asyncio
import random
from uuid import UUID

import psycopg
import pytest

from duly_core.postgres.pool import Store
from duly_core.postgres.rights import HSC
from duly_core.results.store import set_results
from duly_core.tasks.task import Applied, NewTask, Result, Scheduling, Unique
from duly_core.tasks.unique import schedule_unique
from duly_wire.enums import FailureKind, HeldWhile, OnConflict, Outcome
from duly_wire.ids import new_task_id
from tests.fixtures.database import ask, until_a_statement_waits_for_a_lock
from tests.fixtures.roles import settings_as
from tests.fixtures.task_states import LAMBDA, SECOND

KEY = "user:7"
LIVE = Unique(KEY, HeldWhile.LIVE)
REJECT = Unique(KEY, on_conflict=OnConflict.REJECT)


def a_task(unique=None, **fields):
    return NewTask(
        **{"task_id": new_task_id().bytes, "lambda_name": LAMBDA, "payload": b"{}", "unique": unique} | fields
    )


def success(task, *children):
    return Result(task.task_id, task.token, Outcome.SUCCESS, children=children)


async def succeed(task_states, task, *children):
    return (await set_results(task_states.store, [success(task, *children)])).verdicts[0]


async def schedule(task_states, *tasks):
    return (await schedule_unique(task_states.store, tasks)).answers


def holders(dsn):
    return {row[0].bytes for row in ask(dsn, "select task_id from unique_key")}


def tasks(dsn):
    return {row[0].bytes for row in ask(dsn, "select task_id from task")}


async def test_a_child_whose_key_nobody_has_is_written_and_has_it(task_states, dsn, claimed_task):
    child = a_task(Unique(KEY))

    assert await succeed(task_states, claimed_task, child) is Applied.APPLIED

    assert holders(dsn) == {child.task_id}
    assert (await task_states.row(child.task_id))["unique_key"] == KEY
    (answer,) = await schedule(task_states, a_task(Unique(KEY)))
    assert (answer.verdict, answer.task_id) == (Scheduling.IGNORED, child.task_id)


async def test_a_child_whose_key_is_taken_is_not_written_and_its_siblings_are(task_states, dsn, claimed_task):
    first, plain = a_task(Unique(KEY)), a_task()
    await schedule(task_states, first)

    assert await succeed(task_states, claimed_task, a_task(Unique(KEY)), plain) is Applied.APPLIED

    assert await task_states.status(claimed_task.task_id) == "success"
    assert tasks(dsn) == {claimed_task.task_id, first.task_id, plain.task_id}
    assert holders(dsn) == {first.task_id}


async def test_a_child_that_rejects_a_conflict_fails_its_parent_and_no_other(task_states, dsn):
    parent, other = await task_states.claimed(), await task_states.claimed()
    first, good = a_task(Unique(KEY)), a_task(Unique("another"))
    await schedule(task_states, first)

    written = await set_results(
        task_states.store, [success(parent, a_task(), a_task(REJECT)), success(other, good)]
    )

    row = await task_states.row(parent.task_id)
    assert written.verdicts == [Applied.APPLIED, Applied.APPLIED]
    assert (row["status"], row["failure_kind"]) == ("fatal_failure", FailureKind.BAD_RESULT)
    assert row["failure_message"] == (
        f"ctx.schedule: unique.key: task {UUID(bytes=first.task_id)} has the key: nothing was scheduled"
    )
    assert tasks(dsn) == {parent.task_id, other.task_id, first.task_id, good.task_id}
    assert holders(dsn) == {first.task_id, good.task_id}


@pytest.mark.parametrize(("held_while", "is_written"), [(HeldWhile.PENDING, True), (HeldWhile.LIVE, False)])
async def test_a_running_task_has_its_key_for_children_if_that_is_held_while_it_lives(
    task_states, dsn, claimed_task, held_while, is_written
):
    await schedule(task_states, a_task(Unique(KEY)))
    await task_states.take()
    child = a_task(Unique(KEY, held_while))

    await succeed(task_states, claimed_task, child)

    assert (child.task_id in tasks(dsn)) is is_written


async def test_a_period_counts_for_children(task_states, dsn, clock):
    unique = Unique(KEY, period=60 * SECOND)
    await schedule(task_states, a_task(unique))
    await task_states.fail(await task_states.take())
    early, late = a_task(unique), a_task(unique)

    await clock.tick(59 * SECOND)
    await succeed(task_states, await task_states.claimed(), early)
    await clock.tick(SECOND)
    await succeed(task_states, await task_states.claimed(), late)

    assert (early.task_id in tasks(dsn), late.task_id in tasks(dsn)) == (False, True)


async def test_a_task_that_held_its_key_while_it_lived_schedules_the_next_one_of_the_key(task_states, dsn):
    await schedule(task_states, a_task(LIVE))
    parent = await task_states.take()
    following = a_task(LIVE)

    assert await succeed(task_states, parent, following) is Applied.APPLIED

    assert holders(dsn) == {following.task_id}


async def test_children_of_one_key_are_judged_one_after_the_other(task_states, dsn):
    parents = sorted(
        [await task_states.claimed(), await task_states.claimed()], key=lambda task: task.task_id
    )
    first = a_task(Unique(KEY))

    await set_results(
        task_states.store,
        [
            success(parents[0], first, a_task(Unique(KEY)), a_task(LIVE)),
            success(parents[1], a_task(Unique(KEY))),
        ],
    )

    assert tasks(dsn) == {first.task_id, *(each.task_id for each in parents)}
    assert holders(dsn) == {first.task_id}


async def test_a_result_that_comes_again_leaves_its_childs_key(task_states, dsn, claimed_task):
    child = a_task(Unique(KEY))
    await succeed(task_states, claimed_task, child)

    assert await succeed(task_states, claimed_task, child) is Applied.ALREADY_APPLIED

    assert holders(dsn) == {child.task_id}


async def test_an_attempt_that_lost_its_claim_leaves_no_key(task_states, dsn, claimed_task):
    stale = claimed_task._replace(token=b"x" * 16)

    assert await succeed(task_states, stale, a_task(Unique(KEY))) is Applied.LOST

    assert (holders(dsn), tasks(dsn)) == (set(), {claimed_task.task_id})


async def test_an_attempt_whose_other_child_cannot_be_written_leaves_no_key(task_states, dsn, claimed_task):
    await succeed(task_states, claimed_task, a_task(Unique(KEY)), a_task(lambda_name="nobody.knows"))

    assert await task_states.status(claimed_task.task_id) == "fatal_failure"
    assert (holders(dsn), tasks(dsn)) == (set(), {claimed_task.task_id})


async def test_a_parent_waits_for_the_keys_of_its_children_before_it_locks_anything_else(
    task_states, dsn, claimed_task
):
    await schedule(task_states, a_task(Unique(KEY)))
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute("select from unique_key for update")
        ending = asyncio.create_task(succeed(task_states, claimed_task, a_task(Unique(KEY))))
        await until_a_statement_waits_for_a_lock(dsn)

        found = await other.execute("select from task_assoc for update nowait")
        assert found.rowcount == 2
        await other.rollback()

    assert await asyncio.wait_for(ending, 10) is Applied.APPLIED


async def test_parents_and_clients_with_the_same_keys_make_one_task_of_each_and_do_not_deadlock(
    task_states, dsn
):
    keys = [f"user:{number}" for number in range(6)]
    parents = [await task_states.claimed() for _ in range(24)]

    def of_some():
        return [a_task(Unique(key, HeldWhile.LIVE)) for key in random.sample(keys, 4)]

    answers = await asyncio.wait_for(
        asyncio.gather(
            *(succeed(task_states, parent, *of_some()) for parent in parents),
            *(schedule(task_states, *of_some()) for _ in range(12)),
        ),
        30,
    )

    assert answers[:24] == [Applied.APPLIED] * 24
    assert len(tasks(dsn)) == len(parents) + len(holders(dsn)) == len(parents) + len(keys)


async def test_an_hsc_of_its_own_role_judges_and_takes_keys(task_states, dsn, claimed_task):
    first, second = a_task(LIVE), a_task(LIVE)
    other = await task_states.claimed()

    async with Store(settings_as(task_states.store, HSC)) as own:
        for parent, child in ((claimed_task, first), (other, second)):
            assert (await set_results(own, [success(parent, child)])).verdicts == [Applied.APPLIED]

    assert holders(dsn) == {first.task_id}
    assert second.task_id not in tasks(dsn)
