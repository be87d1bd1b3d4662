"""Explain knows from the reports of hosts whether one serves a task's lambda."""

import os
import re
from datetime import timedelta
from uuid import UUID

import pytest

from duly_core.pools.lease import NO_FENCE, PlanToWrite, take_lease, write_plans
from duly_core.pools.planner import Memory, Plan
from duly_core.tasks import claims
from duly_core.tasks.task import Proposal
from duly_wire.enums import ReasonKind
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.task_states import CLAIM_TIMEOUT, LAMBDA, SECOND
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


async def test_a_task_without_a_host_names_the_pools_that_serve_it_and_what_keeps_their_workers_away(
    client, task_states, store
):
    for name, fields in (
        ("mail", {}),
        ("gpus", {"labels": ["gpu"]}),
        ("other", {"lambdas": ["report.*"]}),
    ):
        await client.put_pool(name, **{"lambdas": [LAMBDA], "maximum": 9, "driver": "kube", **fields})
    task, needs_gpu = await client.schedule(LAMBDA), await client.schedule(LAMBDA, requires=["gpu"])

    unplanned = (await client.explain(task)).reasons[0]
    fence = await take_lease(store, "host-1:7", NO_FENCE, timedelta(minutes=5))
    now = unplanned_at = (await client.explain(task)).explained_at
    for failure in (None, "kube: no such Deployment"):
        plan = Plan(1, ("because",), Memory(desired=1), 1)
        written = PlanToWrite("mail", plan, failure, failure and unplanned_at)
        assert await write_plans(store, "host-1:7", fence, now, [written], [])
        planned = (await client.explain(task)).reasons[0]
        assert planned.kind is ReasonKind.NO_HOST
        assert planned.text.endswith(
            "the pool mail serves it: it wants 1 worker, 0 are alive"
            + (f"; its driver failed: {failure}" if failure else "")
        )
        assert planned.action == "the autoscaler says why: `duly autoscaler explain gpus mail`"
    labelled = (await client.explain(needs_gpu)).reasons[0]

    assert "the pool mail serves it, and no autoscaler planned for it yet" in unplanned.text
    assert "no autoscaler leads" in unplanned.action
    assert "the pool gpus serves it" in labelled.text
    assert "the pool mail" not in labelled.text
    assert "the pool other" not in planned.text


async def test_free_slots_and_a_late_report_are_told_in_place_of_more_workers(
    client, task_states, fleet, clock
):
    await fleet.ReportHost(a_report("serving", lambdas=(LAMBDA,)))
    task = await client.schedule(LAMBDA)
    await clock.tick(timedelta(seconds=5))

    (waits,) = (await client.explain(task)).reasons
    await clock.tick(INTERVAL)
    (late,) = (await client.explain(task)).reasons

    assert waits.kind is ReasonKind.READY
    assert "no host has taken it: those that serve it reported 13 free slots 5 s ago" in waits.text
    assert "add workers" not in waits.action
    assert late.kind is ReasonKind.NO_HOST
    assert "the last one, rack-1, should report each 10 s, and did so 15 s ago" in late.text


async def test_a_claim_after_the_last_report_says_that_another_host_serves_the_lambda(
    client, task_states, fleet, clock
):
    await fleet.ReportHost(a_report("serving", lambdas=(LAMBDA,), stopped=True))
    await client.schedule(LAMBDA)
    await clock.tick(2 * INTERVAL)
    await task_states.take_of(LAMBDA)
    task = await client.schedule(LAMBDA)

    assert await kinds(client, task) == [ReasonKind.READY]


async def test_a_task_that_waits_for_a_slot_names_who_holds_them_and_how_to_end_that(
    client, task_states, fleet, clock, run_duly
):
    for name in ("poison.sleep", "report.make"):
        await task_states.register(name)
    holders = [await hold(task_states, "rack-1:1:a/0", "poison.sleep") for _ in range(15)]
    await hold(task_states, "rack-2:1:a/0", "report.make")
    task = await client.schedule(LAMBDA)
    await clock.tick(20 * SECOND)
    await fleet.ReportHost(a_report("rack-1:1:a", lambdas=(LAMBDA, "poison.sleep")))
    await fleet.ReportHost(a_report("rack-2:1:a", lambdas=("report.make",), name="rack-2"))
    free = await kinds(client, task)
    holders.append(await hold(task_states, "rack-1:1:a/0", "poison.sleep"))

    reason = (await client.explain(task)).reasons[0]
    shown = (await run_duly("explain", task.task_id)).stdout

    assert ReasonKind.SLOTS_TAKEN not in free
    assert (reason.kind, reason.limit) == (ReasonKind.SLOTS_TAKEN, 16)
    assert reason.text.startswith(f"16 of 16 slots of the Executors that serve {LAMBDA} are taken")
    assert re.search(r"held for 2\d s: 16 of poison.sleep", reason.text)
    assert [each.task_id for each in reason.tasks] == holders
    assert {each.holder for each in reason.tasks} == {"rack-1:1:a/0"}
    assert f"`duly cancel --kill {holders[0]}`" in reason.action
    assert f"{holders[0]}  poison.sleep  claimed for 2" in shown


async def hold(task_states, holder, name):
    """A task of this lambda that an Executor holds; its id."""
    task = await task_states.enqueued(lambda_name=name)
    proposal = Proposal(task.task_id, os.urandom(16), name)
    assert await claims.claim(task_states.store, [(proposal, holder)], CLAIM_TIMEOUT) != [None]
    return str(UUID(bytes=task.task_id))
