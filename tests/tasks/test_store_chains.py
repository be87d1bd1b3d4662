"""Checkpoints and children: kept and written with the attempt that made them, by its token alone."""

import asyncio
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.results import store as results
from duly_core.results.store import set_results
from duly_core.tasks import claims, polling
from duly_core.tasks.store import get_tasks
from duly_core.tasks.task import (
    Applied,
    HeartbeatAnswer,
    NewTask,
    Proposal,
    ReleasedClaim,
    Result,
    Session,
    TaskHeartbeat,
)
from duly_wire.enums import FailureKind, Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures.database import count, until_a_statement_waits_for_a_lock
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

HOUR = timedelta(hours=1)
ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}


def child(**fields):
    return NewTask(**{"task_id": new_task_id().bytes, "lambda_name": LAMBDA, "payload": b"1"} | fields)


async def beat(task_states, task, checkpoint, token=None):
    beats = [TaskHeartbeat(task.task_id, token or task.token, checkpoint=checkpoint)]
    return (await claims.heartbeat(task_states.store, beats, HEARTBEAT_TIMEOUT))[0]


async def end(task_states, task, outcome, **fields):
    fields = {"failure_kind": FailureKind.CALLBACK} | fields if outcome is not Outcome.SUCCESS else fields
    return await set_results(task_states.store, [Result(task.task_id, task.token, outcome, **fields)])


async def checkpoint_of(task_states, task):
    return (await task_states.row(task.task_id))["checkpoint"]


async def next_claim(task_states):
    pick = claims.Pick(QueueKey(LAMBDA, Priority.NORMAL), 10, 0)
    caller = claims.Caller("another", b"n" * 14)
    work = await claims.claim_work(task_states.store, [pick], [caller], 10, CLAIM_TIMEOUT)
    return work.tasks


# ---- checkpoints -----------------------------------------------------------------------------------------


async def test_a_claim_that_waited_while_another_attempt_ran_has_the_checkpoint_of_that_attempt(
    task_states, dsn
):
    first, second = sorted(
        [await task_states.enqueued(), await task_states.enqueued()], key=lambda t: t.task_id
    )
    proposals = [
        Proposal(task.task_id, bytes([number] * 16), LAMBDA) for number, task in enumerate((first, second))
    ]
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "select from task_assoc where task_id = %s for update", [UUID(bytes=first.task_id)]
        )
        claiming = asyncio.create_task(
            claims.claim(task_states.store, [(each, "late") for each in proposals], CLAIM_TIMEOUT)
        )
        await until_a_statement_waits_for_a_lock(dsn)
        attempt = await task_states.claim(second)
        await end(task_states, attempt, Outcome.RETRIABLE_FAILURE, checkpoint=b"1", retry_after=timedelta())
        assert len(await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)) == 1
        await other.rollback()

    _, claimed = await claiming

    assert (claimed.fence, claimed.checkpoint) == (2, b"1")


async def test_a_heartbeat_keeps_a_checkpoint_and_one_without_leaves_it(task_states, claimed_task):
    await beat(task_states, claimed_task, b"1")
    await beat(task_states, claimed_task, b"2")
    await beat(task_states, claimed_task, None)

    assert await checkpoint_of(task_states, claimed_task) == b"2"


async def test_a_stale_token_keeps_nothing(task_states, claimed_task):
    assert await beat(task_states, claimed_task, b"1", token=b"x" * 16) is HeartbeatAnswer.LOST

    assert await checkpoint_of(task_states, claimed_task) is None


@pytest.mark.parametrize(
    ("outcome", "fields"),
    [
        (Outcome.RETRIABLE_FAILURE, {"retry_after": timedelta()}),
        (Outcome.SNOOZED, {"retry_after": timedelta(), "failure_kind": None}),
        (Outcome.CRASHED, {"retry_after": timedelta()}),
    ],
)
async def test_the_next_attempt_is_given_what_came_with_the_end_of_the_last(
    task_states, claimed_task, outcome, fields
):
    await beat(task_states, claimed_task, b"1")

    await end(task_states, claimed_task, outcome, checkpoint=b"2", **fields)

    assert [task.checkpoint for task in await next_claim(task_states)] == [b"2"]


async def test_a_task_that_is_handed_back_keeps_its_checkpoint(task_states, claimed_task):
    release = ReleasedClaim(claimed_task.task_id, claimed_task.token, checkpoint=b"7")

    await claims.release(task_states.store, [release])

    assert [task.checkpoint for task in await next_claim(task_states)] == [b"7"]


async def test_a_success_clears_the_checkpoint_and_a_dead_letter_keeps_it(task_states):
    done, dead = await task_states.claimed(), await task_states.claimed()
    for task in (done, dead):
        await beat(task_states, task, b"1")

    await end(task_states, done, Outcome.SUCCESS)
    await end(task_states, dead, Outcome.FATAL_FAILURE)

    assert await checkpoint_of(task_states, done) is None
    assert await checkpoint_of(task_states, dead) == b"1"


async def test_a_checkpoint_that_comes_after_the_end_changes_nothing(task_states, claimed_task):
    await end(task_states, claimed_task, Outcome.FATAL_FAILURE)

    verdicts = (await end(task_states, claimed_task, Outcome.RETRIABLE_FAILURE, checkpoint=b"1")).verdicts

    assert verdicts == [Applied.ALREADY_APPLIED]
    assert await checkpoint_of(task_states, claimed_task) is None


async def test_one_claim_that_is_reported_twice_at_once_keeps_one_checkpoint(task_states, claimed_task):
    beats = [
        TaskHeartbeat(claimed_task.task_id, claimed_task.token, checkpoint=data) for data in (b"1", b"2")
    ]

    await claims.heartbeat(task_states.store, beats, HEARTBEAT_TIMEOUT)

    assert await checkpoint_of(task_states, claimed_task) == b"2"


# ---- children --------------------------------------------------------------------------------------------


async def test_children_are_written_with_the_success_of_their_parent(task_states, claimed_task):
    children = (child(), child(delay=HOUR, priority=Priority.LOW, collection="spring"))

    written = await end(task_states, claimed_task, Outcome.SUCCESS, result=b"1", children=children)

    assert written.verdicts == [Applied.APPLIED]
    assert (written.due_in, written.due_lambdas) == (timedelta(), {LAMBDA})
    found = await get_tasks(task_states.store, [each.task_id for each in children])
    assert [found[each.task_id]["status"] for each in children] == ["new", "new"]
    row = found[children[1].task_id]
    assert (row["priority"], row["collection"]) == (4, "spring")
    assert row["scheduled_at"] - row["created_at"] == HOUR


@pytest.mark.parametrize("bad", [{"lambda_name": "nobody.knows"}, {"task_id": None}])
async def test_one_child_that_cannot_be_written_fails_its_parent_and_no_other(task_states, dsn, bad):
    parent, other = await task_states.claimed(), await task_states.claimed()
    taken = {"task_id": other.task_id} if "task_id" in bad else bad
    good = child()
    results = [
        Result(parent.task_id, parent.token, Outcome.SUCCESS, children=(child(), child(**taken))),
        Result(other.task_id, other.token, Outcome.SUCCESS, children=(good,)),
    ]

    written = await set_results(task_states.store, results)

    row = await task_states.row(parent.task_id)
    assert written.verdicts == [Applied.APPLIED, Applied.APPLIED]
    assert (row["status"], row["failure_kind"]) == ("fatal_failure", FailureKind.BAD_RESULT)
    assert "nothing was scheduled" in row["failure_message"]
    assert await task_states.status(other.task_id) == "success"
    assert await task_states.status(good.task_id) == "new"
    assert count(dsn, "task") == 3


async def test_a_result_that_comes_again_writes_no_second_children(task_states, dsn, claimed_task):
    children = (child(),)
    first = await end(task_states, claimed_task, Outcome.SUCCESS, children=children)

    again = await end(task_states, claimed_task, Outcome.SUCCESS, children=children)

    assert (first.verdicts, again.verdicts) == ([Applied.APPLIED], [Applied.ALREADY_APPLIED])
    assert count(dsn, "task") == 2


async def test_the_children_of_an_attempt_that_lost_its_claim_are_not_written(task_states, dsn, claimed_task):
    stale = claimed_task._replace(token=b"x" * 16)

    written = await end(task_states, stale, Outcome.SUCCESS, children=(child(),))

    assert written.verdicts == [Applied.LOST]
    assert count(dsn, "task") == 1


async def test_results_with_and_without_children_are_written_side_by_side(task_states):
    plain, parent, fails = [await task_states.claimed() for _ in range(3)]
    kid = child(delay=SECOND)

    written = await set_results(
        task_states.store,
        [
            Result(plain.task_id, plain.token, Outcome.SUCCESS),
            Result(parent.task_id, parent.token, Outcome.SUCCESS, children=(kid,)),
            Result(fails.task_id, fails.token, Outcome.FATAL_FAILURE, failure_kind=FailureKind.CALLBACK),
        ],
    )

    assert written.verdicts == [Applied.APPLIED] * 3
    assert written.due_in == SECOND
    statuses = [await task_states.status(each.task_id) for each in (plain, parent, fails, kid)]
    assert statuses == ["success", "success", "fatal_failure", "new"]


async def test_the_end_of_a_parent_releases_the_next_of_its_session(task_states):
    await task_states.new(session=Session("s"))
    waits = await task_states.new(session=Session("s"))
    (head,) = await next_claim(task_states)

    written = await end(task_states, head, Outcome.SUCCESS, children=(child(delay=HOUR),))

    assert written.verdicts == [Applied.APPLIED]
    assert (written.due_in <= timedelta(), written.due_lambdas) == (True, {LAMBDA})
    assert await task_states.status(waits.task_id) == "new"


async def test_failures_are_written_in_the_order_of_ids_with_those_whose_children_were_refused(
    task_states, monkeypatch
):
    first, second = sorted([await task_states.processing() for _ in range(2)], key=lambda task: task.task_id)
    written = []
    failure_parameters = results._failure_parameters
    monkeypatch.setattr(
        results, "_failure_parameters", lambda failed: written.extend(failed) or failure_parameters(failed)
    )

    unwritable = child(lambda_name="nobody.knows")
    await set_results(
        task_states.store,
        [
            Result(second.task_id, second.token, Outcome.FATAL_FAILURE, failure_kind=FailureKind.CALLBACK),
            Result(first.task_id, first.token, Outcome.SUCCESS, children=(unwritable,)),
        ],
    )

    assert [each.task_id for each in written] == [first.task_id, second.task_id]
