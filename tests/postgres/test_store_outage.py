"""Postgres goes away, hangs, and comes back: every wait is bounded, and soon everything works again."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from time import monotonic

import grpc
import pytest

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_wire.v1 import frontend_pb2, hsc_pb2, registry_pb2
from tests.fixtures.services import refusal, serve_frontend, serve_hsc
from tests.fixtures.task_states import LAMBDA, SECOND

IMPATIENT = {"acquire_timeout": SECOND, "statement_timeout": SECOND, "connect_timeout": SECOND}
BOUND = 6
"""How long, in seconds, anything may take: acquiring and running a statement, and a machine that is busy."""


@pytest.fixture
async def far_store(line, task_states):
    """A store at the other end of the line, that has worked."""
    async with Store(StoreSettings(dsn=line.dsn, **IMPATIENT)) as opened:
        await opened.ping()
        yield opened


def requests_of(frontend, hsc, task):
    """A call of every kind that needs the store."""
    claim = hsc_pb2.Claim(task_id=task.task_id, token=task.token)
    proposal = hsc_pb2.ClaimProposal(claim=claim, **{"lambda": LAMBDA})
    result = hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS)
    ids = ["0192d3e4-5f60-7abc-8def-0123456789ab"]
    return [
        frontend.stub.Schedule(
            frontend_pb2.ScheduleRequest(tasks=[frontend_pb2.NewTask(**{"lambda": LAMBDA})])
        ),
        frontend.stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=ids)),
        frontend.stub.ListTasks(frontend_pb2.ListTasksRequest()),
        frontend.stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=ids)),
        frontend.registry.ListLambdas(registry_pb2.ListLambdasRequest()),
        hsc.stub.ClaimTask(hsc_pb2.ClaimTaskRequest(proposals=[proposal], holder="host")),
        hsc.stub.Heartbeat(hsc_pb2.HeartbeatRequest(items=[hsc_pb2.HeartbeatItem(claim=claim)])),
        hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result])),
        hsc.stub.Release(hsc_pb2.ReleaseRequest(claims=[claim])),
    ]


@pytest.mark.parametrize("how", ["cut", "freeze"])
async def test_every_call_is_answered_unavailable_in_bounded_time(line, far_store, claimed_task, how):
    async with serve_frontend(far_store) as frontend, serve_hsc(far_store) as hsc:
        assert (
            await outcome_of(frontend) is grpc.StatusCode.OK
        )  # a connection that is half made outlives the cut
        if how == "cut":
            await line.cut()
        else:
            line.freeze()
        begun = monotonic()

        refusals = await asyncio.gather(*(refusal(call) for call in requests_of(frontend, hsc, claimed_task)))

        assert {each.code for each in refusals} == {grpc.StatusCode.UNAVAILABLE}
        assert monotonic() - begun < BOUND
        assert all("Postgres at 127.0.0.1:" in each.message for each in refusals)
        line.thaw()
        if how == "cut":
            await line.restore()
        async with asyncio.timeout(20):
            while (await outcome_of(frontend)) is not grpc.StatusCode.OK:
                pass


async def outcome_of(frontend):
    """The status of a call that only reads."""
    call = frontend.stub.ListTasks(frontend_pb2.ListTasksRequest())
    with suppress(grpc.aio.AioRpcError):
        await call
    return await call.code()


async def test_what_was_asked_for_while_it_hung_does_not_stand_in_the_way_afterwards(line, far_store):
    line.freeze()
    with pytest.raises(StoreUnavailableError):
        await far_store.ping()
    line.thaw()
    begun = monotonic()

    await ping_until_it_works(far_store)

    assert monotonic() - begun < BOUND


@pytest.mark.long  # an outage of some seconds
async def test_it_works_again_soon_after_an_outage_of_some_seconds(line, far_store):
    await line.cut()
    begun = monotonic()
    while monotonic() - begun < 3.3:
        with pytest.raises(StoreUnavailableError):
            await far_store.ping()
    await line.restore()
    restored = monotonic()

    await ping_until_it_works(far_store)

    assert monotonic() - restored < 2


async def test_a_long_statement_is_ended_by_its_timeout(far_store):
    begun = monotonic()

    with pytest.raises(StoreUnavailableError, match="statement timeout"):
        async with far_store.connection() as connection:
            await connection.execute("select pg_sleep(30)")

    assert monotonic() - begun < BOUND
    await far_store.ping()


async def test_a_message_names_the_place_without_the_password(dsn):
    settings = StoreSettings(
        dsn="postgresql://duly:hidden@127.0.0.1:1/duly", acquire_timeout=timedelta(seconds=0.2)
    )
    async with Store(settings) as store:
        with pytest.raises(StoreUnavailableError, match=r"Postgres at 127\.0\.0\.1:1/duly") as caught:
            await store.ping()

    assert "hidden" not in str(caught.value)


async def ping_until_it_works(store):
    async with asyncio.timeout(20):
        while True:
            try:
                await store.ping()
            except StoreUnavailableError:
                await asyncio.sleep(0)
            else:
                return
