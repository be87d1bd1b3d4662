"""Hosts: what Controllers report, who may, and how long they count as alive."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

import duly
from duly_core.fleet.host_reads import count_hosts
from duly_core.fleet.hosts import HostState
from duly_wire.v1 import fleet_pb2, fleet_pb2_grpc
from tests.fixtures.services import refusal

STARTED_AT = datetime(2026, 11, 22, tzinfo=UTC)
INTERVAL = timedelta(seconds=10)


def a_report(host_id="rack-1:1:a", lambdas=("mail.send",), digest=b"d" * 16, **fields):
    started_at = Timestamp()
    started_at.FromDatetime(STARTED_AT)
    interval = Duration()
    interval.FromTimedelta(INTERVAL)
    sets = [{"lambdas": [{"name": name, "version": "1.2"} for name in lambdas]}] if lambdas else []
    executors = [
        {
            "executor_id": f"{host_id}/0",
            "pid": 7,
            "version": "0.1.0",
            "processes": 2,
            "slots": 8,
            "busy_slots": 3,
            "started_at": started_at,
        }
    ]
    message = {
        "host_id": host_id,
        "name": "rack-1",
        "version": "0.1.0",
        "queue_backend": "store",
        "started_at": started_at,
        "interval": interval,
        "executors": executors,
        "lambdas_digest": digest,
        "lambda_sets": sets,
    }
    return fleet_pb2.ReportHostRequest(**(message | fields))


@pytest.fixture
def fleet(frontend):
    return fleet_pb2_grpc.FleetServiceStub(frontend.channel)


async def test_a_host_that_reports_is_listed_with_its_executors_and_lambdas(fleet, client):
    await fleet.ReportHost(a_report(lambdas=("mail.send", "mail.read")))

    (host,) = [each async for each in client.hosts(include_lambdas=True)]
    (executor,) = host.executors

    assert (host.host_id, host.name, host.state) == ("rack-1:1:a", "rack-1", duly.HostState.ALIVE)
    assert (host.started_at, host.interval, host.queue_backend) == (STARTED_AT, INTERVAL, "store")
    assert (executor.pid, executor.processes, executor.slots, executor.busy_slots) == (7, 2, 8, 3)
    assert (executor.started_at, host.slots, host.busy_slots) == (STARTED_AT, 16, 3)
    assert host.lambda_count == 2
    assert host.lambdas == (
        duly.ServedLambda(name="mail.read", version="1.2", lambda_set=0),
        duly.ServedLambda(name="mail.send", version="1.2", lambda_set=0),
    )


async def test_a_host_tells_its_zone(fleet, client, run_duly):
    report = a_report(lambdas=("mail.send",))
    report.executors[0].zone = "east"
    await fleet.ReportHost(report)

    (host,) = [each async for each in client.hosts()]
    listed, one = [(await run_duly("hosts", *ids)).stdout for ids in ((), (host.host_id,))]

    assert host.zone == "east"
    assert "ZONE" in listed.splitlines()[0]
    assert "        zone  east" in one


async def test_lambdas_are_asked_for_when_the_store_has_others(fleet, client):
    first = await fleet.ReportHost(a_report(lambdas=()))
    await fleet.ReportHost(a_report(lambdas=("mail.send", "mail.read")))
    known = await fleet.ReportHost(a_report(lambdas=()))
    changed = await fleet.ReportHost(a_report(lambdas=(), digest=b"e" * 16))
    await fleet.ReportHost(a_report(lambdas=("mail.read", "mail.drop"), digest=b"e" * 16))

    (host,) = [each async for each in client.hosts(include_lambdas=True)]

    assert [first.lambdas_wanted, known.lambdas_wanted, changed.lambdas_wanted] == [True, False, True]
    assert [each.name for each in host.lambdas] == ["mail.drop", "mail.read"]


async def test_a_host_is_silent_after_three_missed_reports_and_stopped_if_it_said_so(
    fleet, client, clock, store
):
    await fleet.ReportHost(a_report("a"))
    await fleet.ReportHost(a_report("b", draining=True))
    await fleet.ReportHost(a_report("c", draining=True, stopped=True))
    before = {each.host_id: each.state async for each in client.hosts()}
    await clock.tick(3 * INTERVAL)
    await fleet.ReportHost(a_report("d"))
    after = {each.host_id: each.state async for each in client.hosts()}

    alive, draining, stopped, silent = duly.HostState
    assert before == {"a": alive, "b": draining, "c": stopped}
    assert after == {"a": silent, "b": silent, "c": stopped, "d": alive}
    assert await count_hosts(store) == {
        HostState.ALIVE: 1,
        HostState.DRAINING: 0,
        HostState.STOPPED: 1,
        HostState.SILENT: 2,
    }


async def test_hosts_are_found_by_lambda_state_and_id_and_paged_by_id(fleet, client):
    for number in range(5):
        await fleet.ReportHost(
            a_report(
                f"h{number}", lambdas=("mail.send",) if number % 2 else ("bill.pay",), draining=number == 3
            )
        )

    async def listed(**filters):
        return [each.host_id async for each in client.hosts(page_size=2, **filters)]

    assert await listed() == ["h0", "h1", "h2", "h3", "h4"]
    assert await listed(lambda_name="mail.send") == ["h1", "h3"]
    assert await listed(lambda_name="mail.send", states=[duly.HostState.ALIVE]) == ["h1"]
    assert await listed(host_ids=["h4", "h0", "gone"]) == ["h0", "h4"]
    assert await listed(lambda_name="nobody.has") == []


async def test_an_id_that_no_host_can_have_is_refused(fleet):
    refused = await refusal(fleet.ListHosts(fleet_pb2.ListHostsRequest(host_ids=["h\x00"])))

    assert refused.field == "host_ids"


async def test_a_report_that_is_out_of_bounds_changes_nothing(fleet, client):
    for fields, field in [
        ({"host_id": ""}, "host_id"),
        ({"name": "x" * 256}, "name"),
        ({"queue_backend": "kafka"}, "queue_backend"),
        ({"interval": Duration(seconds=601)}, "interval"),
        ({"lambdas_digest": b"short"}, "lambdas_digest"),
        ({"executors": [{"executor_id": "e"}] * 257}, "executors"),
        ({"executors": [{"executor_id": "e", "pid": -1}]}, "executors[0].pid"),
        ({"executors": [{"executor_id": "e", "zone": "a=b"}]}, "executors[0].zone"),
        ({"lambda_sets": [{"lambdas": [{"name": "No Name"}]}]}, "lambda_sets[0].lambdas"),
        ({"lambda_sets": [{"lambdas": [{"name": "a"}] * 10_001}]}, "lambda_sets"),
    ]:
        refused = await refusal(fleet.ReportHost(a_report(**fields)))

        assert refused.field == field
        assert [each async for each in client.hosts()] == []


async def test_hosts_are_listed_on_the_command_line(fleet, run_duly):
    await fleet.ReportHost(a_report("rack-1:1:a", lambdas=("mail.send", "mail.read")))
    await fleet.ReportHost(a_report("rack-1:2:b", stopped=True))

    listed, one, as_json = [
        (await run_duly("hosts", *arguments)).stdout
        for arguments in ((), ("rack-1:1:a",), ("--json", "--state", "stopped"))
    ]

    assert "rack-1:1:a" in listed
    assert "3/16" in listed
    assert "rack-1:2:b" not in listed
    assert "mail.read" in one
    assert "alive" in one
    assert json.loads(as_json)["host_id"] == "rack-1:2:b"
