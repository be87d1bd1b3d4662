"""Processes of services report themselves; what ended is forgotten after a day."""

import json
from datetime import timedelta

from prometheus_client import REGISTRY

import duly
from duly_core.fleet.services import list_services, reporting
from duly_core.postgres.settings import StoreSettings
from duly_core.upkeep.retention import Retention
from duly_store_consumer.counting.host_watch import watch_hosts
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.service_processes import poll
from tests.fleet.test_fleet_hosts import a_report

MINUTE = timedelta(minutes=1)


async def is_listed(store):
    return bool(await list_services(store))


async def test_a_process_is_listed_while_it_runs_and_as_stopped_afterwards(store, client, run_duly):
    async with reporting(store, "hsc", "0.0.0.0:7402"):
        await poll(lambda: is_listed(store))
        (running,) = await client.services(alive=True)
        shown = (await run_duly("services")).stdout

    (stopped,) = await client.services()
    as_json = json.loads((await run_duly("services", "--json")).stdout)

    assert (running.service, running.address, running.state) == ("hsc", "0.0.0.0:7402", duly.HostState.ALIVE)
    assert running.zone == ""
    assert "0.0.0.0:7402" in shown
    assert "ZONE" not in shown
    assert stopped.state is duly.HostState.STOPPED
    assert as_json["state"] == "stopped"
    assert await client.services(alive=True) == []


async def test_a_process_tells_its_zone(store, client, run_duly):
    async with reporting(store, "hsc", "0.0.0.0:7402", zone="east"):
        await poll(lambda: is_listed(store))
        (running,) = await client.services(alive=True)
        shown = (await run_duly("services")).stdout

    assert (running.zone, running.address) == ("east", "0.0.0.0:7402")
    assert shown.splitlines()[0].split()[-3:] == ["ZONE", "ADDRESS", "PROCESS"]


async def test_what_ended_is_removed_after_a_day_and_what_lives_is_kept(store, frontend, client, clock):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("silent"))
    await fleet.ReportHost(a_report("stopped", stopped=True))
    async with reporting(store, "hsc", ""):
        await poll(lambda: is_listed(store))
    settings = StoreSettings(dsn=store.settings.dsn)
    retention = Retention(store, settings.retention, settings.dead_letter_retention, settings.partition_span)
    await clock.tick(timedelta(hours=23))

    await retention.run_once()
    kept = [each.host_id async for each in client.hosts()]
    await clock.tick(timedelta(hours=2))
    await fleet.ReportHost(a_report("alive"))
    # a second step of the clock is a time without removals
    later = Retention(store, settings.retention, settings.dead_letter_retention, settings.partition_span)
    await later.run_once()

    assert kept == ["silent", "stopped"]
    assert [each.host_id async for each in client.hosts()] == ["alive"]
    assert await list_services(store) == []


async def test_hosts_are_counted_by_state_for_the_metric(store, frontend):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("one"))
    await fleet.ReportHost(a_report("two", draining=True))

    pause = await watch_hosts(store)

    shown = {
        state: REGISTRY.get_sample_value("duly_hosts", {"state": state})
        for state in ("alive", "draining", "silent", "stopped")
    }
    assert shown == {"alive": 1, "draining": 1, "silent": 0, "stopped": 0}
    assert pause < MINUTE
