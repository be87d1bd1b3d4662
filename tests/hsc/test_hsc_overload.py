"""The HSC when Postgres holds claims up: heartbeats and results go through, and stale claims are not written."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import psycopg
import pytest

from duly_wire.v1 import hsc_pb2
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.services import TIMING, refusal, serve_hsc
from tests.fixtures.task_states import SECOND
from tests.fixtures.waiting import until
from tests.hsc.test_hsc import APPLIED, CLAIMED, KEPT, beat_of, claim_of, proposal, result_of

DEADLINE = TIMING.heartbeat_deadline.total_seconds()


@asynccontextmanager
async def held_rows(dsn, tasks) -> AsyncIterator[None]:
    """Another session holds these tasks' rows."""
    async with await psycopg.AsyncConnection.connect(dsn) as other:
        await other.execute(
            "select from task_assoc where task_id = any(%s::uuid[]) for update",
            [[task.task_id.hex() for task in tasks]],
        )
        yield
        await other.rollback()


def claiming(hsc, task, timeout=8.0):
    request = hsc_pb2.ClaimTaskRequest(proposals=[proposal(task)], holder="host-1")
    return asyncio.ensure_future(hsc.stub.ClaimTask(request, timeout=timeout))


async def beaten(hsc, *tasks, timeout=DEADLINE):
    request = hsc_pb2.HeartbeatRequest(items=[beat_of(task) for task in tasks])
    return list((await hsc.stub.Heartbeat(request, timeout=timeout)).verdicts)


async def test_a_row_that_another_holds_costs_the_heartbeats_beside_it_their_lease_no_more(
    hsc, task_states, dsn
):
    locked = [await task_states.claimed() for _ in range(3)]
    free = [await task_states.claimed() for _ in range(2)]
    async with held_rows(dsn, locked):
        # the first two take both connections, the others make one group
        calls = [asyncio.ensure_future(beaten(hsc, task, timeout=3 * DEADLINE)) for task in locked + free]

        answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(each) for each in answers[:3]] == [grpc.aio.AioRpcError] * 3
    assert answers[3:] == [[KEPT], [KEPT]]


async def test_with_every_claim_connection_blocked_heartbeats_results_and_releases_meet_their_deadline(
    hsc, task_states, dsn
):
    free = [await task_states.enqueued() for _ in range(8)]
    beating, ended, released = [await task_states.claimed() for _ in range(3)]
    async with held_rows(dsn, free):
        claims = [claiming(hsc, task) for task in free]
        await until_a_statement_waits_for_a_lock(dsn)

        for _ in range(5):
            assert await beaten(hsc, beating) == [KEPT]
        results = hsc_pb2.SetResultsRequest(results=[result_of(ended)])
        assert list((await hsc.stub.SetResults(results, timeout=DEADLINE)).verdicts) == [APPLIED]
        releases = hsc_pb2.ReleaseRequest(claims=[claim_of(released)])
        assert list((await hsc.stub.Release(releases, timeout=DEADLINE)).verdicts) == [APPLIED]
        assert not any(call.done() for call in claims)

    assert [(await call).answers[0].verdict for call in claims] == [CLAIMED] * 8


async def test_a_heartbeat_that_waits_for_a_row_holds_up_no_other_and_leaves_time_to_try_again(
    hsc, task_states, dsn
):
    stuck, free = await task_states.claimed(), await task_states.claimed()
    async with held_rows(dsn, [stuck]):
        blocked = asyncio.ensure_future(refusal(beaten(hsc, stuck)))
        await until_a_statement_waits_for_a_lock(dsn)

        assert await beaten(hsc, free) == [KEPT]
        assert (await blocked).code is grpc.StatusCode.UNAVAILABLE  # before the call's own deadline
    assert await beaten(hsc, stuck) == [KEPT]


async def test_a_claim_that_nobody_waits_for_any_more_is_not_written(store, task_states, dsn):
    first, second = await task_states.enqueued(), await task_states.enqueued()
    async with serve_hsc(store, claim_concurrency=1) as hsc:
        async with held_rows(dsn, [first]):
            begun = claiming(hsc, first)
            await until_a_statement_waits_for_a_lock(dsn)
            late = await refusal(claiming(hsc, second, timeout=0.2))
        await begun
        third = await task_states.enqueued()
        await claiming(hsc, third)  # whatever waited before it has had its turn

        assert late.code is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await task_states.status(second.task_id) == "enqueued"


async def test_when_too_much_is_asked_claims_are_refused_first(store, task_states, dsn):
    held = [await task_states.claimed() for _ in range(30)]
    free = [await task_states.enqueued() for _ in range(30)]
    async with serve_hsc(store, claim_concurrency=1, max_group=2) as hsc:
        async with held_rows(dsn, free):
            claims = [claiming(hsc, task) for task in free]
            await until(lambda: sum(call.done() for call in claims) >= 15, 5 * SECOND)
            refused = [await refusal(call) for call in claims if call.done()]
            beats = await asyncio.gather(*(beaten(hsc, task) for task in held))

        assert {each.code for each in refused} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert {each.message for each in refused} == {"more is asked than can be written: try again later"}
        assert beats == [[KEPT]] * 30
        await asyncio.gather(*claims, return_exceptions=True)


@pytest.mark.parametrize("rpc", ["ClaimTask", "Heartbeat", "SetResults", "Release"])
async def test_each_kind_of_call_tells_how_long_its_caller_waits(store, task_states, dsn, rpc, monkeypatch):
    told = []
    from duly_core.traffic.group_commit import GroupCommit

    served = GroupCommit.__call__

    async def tell(self, items, within=None, client=None):
        told.append(within)
        return await served(self, items, within)

    monkeypatch.setattr(GroupCommit, "__call__", tell)
    task = await task_states.claimed()
    async with serve_hsc(store) as hsc:
        requests = {
            "ClaimTask": hsc_pb2.ClaimTaskRequest(proposals=[proposal(task)], holder="host-1"),
            "Heartbeat": hsc_pb2.HeartbeatRequest(items=[beat_of(task)]),
            "SetResults": hsc_pb2.SetResultsRequest(results=[result_of(task)]),
            "Release": hsc_pb2.ReleaseRequest(claims=[claim_of(task)]),
        }
        await getattr(hsc.stub, rpc)(requests[rpc], timeout=7)

    (within,) = told
    assert 0 < within < 8  # gRPC rounds a timeout up
