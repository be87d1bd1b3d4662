"""Clocks that differ from Postgres's are measured, shown and told; they decide nothing."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import REGISTRY

from duly_controller.executor_registry import ExecutorRegistry
from duly_controller.host_reporter import HostReporter
from duly_core.fleet.services import reporting
from duly_core.process.wall_clock import WallClock
from duly_store_consumer.counting.host_watch import watch_hosts
from duly_wire.enums import ReasonKind
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.service_processes import poll
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA
from tests.fleet.test_fleet_hosts import a_report

OFF = timedelta(minutes=10)
SECOND = timedelta(seconds=1)
NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)


def a_clock(ahead=OFF):
    return WallClock(now=lambda: datetime.now(UTC) + ahead)


@pytest.mark.parametrize(
    ("round_trip", "ahead"),
    [
        pytest.param(0.4, timedelta(seconds=9.8), id="half the round trip counts"),
        pytest.param(1.5, None, id="an answer that took long says too little"),
    ],
)
def test_a_clock_is_compared_in_the_middle_of_the_round_trip(round_trip, ahead):
    since_boot = iter((100.0, 100.0 + round_trip))
    clock = WallClock(now=lambda: NOON, since_boot=lambda: next(since_boot))

    clock.compare(clock.ask(), NOON + timedelta(seconds=round_trip) - 10 * SECOND)

    assert clock.ahead == ahead


async def test_a_service_whose_clock_is_off_is_shown_counted_and_listed(store, client, run_duly):
    async def listed():
        return await client.services()

    async with reporting(store, "hsc", "0.0.0.0:7402", clock=a_clock(-OFF)):
        (service,) = await poll(listed)
        await watch_hosts(store)
        counted = [
            REGISTRY.get_sample_value("duly_skewed_clocks", {"kind": kind}) for kind in ("host", "service")
        ]
        shown = (await run_duly("services")).stdout
        own = REGISTRY.get_sample_value("duly_clock_ahead_seconds")

    assert abs(service.clock_ahead + OFF) < SECOND
    assert counted == [0, 1]
    assert "-10m" in shown or "-9m59s" in shown
    assert abs(own + OFF.total_seconds()) < 1


async def test_a_host_compares_its_clock_with_the_stores_and_reports_the_difference_at_once(
    frontend, client, run_duly
):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    minute = timedelta(minutes=1)
    reporter = HostReporter(
        "host", fleet, ExecutorRegistry(lambda _: None), "store", minute, minute, clock=a_clock()
    )

    async def measured():
        return [each async for each in client.hosts() if each.clock_ahead is not None]

    finish = reporter.begin(asyncio.Event())
    (host,) = await poll(measured)
    shown, as_json = [(await run_duly("hosts", *words)).stdout for words in (("host",), ("--json",))]
    await finish()

    assert abs(host.clock_ahead - OFF) < SECOND
    assert "ahead of Postgres's" in shown
    assert json.loads(as_json)["clock_ahead"]


async def test_a_difference_that_no_clock_can_have_is_refused(frontend):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    report = a_report()
    report.clock_ahead.FromTimedelta(timedelta(days=4000))

    assert (await refusal(fleet.ReportHost(report))).field == "clock_ahead"


async def test_explain_names_the_clock_of_the_host_that_has_the_task(client, task_states, frontend):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    report = a_report(executors=[{"executor_id": "test-host"}])
    report.clock_ahead.FromTimedelta(OFF)
    await fleet.ReportHost(report)
    task = await client.schedule(LAMBDA)
    await task_states.take_of(LAMBDA)

    reason = (await client.explain(task)).reasons[-1]

    assert (reason.kind, reason.clock_ahead) == (ReasonKind.CLOCK_SKEW, OFF)
    assert "the clock of rack-1 is 10 min ahead of Postgres's" in reason.text
    assert reason.action.endswith("`duly hosts rack-1:1:a`")


async def test_explain_names_the_clock_of_a_client_that_gave_the_due_time(client, task_states, clock):
    await clock.tick(-OFF)  # this process, which makes the id, is ahead then
    later = await client.schedule(LAMBDA, at=datetime.now(UTC) + OFF)
    now = await client.schedule(LAMBDA)

    waits = (await client.explain(later)).reasons
    due = (await client.explain(now)).reasons

    (skew,) = [each for each in waits if each.kind is ReasonKind.CLOCK_SKEW]
    assert waits[0].kind is ReasonKind.DUE_LATER
    assert "ahead of Postgres's: a time that the client took from that clock is off by as much" in skew.text
    assert abs(skew.clock_ahead - OFF) < SECOND
    assert ReasonKind.CLOCK_SKEW not in [each.kind for each in due]
