"""The claim: who has the right to run, and for how long."""

import os

from duly_core.store import claims, trigger
from duly_core.task import Applied, ClaimedTask, Kept, NewTask, Proposal
from tests.fixtures.clock import Clock
from tests.fixtures.ladder import CLAIM_TIMEOUT, ENQUEUE_TIMEOUT, HEARTBEAT_TIMEOUT, LAMBDA, SECOND, Beat, Ladder


async def test_of_two_claims_of_one_task_exactly_one_is_granted(ladder: Ladder, enqueued_task: NewTask) -> None:
    proposals = [(Proposal(enqueued_task.task_id, os.urandom(16), LAMBDA), f"host-{n}") for n in range(2)]

    answers = await claims.claim(ladder.store, proposals, CLAIM_TIMEOUT)

    assert sum(answer is not None for answer in answers) == 1


async def test_a_claim_whose_reply_was_lost_is_answered_again_in_the_same_way(
    ladder: Ladder, enqueued_task: NewTask
) -> None:
    proposal = (Proposal(enqueued_task.task_id, os.urandom(16), LAMBDA), "host")

    first = await claims.claim(ladder.store, [proposal], CLAIM_TIMEOUT)
    second = await claims.claim(ladder.store, [proposal], CLAIM_TIMEOUT)

    assert first == second
    assert first[0] is not None


async def test_a_silent_holder_loses_its_claim_and_every_later_write_of_its_is_refused(
    ladder: Ladder, clock: Clock, processing_task: ClaimedTask
) -> None:
    await clock.tick(HEARTBEAT_TIMEOUT + SECOND)

    silence = await trigger.end_silence(ladder.store, {}, ENQUEUE_TIMEOUT, 10)

    assert [task.task_id for task in silence.again] == [processing_task.task_id]
    held = (processing_task.task_id, processing_task.token)
    assert await claims.heartbeat(ladder.store, [Beat(*held)], HEARTBEAT_TIMEOUT) == [Kept.LOST]
    assert (await claims.release(ladder.store, [held]))[0] == [Applied.LOST]
    assert (await ladder.row(processing_task.task_id))["crashes"] == 1
