"""The claim: who has the right to run, and for how long."""

import asyncio
import os
from collections import Counter
from datetime import timedelta

import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.results import store as results
from duly_core.tasks import claims, polling
from duly_core.tasks import store as tasks
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import (
    Applied,
    Encoding,
    HeartbeatAnswer,
    Proposal,
    ReleasedClaim,
    Result,
    TaskHeartbeat,
)
from duly_wire.enums import Outcome, Priority
from duly_wire.ids import new_task_id
from tests.fixtures.task_states import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND

ROOM = {QueueKey(LAMBDA, priority): 1000 for priority in Priority}


def proposal_for(task, lambda_name=LAMBDA, holder="host"):
    return Proposal(task.task_id, os.urandom(16), lambda_name), holder


def held(task):
    return task.task_id, task.token


async def claim(task_states, *asked):
    return await claims.claim(task_states.store, asked, CLAIM_TIMEOUT)


async def beat(task_states, *beats):
    return await claims.heartbeat(task_states.store, beats, HEARTBEAT_TIMEOUT)


async def claim_again(task_states, task):
    """The next claim of a task that was handed back."""
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    (claimed,) = await claim(task_states, proposal_for(task))
    return claimed


async def test_a_claimed_task_carries_everything_its_executor_needs(task_states):
    await task_states.register(max_runtime=timedelta(minutes=7))
    task = await task_states.enqueued(payload=b"\x00\xff", encoding=Encoding.RAW, priority=Priority.URGENT)

    (claimed,) = await claim(task_states, asked := proposal_for(task))

    row = await task_states.row(task.task_id)
    assert held(claimed) == (task.task_id, asked[0].token)
    assert (claimed.lambda_name, claimed.priority, claimed.max_runtime) == (
        LAMBDA,
        Priority.URGENT,
        timedelta(minutes=7),
    )
    assert (claimed.payload, claimed.encoding) == (b"\x00\xff", Encoding.RAW)
    assert (claimed.fence, claimed.failures, claimed.crashes) == (1, 0, 0)
    assert claimed.due_at_us == round(row["scheduled_at"].timestamp() * 1_000_000)
    assert (row["status"], row["holder"]) == ("claimed", "host")


async def test_of_two_claims_of_one_task_exactly_one_is_granted(task_states, enqueued_task):
    proposals = [proposal_for(enqueued_task, holder=f"host-{n}") for n in range(2)]

    answers = await claim(task_states, *proposals)

    assert sum(answer is not None for answer in answers) == 1


async def test_a_claim_that_ended_is_not_claimed_again_by_its_own_proposal_that_comes_late(
    task_states, enqueued_task
):
    asked = proposal_for(enqueued_task)
    (claimed,) = await claim(task_states, asked)
    await claims.release(task_states.store, [ReleasedClaim(*held(claimed))])
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)

    assert await claim(task_states, asked) == [None]
    assert await claim(task_states, proposal_for(enqueued_task)) != [None]


async def test_many_hosts_that_claim_the_same_tasks_at_once_share_them_without_overlap(task_states, dsn):
    enqueued = [await task_states.new() for _ in range(40)]
    await polling.enqueue(task_states.store, ROOM, ENQUEUE_TIMEOUT)
    async with Store(StoreSettings(dsn=dsn, connections=8)) as store:
        hosts = [[proposal_for(task) for task in enqueued[n:] + enqueued[:n]] for n in range(16)]

        answers = await asyncio.gather(*(claims.claim(store, asked, CLAIM_TIMEOUT) for asked in hosts))

    granted = Counter(each.task_id for host in answers for each in host if each is not None)
    assert granted == Counter(task.task_id for task in enqueued)


async def test_a_claim_whose_reply_was_lost_is_answered_again_in_the_same_way(task_states, enqueued_task):
    asked = proposal_for(enqueued_task)

    first = await claim(task_states, asked)
    second = await claim(task_states, asked)

    assert first == second
    assert first[0] is not None


async def test_a_claim_that_ran_out_is_not_answered_again(task_states, clock, enqueued_task):
    asked = proposal_for(enqueued_task)
    await claim(task_states, asked)
    await clock.tick(CLAIM_TIMEOUT + SECOND)
    await polling.handle_timeouts(task_states.store, {}, ENQUEUE_TIMEOUT, 10)

    (other,) = await claim(task_states, proposal_for(enqueued_task))
    again = await claim(task_states, asked)

    assert other.fence == 2
    assert again == [None]


@pytest.mark.parametrize("rung", ["new", "claimed", "processing"])
async def test_what_is_not_enqueued_is_not_claimed(task_states, rung):
    task = await getattr(task_states, rung)()

    assert await claim(task_states, proposal_for(task)) == [None]
    assert await task_states.status(task.task_id) == rung


async def test_what_is_final_unknown_or_another_lambdas_is_not_claimed(task_states, enqueued_task):
    finished = await task_states.claimed()
    await results.set_results(task_states.store, [Result(*held(finished), Outcome.SUCCESS)])
    unknown = Proposal(new_task_id().bytes, os.urandom(16), LAMBDA)

    answers = await claim(
        task_states, proposal_for(finished), (unknown, "host"), proposal_for(enqueued_task, "report.make")
    )

    assert answers == [None, None, None]
    assert await task_states.status(enqueued_task.task_id) == "enqueued"


async def test_a_task_that_may_not_start_any_more_is_not_claimed(task_states, clock):
    # a row whose expiry passes while its reference waits in the queue
    row = await task_states.row((await task_states.new()).task_id)
    task = await task_states.enqueued(expires_at=row["created_at"] + 10 * SECOND)
    await clock.tick(11 * SECOND)

    assert await claim(task_states, proposal_for(task)) == [None]


async def test_refused_and_granted_claims_are_answered_in_the_order_of_the_call(task_states):
    mixed = [await task_states.enqueued(), await task_states.claimed(), await task_states.enqueued()]

    answers = await claim(task_states, *(proposal_for(task) for task in reversed(mixed)))

    assert [each and each.task_id for each in answers] == [mixed[2].task_id, None, mixed[0].task_id]


async def test_one_group_with_the_current_and_a_stale_claim_of_a_task_tells_them_apart(
    task_states, clock, claimed_task
):
    await clock.tick(CLAIM_TIMEOUT + SECOND)
    await polling.handle_timeouts(task_states.store, {}, ENQUEUE_TIMEOUT, 10)
    (current,) = await claim(task_states, proposal_for(claimed_task))

    beaten = await beat(task_states, TaskHeartbeat(*held(claimed_task)), TaskHeartbeat(*held(current)))
    released, _ = await claims.release(
        task_states.store, [ReleasedClaim(*held(claimed_task)), ReleasedClaim(*held(current))]
    )

    assert beaten == [HeartbeatAnswer.LOST, HeartbeatAnswer.KEPT]
    assert released == [Applied.LOST, Applied.APPLIED]


async def test_a_heartbeat_renews_the_lease_and_marks_the_task_as_processing(
    task_states, clock, claimed_task
):
    before = await task_states.row(claimed_task.task_id)
    await clock.tick(10 * SECOND)

    assert await beat(task_states, TaskHeartbeat(*held(claimed_task))) == [HeartbeatAnswer.KEPT]

    after = await task_states.row(claimed_task.task_id)
    assert after["status"] == "processing"
    moved = after["next_trigger_at"] - before["next_trigger_at"]
    assert 10 * SECOND + HEARTBEAT_TIMEOUT - CLAIM_TIMEOUT <= moved < 13 * SECOND


async def test_progress_is_kept_until_something_new_is_told(task_states, claimed_task):
    await beat(task_states, TaskHeartbeat(*held(claimed_task), progress=0.25, note="a quarter"))
    await beat(task_states, TaskHeartbeat(*held(claimed_task)))

    row = await task_states.row(claimed_task.task_id)
    assert (row["progress"], row["progress_note"]) == (0.25, "a quarter")


async def test_a_heartbeat_tells_of_a_cancel_and_still_renews_the_lease(task_states, clock, processing_task):
    await tasks.cancel_tasks(task_states.store, [processing_task.task_id])
    before = await task_states.row(processing_task.task_id)
    await clock.tick(5 * SECOND)

    assert await beat(task_states, TaskHeartbeat(*held(processing_task))) == [
        HeartbeatAnswer.CANCEL_REQUESTED
    ]
    assert (await task_states.row(processing_task.task_id))["next_trigger_at"] > before["next_trigger_at"]


async def test_a_heartbeat_with_another_token_changes_nothing(task_states, processing_task):
    before = await task_states.row(processing_task.task_id)

    assert await beat(task_states, TaskHeartbeat(processing_task.task_id, os.urandom(16))) == [
        HeartbeatAnswer.LOST
    ]
    assert await task_states.row(processing_task.task_id) == before


async def test_a_silent_holder_loses_its_claim_and_every_later_write_of_its_is_refused(
    task_states, clock, processing_task
):
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)

    silence = await polling.handle_timeouts(task_states.store, {}, ENQUEUE_TIMEOUT, 10)

    assert [task.task_id for task in silence.again] == [processing_task.task_id]
    assert await beat(task_states, TaskHeartbeat(*held(processing_task))) == [HeartbeatAnswer.LOST]
    assert (await claims.release(task_states.store, [ReleasedClaim(*held(processing_task))]))[0] == [
        Applied.LOST
    ]
    assert (await task_states.row(processing_task.task_id))["crashes"] == 1


@pytest.mark.parametrize("rung", ["claimed", "processing"])
async def test_a_release_hands_the_task_back_due_now_and_uncharged(task_states, clock, rung):
    task = await getattr(task_states, rung)()
    await clock.tick(5 * SECOND)

    answer = await claims.release(task_states.store, [ReleasedClaim(*held(task))])

    row = await task_states.row(task.task_id)
    assert answer == ([Applied.APPLIED], timedelta())
    assert (row["status"], row["failures"], row["crashes"], row["holder"]) == ("new", 0, 0, None)
    again = await claim_again(task_states, task)
    assert (again.fence, again.failures, again.crashes) == (2, 0, 0)
    assert again.due_at_us == task.due_at_us  # lateness still counts from when it was due


async def test_a_release_asked_for_twice_is_applied_once(task_states, claimed_task):
    first, _ = await claims.release(task_states.store, [ReleasedClaim(*held(claimed_task))])
    again, due_in = await claims.release(task_states.store, [ReleasedClaim(*held(claimed_task))])

    assert (first, again, due_in) == ([Applied.APPLIED], [Applied.ALREADY_APPLIED], None)


async def test_a_release_of_a_task_that_was_to_be_cancelled_ends_it(task_states, processing_task):
    await tasks.cancel_tasks(task_states.store, [processing_task.task_id])

    first, _ = await claims.release(task_states.store, [ReleasedClaim(*held(processing_task))])
    again, _ = await claims.release(task_states.store, [ReleasedClaim(*held(processing_task))])

    assert await task_states.status(processing_task.task_id) == Status.CANCELLED
    assert (first, again) == ([Applied.APPLIED], [Applied.ALREADY_APPLIED])
