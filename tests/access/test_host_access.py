"""What a host may do with the lambdas that it runs: attach, and schedule what its callbacks ask for."""

import hashlib
import os
from datetime import timedelta

import grpc
import pytest

from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.graphs import definitions as graph_definitions
from duly_core.lambdas import store as lambdas
from duly_core.limits import store as resources
from duly_core.tasks.lifecycle import Status
from duly_core.time_tables import store as time_tables
from duly_wire.ids import new_task_id
from duly_wire.v1 import (
    graphs_pb2,
    graphs_pb2_grpc,
    hsc_pb2,
    limits_pb2,
    limits_pb2_grpc,
    registry_pb2,
    task_pb2,
)
from tests.fixtures import whole
from tests.fixtures.services import serve_frontend, serve_hsc

HOST = [("authorization", "Bearer duly_host_secret")]
OWNER = [("authorization", "Bearer duly_owner_secret")]
PARENT, SIBLING, STRANGER = "shop/order.place", "shop/bill.pay", "mail.send"


@pytest.fixture
async def authorizer(store, task_states, monkeypatch):
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    for name in ("host", "owner"):
        digest = hashlib.sha256(f"duly_{name}_secret".encode()).digest()
        await access.add_token(store, digest, name, name)
    grants = [Grant("host", Role.HOST, "shop/*"), Grant("owner", Role.OWNER, "shop/*")]
    await access.add_grants(store, grants)
    for name in (PARENT, SIBLING, STRANGER):
        await task_states.register(name)
    return Authorizer(AccessCache(store))


@pytest.fixture
async def registry(store, authorizer):
    async with serve_frontend(store, authorizer=authorizer) as served:
        yield served.registry


@pytest.fixture
async def host(store, authorizer):
    async with serve_hsc(store, authorizer=authorizer) as served:
        yield served.stub


async def succeed_with_child(host, task_states, child_of: str) -> tuple[bytes, bytes]:
    """End a task of PARENT, whose client was `shop`, with a child; return both ids."""
    parent = await task_states.claimed(lambda_name=PARENT, scheduled_by="shop")
    child = new_task_id()
    result = {
        "claim": {"task_id": parent.task_id, "token": parent.token},
        "outcome": hsc_pb2.OUTCOME_SUCCESS,
        "children": [{"lambda": child_of, "task_id": str(child)}],
    }
    await host.SetResults(hsc_pb2.SetResultsRequest(results=[result]), metadata=HOST)
    return parent.task_id, child.bytes


async def test_a_child_in_the_namespace_of_its_parent_belongs_to_the_client_of_the_parent(host, task_states):
    parent, child = await succeed_with_child(host, task_states, SIBLING)
    assert await task_states.status(parent) == Status.SUCCESS
    assert (await task_states.row(child))["scheduled_by"] == "shop"


async def test_a_child_in_another_namespace_fails_its_parent(host, task_states):
    parent, _ = await succeed_with_child(host, task_states, STRANGER)
    row = await task_states.row(parent)
    assert row["status"] == Status.FATAL_FAILURE
    assert "'host' may not schedule 'mail.send'" in row["failure_message"]


async def test_a_host_that_is_a_client_of_another_namespace_schedules_there(host, task_states, store):
    await access.add_grants(store, [Grant("host", Role.CLIENT, STRANGER)])
    parent, child = await succeed_with_child(host, task_states, STRANGER)
    assert await task_states.status(parent) == Status.SUCCESS
    assert await task_states.status(child) == Status.NEW


async def test_a_refused_claim_names_the_lambdas(host):
    request = hsc_pb2.ClaimWorkRequest(
        holder="h", lambdas=[PARENT, STRANGER], max_tasks=1, token_prefix=os.urandom(14)
    )
    with pytest.raises(grpc.aio.AioRpcError, match=r"may not run 'mail\.send':"):
        await host.ClaimWork(request, metadata=HOST)


async def register(registry, metadata, **declared) -> registry_pb2.RegisterLambdasResult:
    request = registry_pb2.RegisterLambdasRequest(lambdas=[{"name": PARENT} | declared])
    (result,) = (await registry.RegisterLambdas(request, metadata=metadata)).results
    return result


async def test_a_host_attaches_with_what_an_owner_registered(registry):
    table = {"name": "orders", "every": {"seconds": 60}}
    await register(registry, OWNER, max_attempts=5, time_tables=[table])
    attached = await register(registry, HOST, max_attempts=5, time_tables=[table], version="2")
    assert not attached.HasField("error"), attached


@pytest.mark.parametrize(
    "changed", [{"max_attempts": 6}, {"time_tables": [{"name": "orders", "every": {"seconds": 60}}]}]
)
async def test_a_host_declares_nothing_anew(registry, changed):
    refused = await register(registry, HOST, **changed)
    assert refused.error.code == task_pb2.ERROR_CODE_PERMISSION_DENIED
    assert "duly register" in refused.error.message
    listed = (await registry.ListLambdas(registry_pb2.ListLambdasRequest(), metadata=OWNER)).lambdas
    assert {getattr(each, "lambda").max_attempts for each in listed} == {10}


async def test_an_owner_declares_no_time_table_that_another_lambda_has(registry, store, authorizer):
    await access.add_grants(store, [Grant("others", Role.OWNER, STRANGER)])
    await access.add_token(store, hashlib.sha256(b"duly_others_secret").digest(), "others", "others")
    others = [("authorization", "Bearer duly_others_secret")]
    table = {"name": "nightly", "every": {"seconds": 60}}
    await register(registry, others, name=STRANGER, time_tables=[table])

    taken = await register(registry, OWNER, time_tables=[{"name": "nightly", "every": {"seconds": 1}}])

    assert "'nightly' not written" in taken.warning
    assert (await time_tables.get(store, ["nightly"]))["nightly"].lambda_name == STRANGER
    assert not (await register(registry, others, name=STRANGER, time_tables=[table])).warning


async def test_a_page_of_resources_tells_no_name_that_the_caller_may_not_see(store, authorizer):
    for name in (f"lambda:{STRANGER}", f"lambda:{PARENT}", "schedule:zoo"):
        await whole.put_resource(store, resources.ResourceLimit(name, 5, per_key=False))
    async with serve_frontend(store, authorizer=authorizer) as served:
        stub = limits_pb2_grpc.LimitServiceStub(served.channel)
        page = await stub.ListResources(limits_pb2.ListResourcesRequest(page_size=1), metadata=OWNER)
        assert [each.limit.name for each in page.resources] == [f"lambda:{PARENT}"]
        assert page.next_page_token == ""


async def test_a_page_of_graph_definitions_tells_no_name_that_the_caller_may_not_see(store, authorizer):
    for name, of in (("a", STRANGER), ("b", PARENT), ("c", STRANGER)):
        node = {"label": "n", "task": {"lambda": of}}
        definition = graphs_pb2.GraphDefinition(nodes=[node]).SerializeToString()
        await graph_definitions.put_definition(store, name, definition, [of])
    async with serve_frontend(store, authorizer=authorizer) as served:
        stub = graphs_pb2_grpc.GraphServiceStub(served.channel)
        request = graphs_pb2.ListGraphDefinitionsRequest(page_size=1)
        page = await stub.ListGraphDefinitions(request, metadata=OWNER)
        assert [each.name for each in page.definitions] == ["b"]
        assert page.next_page_token == ""


async def test_a_host_of_an_older_version_attaches_and_changes_nothing(registry):
    await register(registry, OWNER, version="1.9", max_attempts=3)
    await register(registry, OWNER, version="1.10", max_attempts=5)

    attached = await register(registry, HOST, version="1.9", max_attempts=3)

    assert not attached.HasField("error"), attached
    shown = await registry.GetLambda(registry_pb2.GetLambdaRequest(name=PARENT), metadata=OWNER)
    assert getattr(shown.in_force, "lambda").max_attempts == 5


async def test_an_owner_registers_an_application_from_the_shell(run_duly, store):
    done = await run_duly("register", "examples.hello:app")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.endswith("registered\n")
    assert {each.policy.name for each in await lambdas.list_lambdas(store)} >= {"hello.greet"}


async def test_a_definition_is_stored_only_over_the_version_whose_rights_were_checked(store):
    put = graph_definitions.put_definition
    assert await put(store, "nightly", b"alice's", ["alice/a"], 0) == (1, True)

    assert await put(store, "nightly", b"mallory's", ["mallory/a"], 0) is None

    assert (await graph_definitions.get_definition(store, "nightly", 0)).definition == b"alice's"
    assert await put(store, "nightly", b"alice's next", ["alice/a"], 1) == (2, True)
