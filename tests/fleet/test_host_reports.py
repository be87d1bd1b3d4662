"""A real Controller with a real Executor reports its host to a real Frontend."""

import asyncio
from datetime import timedelta

import pytest

import duly
from duly_controller.__main__ import build
from duly_core.access import cache as access_cache
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_wire.v1 import fleet_pb2, fleet_pb2_grpc
from tests.access.test_access import give_token
from tests.fixtures.host import APP, JOURNALS
from tests.fixtures.service_processes import poll
from tests.fixtures.services import refusal, serve_frontend
from tests.fleet.test_fleet_hosts import a_report


@pytest.fixture
async def controller(frontend, hsc, tmp_path, monkeypatch, commands):
    """A Controller that reports each second; its tests start Executors, and end it by `stop`."""
    environment = {
        "DULY_TIMING_PROFILE": "embedded",
        "DULY_QUEUE_BACKEND": "store",
        "DULY_EXECUTOR_JOURNAL_FOLDER": str(tmp_path / JOURNALS),
        "DULY_EXECUTOR_HSC_ADDRESS": hsc.address,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    address = f"unix:{tmp_path}/host/controller.sock"
    serve = build(
        [],
        listen=address,
        hsc_address=hsc.address,
        frontend_address=frontend.address,
        report_interval=timedelta(seconds=1),
    )
    stop = asyncio.Event()
    serving = asyncio.create_task(serve(stop))

    def start_executor():
        arguments = ("--controller", address, "--processes", 2, "--slots", 3)
        return commands.start("duly_executor", APP, *arguments, **environment)

    async def end():
        for command in commands.started:
            command.clean_up()
        stop.set()
        await serving

    yield start_executor, end
    await end()


async def hosts(client, **options):
    return [each async for each in client.hosts(include_lambdas=True, **options)]


@pytest.mark.long  # several rounds of reports of a host
async def test_a_host_reports_its_executors_its_busy_slots_and_its_end(controller, client, journal):
    start_executor, end = controller

    async def host_when(holds):
        async def look():
            found = await hosts(client)
            return found if found and holds(found[0]) else None

        return (await poll(look))[0]

    empty = await host_when(lambda host: True)
    executor = start_executor()
    attached = await host_when(lambda host: host.executors)
    await client.schedule("test.wait", journal.payload())
    busy = await host_when(lambda host: host.busy_slots)
    journal.let_go()
    idle = await host_when(lambda host: host.executors and not host.busy_slots)
    executor.kill()
    without = await host_when(lambda host: not host.executors)
    await end()
    (stopped,) = await hosts(client)

    assert (empty.state, empty.executors) == (duly.HostState.ALIVE, ())
    (known,) = attached.executors
    assert (known.pid, known.processes, known.slots) == (executor.pid, 2, 3)
    assert known.version == attached.version != ""
    assert known.started_at is not None
    assert "test.echo" in {each.name for each in attached.lambdas}
    assert attached.lambda_count == len(attached.lambdas)
    assert (busy.busy_slots, busy.slots, idle.busy_slots) == (1, 6, 0)
    assert len({each.host_id for each in (empty, attached, busy, without, stopped)}) == 1
    assert stopped.state is duly.HostState.STOPPED


async def test_only_the_principal_that_reported_a_host_first_may_report_it(store_with_hosts):
    fleet, headers = store_with_hosts

    await fleet.ReportHost(a_report(), metadata=headers("one"))
    taken = await refusal(fleet.ReportHost(a_report(draining=True), metadata=headers("two")))
    beyond = await refusal(fleet.ReportHost(a_report("b", lambdas=("bill.pay",)), metadata=headers("two")))

    assert taken.code.name == beyond.code.name == "PERMISSION_DENIED"
    assert "'bill.pay'" in beyond.message


async def test_who_may_see_some_lambdas_sees_the_hosts_that_serve_them_and_no_other_lambdas(store_with_hosts):
    fleet, headers = store_with_hosts
    await fleet.ReportHost(a_report("a", lambdas=("mail.send", "mail.read")), metadata=headers("one"))
    await fleet.ReportHost(a_report("b", lambdas=("mail.read",)), metadata=headers("one"))

    request = fleet_pb2.ListHostsRequest(include_lambdas=True)
    seen = (await fleet.ListHosts(request, metadata=headers("reader"))).hosts
    everything = (await fleet.ListHosts(request, metadata=headers("operator"))).hosts

    assert [(each.host_id, each.lambda_count, [served.name for served in each.lambdas]) for each in seen] == [
        ("a", 1, ["mail.send"])
    ]
    assert [(each.host_id, each.lambda_count) for each in everything] == [("a", 2), ("b", 1)]


@pytest.fixture
async def store_with_hosts(store, monkeypatch):
    """FleetService with two hosts that may run mail.*, an owner of mail.send, and an operator."""
    monkeypatch.setattr(access_cache, "FRESH", timedelta(0))
    grants = [
        Grant("one", Role.HOST, "mail.*"),
        Grant("two", Role.HOST, "mail.*"),
        Grant("reader", Role.OWNER, "mail.send"),
        Grant("operator", Role.OPERATOR, "*"),
    ]
    await access.add_grants(store, grants)
    for grant in grants:
        await give_token(store, f"duly_{grant.principal}_secret", grant.principal)

    def headers(principal):
        return [("authorization", f"Bearer duly_{principal}_secret")]

    async with serve_frontend(store, authorizer=Authorizer(AccessCache(store))) as served:
        yield fleet_pb2_grpc.FleetServiceStub(served.channel), headers
