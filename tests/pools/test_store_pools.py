"""Pools, their load and the leader's lease in Postgres."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from duly_core.gates.rules import NO_GATES, Gate, GateScope, GateSet, Kind
from duly_core.pools import lease
from duly_core.pools import store as pools
from duly_core.pools.lease import NO_FENCE, PlanToWrite
from duly_core.pools.load import LoadReader
from duly_core.pools.planner import Announced, Memory, Plan
from duly_core.pools.rules import Pool
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.database import ask
from tests.fixtures.task_states import LAMBDA
from tests.fleet.test_fleet_hosts import a_report

LEASE = timedelta(seconds=6)
SECOND = timedelta(seconds=1)
POOL = Pool(name="mail", lambdas=(LAMBDA,), maximum=9, driver="local")


def a_plan(desired, **fields):
    return Plan(desired, ("because",), Memory(desired=desired), desired, **fields)


async def declare(store, pool=POOL):
    return await pools.put_pool(store, pool.name, lambda _: pool)


async def test_a_pool_reads_back_as_it_was_put_and_a_repeat_changes_nothing(store):
    whole = replace(
        POOL,
        labels=("gpu", "region=eu"),
        minimum=2,
        slots=40,
        target_age=10 * SECOND,
        idle_time=timedelta(),
        budget=timedelta(hours=48),
        driver_settings={"deployment": "mail"},
        note="as agreed",
    )

    first = await declare(store, whole)
    again = await declare(store, whole)

    assert (first.before, again.before) == (None, whole)
    assert first.changed_at == again.changed_at
    assert await pools.list_pools(store) == [pools.StoredPool(whole, first.changed_at)]
    assert await pools.delete_pools(store, ["mail", "other"]) == {"mail"}
    assert await pools.list_pools(store) == []


async def test_a_pool_that_somebody_changed_is_not_changed_again(store):
    first = await declare(store)
    second = await pools.put_pool(store, "mail", lambda pool: replace(pool, maximum=5))

    with pytest.raises(pools.PoolChangedError) as refused:
        await pools.put_pool(store, "mail", lambda pool: replace(pool, maximum=6), first.changed_at)
    with pytest.raises(pools.PoolChangedError) as gone:
        await pools.put_pool(store, "other", lambda _: replace(POOL, name="other"), first.changed_at)

    assert (refused.value.is_gone, gone.value.is_gone) == (False, True)
    repeat = await pools.put_pool(store, "mail", lambda pool: replace(pool, maximum=5), first.changed_at)
    assert repeat.changed_at == second.changed_at


async def test_one_autoscaler_leads_and_another_takes_over_when_its_lease_is_over(store, clock):
    first = await lease.take_lease(store, "a", NO_FENCE, LEASE)

    while_it_leads = await lease.take_lease(store, "b", NO_FENCE, LEASE)
    await clock.tick(5 * SECOND)
    renewed = await lease.take_lease(store, "a", first, LEASE)
    await clock.tick(5 * SECOND)
    still = await lease.take_lease(store, "b", NO_FENCE, LEASE)
    await clock.tick(2 * SECOND)
    second = await lease.take_lease(store, "b", NO_FENCE, LEASE)

    assert (while_it_leads, still) == (None, None)
    assert renewed == first
    assert second == first + 1
    assert await lease.take_lease(store, "a", first, LEASE) is None
    leader = await lease.read_leader(store)
    assert (leader.holder, leader.fence, leader.leads) == ("b", second, True)


async def test_a_leader_that_slept_writes_nothing_under_its_old_fence(store, clock, dsn):
    await declare(store)
    first = await lease.take_lease(store, "a", NO_FENCE, LEASE)
    now = datetime.now(UTC)
    written = await lease.write_plans(store, "a", first, now, [PlanToWrite("mail", a_plan(3))], ['{"to": 3}'])
    await clock.tick(LEASE + SECOND)

    asleep = await lease.write_plans(store, "a", first, now, [PlanToWrite("mail", a_plan(9))], ['{"to": 9}'])
    second = await lease.take_lease(store, "b", NO_FENCE, LEASE)
    awake = await lease.write_plans(store, "a", first, now, [PlanToWrite("mail", a_plan(9))], ['{"to": 9}'])
    drained = await lease.request_drain(store, "a", first, "mail", ["one"])
    again = await lease.take_lease(store, "a", first, LEASE)

    assert (written, asleep, awake, drained, again) == ({"mail"}, None, None, set(), None)
    assert (await pools.list_plans(store, ["mail"]))["mail"].desired == 3
    assert await lease.write_plans(store, "b", second, now, [PlanToWrite("mail", a_plan(4))], []) == {"mail"}
    assert ask(dsn, "select actor, peer, method, request from audit_event") == [
        ("autoscaler", "a", "Autoscaler/Scale", '{"to": 3}')
    ]


async def test_a_holder_whose_lease_was_over_leads_under_another_fence(store, clock):
    first = await lease.take_lease(store, "a", NO_FENCE, LEASE)
    await clock.tick(LEASE + SECOND)

    second = await lease.take_lease(store, "a", first, LEASE)
    await lease.give_lease_up(store, "a", second)

    assert second == first + 1
    assert await lease.take_lease(store, "b", NO_FENCE, LEASE) == second + 1


async def test_a_plan_keeps_since_when_and_what_failed(store, clock):
    await declare(store)
    fence = await lease.take_lease(store, "a", NO_FENCE, timedelta(hours=1))
    now = datetime.now(UTC)
    soon = Announced(now + SECOND, 7, "a spike")

    async def write(at, plan, failure=None):
        to_write = PlanToWrite("mail", plan, failure, failure and now)
        return await lease.write_plans(store, "a", fence, at, [to_write, PlanToWrite("gone", plan)], [])

    await write(now, a_plan(3))
    written = await write(now + SECOND, a_plan(3, announced=soon), "no such Deployment")
    kept = (await pools.list_plans(store, ["mail"]))["mail"]
    await write(now + 2 * SECOND, a_plan(4))
    later = (await pools.list_plans(store, ["mail"]))["mail"]

    assert written == {"mail"}
    assert (kept.desired_since, kept.planned_at, kept.announced) == (now, now + SECOND, soon)
    assert (kept.failure, kept.failed_since) == ("no such Deployment", now)
    assert (later.desired_since, later.failure, later.announced) == (now + 2 * SECOND, None, None)


async def test_workers_of_a_pool_are_those_that_say_so_and_serve_its_lambdas(
    store, frontend, task_states, clock
):
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("silent", lambdas=(LAMBDA,), pool="mail"))
    await clock.tick(timedelta(minutes=10))
    await fleet.ReportHost(a_report("one", lambdas=(LAMBDA,), pool="mail"))
    await fleet.ReportHost(a_report("two", lambdas=(LAMBDA,), pool="mail"))
    await fleet.ReportHost(a_report("other", lambdas=(LAMBDA,)))
    await fleet.ReportHost(a_report("liar", lambdas=("evil.x",), pool="mail"))
    fence = await lease.take_lease(store, "a", NO_FENCE, LEASE)

    drained = await lease.request_drain(store, "a", fence, "mail", ["two", "other"])
    found = await pools.workers_of(store, [POOL, replace(POOL, name="empty")])
    told = await fleet.ReportHost(a_report("two", lambdas=(LAMBDA,), pool="mail"))
    not_told = await fleet.ReportHost(a_report("one", lambdas=(LAMBDA,), pool="mail"))

    assert drained == {"two"}
    assert [(each.host_id, each.takes_tasks) for each in found["mail"]] == [("one", True), ("two", False)]
    assert found["empty"] == []
    counted = pools.count_workers(found["mail"], 1)
    assert (counted.alive, counted.starting, counted.draining, counted.slots) == (1, 1, 1, 16)
    assert (told.drain, not_told.drain) == (True, False)


async def test_the_load_has_what_is_due_what_will_be_and_what_runs(store, client, task_states):
    await task_states.register()
    await task_states.register("other")
    for delay in (0, 0, 0, 12, 13, 3000):
        await client.schedule(LAMBDA, delay=timedelta(seconds=delay))
    await client.schedule("other")

    now, loads = await LoadReader(store).read([POOL], timedelta(minutes=5), NO_GATES)

    (load,) = loads["mail"]
    assert (load.name, load.ready, load.held, load.run_time) == (LAMBDA, 3, 0, None)
    assert timedelta() <= load.oldest_age < timedelta(minutes=1)
    assert load.arrivals == pytest.approx(0.1)
    assert sum(due.tasks for due in load.due) == 2
    assert all(10 * SECOND < due.at - now < 14 * SECOND for due in load.due)


async def test_what_a_gate_holds_needs_no_workers_and_two_pools_share_a_queue(store, client, task_states):
    await task_states.register()
    for _ in range(5):
        await client.schedule(LAMBDA)
    paused = GateSet(
        [
            Gate(
                1,
                "night",
                Kind.PAUSE,
                GateScope(LAMBDA, None, None, None),
                None,
                "",
                "",
                datetime.now(UTC),
                None,
            )
        ]
    )

    _, held_back = await LoadReader(store).read([POOL], SECOND, paused)
    _, shared = await LoadReader(store).read([POOL, replace(POOL, name="more")], SECOND, NO_GATES)

    assert [each.ready for each in held_back["mail"]] == [0]
    assert [shared["mail"][0].ready, shared["more"][0].ready] == [3, 2]
