"""A lambda that always fails does not take the starts of one that works."""

import pytest

from duly_core.lambdas.names import QueueKey
from duly_core.tasks.task import ClaimedTask, Proposal
from duly_wire.enums import Priority
from duly_wire.v1 import hsc_pb2
from tests.fixtures.services import serve_hsc
from tests.fixtures.simulated_host import CountingSender, SimulatedHost, Time, consumer_on, make_due, round_of
from tests.fixtures.task_states import LAMBDA, SECOND

BROKEN = "report.make"
CAPACITY, LOAD, BROKEN_LOAD = 60, 45, 8
"""Tasks a second: what the host ends, and what comes in of each lambda."""
TICKS = 24
SHARE, FLOOR = 0.2, 1


def over_the_wire(hsc):
    """Claims at this HSC, and results: the broken lambda's are failures."""

    async def claim(proposals: list[Proposal]):
        asked = [
            hsc_pb2.ClaimProposal(
                claim=hsc_pb2.Claim(task_id=each.task_id, token=each.token), **{"lambda": each.lambda_name}
            )
            for each in proposals
        ]
        response = await hsc.stub.ClaimTask(hsc_pb2.ClaimTaskRequest(proposals=asked, holder="pretended"))
        return [_claimed(answer.task) if answer.HasField("task") else None for answer in response.answers]

    async def finish(tasks: list[ClaimedTask]):
        results = [
            hsc_pb2.TaskResult(
                claim=hsc_pb2.Claim(task_id=task.task_id, token=task.token),
                outcome=hsc_pb2.OUTCOME_RETRIABLE_FAILURE
                if task.lambda_name == BROKEN
                else hsc_pb2.OUTCOME_SUCCESS,
            )
            for task in tasks
        ]
        if results:
            await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=results))

    return claim, finish


def _claimed(task):
    name = getattr(task, "lambda")
    return ClaimedTask(task.claim.task_id, task.claim.token, name, task.priority, 1, 0, 0, 0, b"", 1, SECOND)


@pytest.mark.parametrize("share", [SHARE, 1_000], ids=["with the budget", "without"])
async def test_a_lambda_that_always_fails_gets_its_share_and_the_other_all_it_needs(
    task_states, store, dsn, clock, sender, receiver, share
):
    """The other run pays for every retry, and shows what the budget is for: without it the one that works starves."""
    time = Time(clock)
    await task_states.register(
        BROKEN, max_attempts=1_000, backoff_initial=0.1 * SECOND, backoff_max=0.5 * SECOND
    )
    consumer = consumer_on(store, CountingSender(sender), time, min_depth=CAPACITY, max_depth=CAPACITY)
    queues = [QueueKey(name, Priority.NORMAL) for name in (LAMBDA, BROKEN)]
    async with serve_hsc(store, time.seconds, retry_share=share, retry_floor=FLOOR) as hsc:
        host = SimulatedHost(receiver, queues, CAPACITY, *over_the_wire(hsc))
        for _ in range(TICKS):
            make_due(dsn, LOAD, LAMBDA)
            make_due(dsn, BROKEN_LOAD, BROKEN)
            await round_of(consumer)
            await host.tick()
            await time.tick(SECOND)

    first = TICKS * BROKEN_LOAD
    saved = 10 * (FLOOR + SHARE * BROKEN_LOAD) + CAPACITY
    if share == SHARE:
        assert host.started[LAMBDA] >= 0.95 * TICKS * LOAD
        assert host.started[BROKEN] <= first * (1 + SHARE) + TICKS * FLOOR + saved
    else:
        assert host.started[LAMBDA] < 0.9 * TICKS * LOAD
        assert host.started[BROKEN] > 2 * first
