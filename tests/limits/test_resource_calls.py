"""Resources from the SDK and from the shell, and every refusal."""

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration

import duly
from duly_core.lambdas.names import QueueKey
from duly_core.limits import store as store_resources
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_core.tasks import claims
from duly_core.tasks.claims import Caller, Pick
from duly_wire.enums import Priority
from duly_wire.v1 import frontend_pb2, limits_pb2, limits_pb2_grpc, task_pb2
from tests.fixtures.services import refusal
from tests.fixtures.task_states import CLAIM_TIMEOUT, LAMBDA

DATABASE = "database"


def a_rate(units=1, seconds=1, burst=0):
    return limits_pb2.ResourceRate(units=units, period=Duration(seconds=seconds), burst=burst)


@pytest.fixture
async def declared(client, task_states):
    await task_states.register()
    await client.put_resource(DATABASE, 1, note="20 connections")
    await client.put_resource("tenant", 2, per_key=True)


async def pick(store):
    picks = [Pick(QueueKey(LAMBDA, Priority.NORMAL), 100, 0)]
    await claims.claim_work(store, picks, [Caller("host", os.urandom(14))], 100, CLAIM_TIMEOUT)


async def test_a_task_names_its_resources_and_tells_for_which_it_waits(client, declared, store):
    need = duly.ResourceNeed("tenant", "acme", 2)
    first = await client.schedule(LAMBDA, resources=[DATABASE])
    (second,) = await client.schedule_many([duly.NewTask(LAMBDA, resources=(DATABASE, need))])
    third = await client.schedule(LAMBDA, resources=[need])
    fourth = await client.schedule(LAMBDA, resources=[need])

    await pick(store)

    waiting = await client.get(second)
    assert waiting.resources == (duly.ResourceNeed(DATABASE), need)
    assert (waiting.status, waiting.parked_on) == (duly.TaskStatus.WAITING, DATABASE)
    assert (await client.get(fourth)).parked_on == "tenant/acme"
    running = [await client.get(each) for each in (first, third)]
    assert {(task.status, task.parked_on) for task in running} == {(duly.TaskStatus.CLAIMED, "")}
    database, tenant = await client.resources(max_keys=10)
    assert (database.name, database.capacity, database.used, database.parked) == (DATABASE, 1, 1, 1)
    assert (database.note, database.per_key, database.keys) == ("20 connections", False, ())
    assert tenant.keys == (duly.ResourceKey("acme", 2, 1),)


async def test_a_resource_may_have_a_rate_instead_of_units(client, declared, store):
    rate = duly.Rate(2, timedelta(hours=1), burst=2)
    await client.put_resource("mail", rate=rate, note="as its provider wants")
    for _ in range(3):
        await client.schedule(LAMBDA, resources=["mail"])

    await pick(store)

    (mail,) = [each for each in await client.resources() if each.name == "mail"]
    assert (mail.capacity, mail.rate, mail.used, mail.parked) == (None, rate, 2, 0)
    assert timedelta(minutes=80) < mail.starts_until - datetime.now(UTC) <= timedelta(minutes=90)


async def test_the_backlog_counts_what_is_due_held_and_parked(client, declared, store, task_states, run_duly):
    await task_states.register("idle")
    for resources in ([], [DATABASE], [DATABASE], [DATABASE]):
        await client.schedule(LAMBDA, resources=resources)
    await pick(store)
    await client.schedule(LAMBDA, delay=timedelta(hours=1))
    await client.schedule(LAMBDA)

    idle, busy = await client.backlog()

    assert (idle.lambda_name, idle.ready, idle.ready_since, idle.held) == ("idle", 0, None, 0)
    assert (busy.ready, busy.enqueued, busy.held, busy.parked) == (1, 0, 2, 2)
    assert timedelta() <= datetime.now(UTC) - busy.ready_since < timedelta(minutes=5)
    assert [each.lambda_name for each in await client.backlog([LAMBDA, "unknown"])] == [LAMBDA]
    with pytest.raises(duly.InvalidTaskError, match="lambdas"):
        await client.backlog(["No Name"])
    shown = json.loads((await run_duly("backlog", LAMBDA, "--json")).stdout)
    assert (shown["ready"], shown["parked"]) == (1, 2)
    assert "PARKED" in (await run_duly("backlog")).stdout


async def test_a_resource_in_use_is_not_removed(client, declared, store):
    await client.schedule(LAMBDA, resources=[DATABASE])
    await pick(store)

    with pytest.raises(duly.ResourceInUseError, match="in use"):
        await client.delete_resource(DATABASE)
    with pytest.raises(duly.ResourceInUseError, match="in use"):
        await client.put_resource(DATABASE, 1, per_key=True)
    await client.delete_resource("tenant")
    with pytest.raises(duly.UnknownResourceError):
        await client.delete_resource("tenant")
    assert [each.name for each in await client.resources()] == [DATABASE]


async def test_a_resource_that_was_changed_since_it_was_read_is_not_changed(client, declared):
    seen = (await client.resources())[0]
    await client.put_resource(DATABASE, 5, note="40 connections", expected_changed_at=seen.changed_at)
    await client.put_resource(DATABASE, 5, note="40 connections", expected_changed_at=seen.changed_at)

    with pytest.raises(duly.ResourceConflictError, match="changed database since it was read"):
        await client.put_resource(DATABASE, 2, expected_changed_at=seen.changed_at)

    now = (await client.resources())[0]
    assert (now.capacity, now.note) == (5, "40 connections")
    await client.put_resource(DATABASE, 2, expected_changed_at=now.changed_at)
    await client.delete_resource(DATABASE)
    with pytest.raises(duly.UnknownResourceError, match="any more"):
        await client.put_resource(DATABASE, 3, expected_changed_at=now.changed_at)
    assert [each.name for each in await client.resources()] == ["tenant"]


async def test_the_shell_changes_a_resource_only_as_it_was_read(client, declared, run_duly):
    listed = (await run_duly("resources", "list", "--json")).stdout.splitlines()
    read = ["--expected-changed-at", json.loads(listed[0])["changed_at"]]

    done = await run_duly("resources", "set", DATABASE, "5", *read)
    refused = await run_duly("resources", "set", DATABASE, "6", *read)

    assert (done.exit_code, refused.exit_code) == (0, 1)
    assert "read it again" in refused.stderr
    assert (await client.resources())[0].capacity == 5


async def test_a_condition_for_a_resource_that_is_not_in_the_request_is_refused(frontend, declared):
    limits = limits_pb2_grpc.LimitServiceStub(frontend.channel)
    request = limits_pb2.PutResourceRequest(resources=[{"name": DATABASE, "capacity": 5}])
    request.expected_changed_at["databse"].GetCurrentTime()

    refused = await refusal(limits.PutResource(request))

    assert refused.field == "expected_changed_at"
    assert "'databse'" in refused.message
    (kept, _) = (await limits.ListResources(limits_pb2.ListResourcesRequest())).resources
    assert kept.limit.capacity == 1


async def test_a_resource_that_is_declared_later_is_known_at_once(client, declared):
    with pytest.raises(duly.UnknownResourceError, match="'printer' is declared"):
        await client.schedule(LAMBDA, resources=["printer"])

    await client.put_resource("printer", 1)

    await client.schedule(LAMBDA, resources=["printer"])


async def test_a_need_that_is_invalid_is_refused_and_names_the_field(frontend, declared):
    for needs, field in [
        ([task_pb2.ResourceNeed(name="databse")], "resources[0].name"),
        ([task_pb2.ResourceNeed()], "resources[0].name"),
        ([task_pb2.ResourceNeed(name="data\0base")], "resources[0].name"),
        ([task_pb2.ResourceNeed(name=f"lambda:{LAMBDA}")], "resources[0].name"),
        ([task_pb2.ResourceNeed(name=DATABASE, key="a")], "resources[0].key"),
        ([task_pb2.ResourceNeed(name="tenant")], "resources[0].key"),
        ([task_pb2.ResourceNeed(name="tenant", key="a\0")], "resources[0].key"),
        ([task_pb2.ResourceNeed(name=DATABASE), task_pb2.ResourceNeed(name="tenant")], "resources[1].key"),
        ([task_pb2.ResourceNeed(name=DATABASE, weight=-1)], "resources[0].weight"),
        ([task_pb2.ResourceNeed(name=DATABASE, weight=1001)], "resources[0].weight"),
        ([task_pb2.ResourceNeed(name=DATABASE)] * 2, "resources"),
        ([task_pb2.ResourceNeed(name="tenant", key=str(each)) for each in range(9)], "resources"),
    ]:
        task = frontend_pb2.NewTask(resources=task_pb2.ResourceNeeds(needs=needs).SerializeToString())
        setattr(task, "lambda", LAMBDA)

        (result,) = (await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[task]))).results

        assert (result.error.field, result.task_id) == (field, "")


async def test_needs_that_cannot_be_read_are_refused(frontend, declared):
    for data in [b"\xff", b"\x0a\x00" * 2049, b"database"]:
        task = frontend_pb2.NewTask(resources=data)
        setattr(task, "lambda", LAMBDA)

        (result,) = (await frontend.stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[task]))).results

        assert (result.error.field, result.task_id) == ("resources", "")


@pytest.mark.parametrize(
    "resources", ["database", [1], [duly.ResourceNeed(DATABASE, weight=0)], [DATABASE] * 9]
)
def test_the_sdk_refuses_what_is_no_list_of_needs(resources):
    with pytest.raises(duly.InvalidTaskError):
        duly.NewTask(LAMBDA, resources=resources).to_proto()


async def test_a_declaration_that_is_invalid_names_the_field(frontend):
    for limit, field in [
        (limits_pb2.ResourceLimit(name="No Name", capacity=1), "name"),
        (limits_pb2.ResourceLimit(name=DATABASE, capacity=-1), "capacity"),
        (limits_pb2.ResourceLimit(name=DATABASE, capacity=1_000_001), "capacity"),
        (limits_pb2.ResourceLimit(name=DATABASE, capacity=1, note="n" * 1025), "note"),
        (limits_pb2.ResourceLimit(name=DATABASE, capacity=1, note="\0"), "note"),
        (limits_pb2.ResourceLimit(name="lambda:", capacity=1), "name"),
        (limits_pb2.ResourceLimit(name="lambda:a", capacity=1, per_key=True), "per_key"),
        (limits_pb2.ResourceLimit(name=DATABASE), "capacity"),
        (limits_pb2.ResourceLimit(name=DATABASE, rate=a_rate(units=0)), "rate.units"),
        (limits_pb2.ResourceLimit(name=DATABASE, rate=a_rate(units=-1)), "rate.units"),
        (limits_pb2.ResourceLimit(name=DATABASE, rate=a_rate(burst=-1)), "rate.burst"),
        (limits_pb2.ResourceLimit(name=DATABASE, rate=limits_pb2.ResourceRate(units=1)), "rate.period"),
        (limits_pb2.ResourceLimit(name=DATABASE, rate=a_rate(seconds=86401)), "rate.period"),
        (limits_pb2.ResourceLimit(name=DATABASE, rate=a_rate(seconds=-1)), "rate.period"),
    ]:
        stub = limits_pb2_grpc.LimitServiceStub(frontend.channel)

        (result,) = (await stub.PutResource(limits_pb2.PutResourceRequest(resources=[limit]))).results

        assert result.error.field == field


async def test_a_call_that_is_invalid_names_the_field(frontend):
    for method, request_, field in [
        ("PutResource", limits_pb2.PutResourceRequest(), "resources"),
        ("DeleteResource", limits_pb2.DeleteResourceRequest(names=["a"] * 101), "names"),
        ("ListResources", limits_pb2.ListResourcesRequest(page_size=1001), "page_size"),
        ("ListResources", limits_pb2.ListResourcesRequest(max_keys=-1), "max_keys"),
        ("ListResources", limits_pb2.ListResourcesRequest(page_token="?"), "page_token"),
    ]:
        stub = limits_pb2_grpc.LimitServiceStub(frontend.channel)

        refused = await refusal(getattr(stub, method)(request_))

        assert refused.field == field


async def test_a_removal_of_many_resources_looks_at_the_live_tasks_once(frontend, declared, monkeypatch):
    stub = limits_pb2_grpc.LimitServiceStub(frontend.channel)
    looked_for = []
    end_delays = store_resources.end_delays

    async def noted(store, names):
        looked_for.append(names)
        return await end_delays(store, names)

    monkeypatch.setattr(store_resources, "end_delays", noted)

    answer = await stub.DeleteResource(
        limits_pb2.DeleteResourceRequest(names=["unknown", "tenant", DATABASE])
    )

    assert looked_for == [[DATABASE, "tenant", "unknown"]]
    assert [each.error.code for each in answer.results] == [task_pb2.ERROR_CODE_UNKNOWN_RESOURCE, 0, 0]


async def test_pages_of_resources_hold_all_of_them_once(frontend, client):
    names = [f"r{number}" for number in range(5)]
    for name in names:
        await client.put_resource(name, 1)
    stub = limits_pb2_grpc.LimitServiceStub(frontend.channel)
    request, found = limits_pb2.ListResourcesRequest(page_size=2), []

    while True:
        page = await stub.ListResources(request)
        found += [each.limit.name for each in page.resources]
        if not page.next_page_token:
            break
        request.page_token = page.next_page_token

    assert found == names


async def test_the_shell_declares_shows_and_removes_a_resource(run_duly, task_states):
    await task_states.register()
    declared = await run_duly("resources", "set", "tenant", "2", "--per-key")
    assert declared.stdout.endswith("tenant: 2 units, for each key\n")
    assert (await run_duly("schedule", LAMBDA, "--resource", "tenant/acme=2")).exit_code == 0
    await pick(task_states.store)

    listed = await run_duly("resources", "list", "--max-keys", "5")
    as_json = json.loads((await run_duly("resources", "list", "--json", "--max-keys", "5")).stdout)

    assert "acme" in listed.stdout
    assert (as_json["used"], as_json["keys"]) == (2, [{"key": "acme", "used": 2, "parked": 0}])
    assert (await run_duly("resources", "delete", "tenant")).exit_code == 1
    assert (await run_duly("schedule", LAMBDA, "--resource", "tenant=x")).exit_code == 2
    assert (await run_duly("resources", "set", "database", "20")).exit_code == 0
    assert (await run_duly("resources", "delete", "database")).exit_code == 0
    mail = await run_duly("resources", "set", "mail", "--rate", "100/m", "--burst", "5")
    assert mail.stdout.endswith("mail: rate 100/m, burst 5\n")
    assert "100/m" in (await run_duly("resources", "list")).stdout
    assert (await run_duly("resources", "set", "lambda:mail.send", "2")).exit_code == 0
    assert (await run_duly("resources", "delete", "lambda:mail.send")).exit_code == 0
    assert (await run_duly("resources", "set", "mail", "--rate", "100")).exit_code == 2
    assert "rate.units" in (await run_duly("resources", "set", "mail", "--rate", "0/s")).stderr
    assert (await run_duly("resources", "set", "mail")).exit_code == 2


async def test_a_read_that_began_before_a_change_is_not_remembered_beyond_it(store, monkeypatch):
    began, may_end = asyncio.Event(), asyncio.Event()
    answers = [{DATABASE: False}, {DATABASE: True}]

    async def read(*_):
        answer = answers.pop(0)
        if answers:
            began.set()
            await may_end.wait()
        return answer

    monkeypatch.setattr("duly_core.limits.store.per_key_of", read)
    cache = ResourceCache(store)
    asked = [[task_pb2.ResourceNeed(name=DATABASE)]]
    old = asyncio.create_task(cache.kinds(asked))
    await began.wait()

    cache.forget()
    assert (await cache.kinds(asked))[DATABASE]
    may_end.set()
    await old

    assert (await cache.kinds(asked))[DATABASE]
