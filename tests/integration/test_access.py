"""Callers are asked who they are, and each call is held against their grants."""

import hashlib
from collections.abc import AsyncIterator

import grpc
import pytest

from duly.v1 import frontend_pb2, hsc_pb2, hsc_pb2_grpc
from duly_core.access.authorizer import Authorizer
from duly_core.access.grants import Grant
from duly_core.access.methods import NEEDS
from duly_core.access.roles import Role
from duly_core.store import access
from duly_core.store.access_cache import AccessCache
from duly_core.store.pool import Store
from tests.fixtures.services import Frontend, Hsc, refusal, serve_frontend, serve_hsc
from tests.fixtures.task_states import LAMBDA

TOKEN = "duly_a1_secret"


def headers(token: str = TOKEN) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {token}")]


async def give_token(store: Store, token: str = TOKEN, principal: str = "shop", **more: object) -> None:
    digest = hashlib.sha256(token.encode()).digest()
    await access.add_token(store, digest, token.split("_")[1], principal, **more)


@pytest.fixture
async def guarded(store: Store) -> AsyncIterator[Frontend]:
    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served:
        yield served


@pytest.fixture
async def guarded_hsc(store: Store) -> AsyncIterator[Hsc]:
    async with serve_hsc(store, authorizer=Authorizer(AccessCache(store))) as served:
        yield served


def test_each_rpc_is_in_the_table_of_permissions():
    from duly.v1 import (
        controller_pb2,
        frontend_pb2,
        graphs_pb2,
        hsc_pb2,
        limits_pb2,
        registry_pb2,
        sessions_pb2,
        settings_pb2,
        time_tables_pb2,
    )

    modules = (
        controller_pb2,
        frontend_pb2,
        graphs_pb2,
        hsc_pb2,
        limits_pb2,
        registry_pb2,
        sessions_pb2,
        settings_pb2,
        time_tables_pb2,
    )
    served = {
        f"/{service.full_name}/{method.name}"
        for module in modules
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert served == set(NEEDS)


async def test_a_call_without_a_token_is_unauthenticated(guarded):
    refused = await refusal(guarded.stub.ListTasks(frontend_pb2.ListTasksRequest()))
    assert refused.code is grpc.StatusCode.UNAUTHENTICATED
    assert "DULY_TOKEN" in refused.message


async def test_an_unknown_token_is_unauthenticated(guarded):
    refused = await refusal(guarded.stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers()))
    assert refused.code is grpc.StatusCode.UNAUTHENTICATED


async def test_a_token_without_a_grant_is_denied(guarded, store):
    await give_token(store)
    refused = await refusal(guarded.stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers()))
    assert refused.code is grpc.StatusCode.PERMISSION_DENIED
    assert "'shop' may not read" in refused.message


async def test_a_role_admits_its_calls_and_no_others(guarded, store):
    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.AUDITOR, "*")])
    await guarded.stub.ListTasks(frontend_pb2.ListTasksRequest(), metadata=headers())
    refused = await refusal(
        guarded.stub.Schedule(
            frontend_pb2.ScheduleRequest(tasks=[frontend_pb2.NewTask(**{"lambda": LAMBDA})]),
            metadata=headers(),
        )
    )
    assert refused.code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_stream_is_admitted_as_a_call_is(guarded_hsc, store):
    await give_token(store)
    stub = hsc_pb2_grpc.HscServiceStub(guarded_hsc.channel)
    stream = stub.Work(metadata=headers())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stream.read()
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
    anonymous = stub.Work()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await anonymous.read()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_each_call_of_a_stream_is_admitted_by_the_grants_of_now(guarded_hsc, store, monkeypatch):
    from datetime import timedelta

    from duly_core.store import access_cache

    await give_token(store)
    await access.add_grants(store, [Grant("shop", Role.HOST, "*")])
    stream = hsc_pb2_grpc.HscServiceStub(guarded_hsc.channel).Work(metadata=headers())
    request = hsc_pb2.WorkRequest(call=1, set_results=hsc_pb2.SetResultsRequest())
    await stream.write(request)
    assert (await stream.read()).error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    await access.remove_grants(store, [Grant("shop", Role.HOST, "*")])
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    await stream.write(request)
    assert (await stream.read()).error.code == grpc.StatusCode.PERMISSION_DENIED.value[0]
    stream.cancel()


async def test_health_is_asked_without_a_token(guarded):
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    answer = await health_pb2_grpc.HealthStub(guarded.channel).Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
