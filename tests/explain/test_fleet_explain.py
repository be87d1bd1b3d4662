"""Explain knows from the reports of hosts whether one serves a task's lambda."""

import pytest

from duly_wire.enums import ReasonKind
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.task_states import LAMBDA
from tests.fleet.test_fleet_hosts import INTERVAL, a_report


@pytest.fixture
def fleet(frontend):
    return fleet_pb2_grpc.FleetServiceStub(frontend.channel)


async def kinds(client, task):
    return [each.kind for each in (await client.explain(task)).reasons]


async def test_a_due_task_that_no_live_host_serves_says_so_at_once(client, task_states, fleet, clock):
    await fleet.ReportHost(a_report("other", lambdas=("report.make",)))
    task = await client.schedule(LAMBDA)

    unserved = (await client.explain(task)).reasons[0]
    await fleet.ReportHost(a_report("serving", lambdas=(LAMBDA,)))
    served = await kinds(client, task)
    await clock.tick(3 * INTERVAL)
    await fleet.ReportHost(a_report("other", lambdas=("report.make",)))
    silent = await kinds(client, task)

    assert (unserved.kind, unserved.text) == (ReasonKind.NO_HOST, f"no live host serves {LAMBDA}")
    assert ReasonKind.NO_HOST not in served
    assert silent[0] is ReasonKind.NO_HOST
