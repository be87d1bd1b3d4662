"""Pools from the SDK and from the shell, and every refusal."""

import json
from datetime import timedelta

import pytest

import duly
from duly_core.pools import lease
from duly_core.pools.lease import NO_FENCE, PlanToWrite
from duly_core.pools.planner import Announced, Memory, Plan
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.task_states import LAMBDA
from tests.fleet.test_fleet_hosts import a_report

SECOND = timedelta(seconds=1)


async def declare(client, name="mail", **fields):
    return await client.put_pool(name, **{"lambdas": [LAMBDA], "maximum": 9, "driver": "local", **fields})


async def test_a_pool_is_declared_changed_and_removed(client):
    first = await declare(client, labels=["gpu"], driver_settings={"deployment": "mail"})
    changed = await client.put_pool("mail", maximum=12, budget=timedelta(hours=48))
    again = await client.put_pool("mail", maximum=12)
    default = await client.put_pool("mail", budget=None, labels=None)

    (pool,) = await client.pools(["mail", "other"])
    assert (first.created, changed.created) == (True, False)
    assert (changed.changed, again.changed, default.changed) == (
        ("maximum", "budget"),
        (),
        ("labels", "budget"),
    )
    assert (pool.lambdas, pool.maximum, pool.minimum, pool.driver) == ((LAMBDA,), 12, 0, "local")
    assert (pool.target_age, pool.idle_time, pool.worker_slots) == (30 * SECOND, 60 * SECOND, 1)
    assert pool.driver_settings == {"deployment": "mail"}
    assert (pool.plan, pool.alive, pool.budget) == (None, 0, None)
    await client.delete_pool("mail")
    with pytest.raises(duly.UnknownPoolError):
        await client.delete_pool("mail")


@pytest.mark.parametrize(
    ("name", "fields", "says"),
    [
        ("mail", {"minimum": 10}, "minimum .10. is above the maximum .9."),
        ("mail", {"maximum": 0}, "1 to 10,000"),
        ("mail", {"lambdas": []}, "lambdas.*is missing"),
        ("mail", {"lambdas": ["No Name"]}, "lambdas.0."),
        ("mail", {"lambdas": ["mail.send@2"]}, "lambdas.0."),
        ("mail", {"lambdas": ["*mail"]}, "at the end only"),
        ("mail", {"driver": ""}, "driver.*is missing"),
        ("mail", {"driver": "/bin/sh"}, "driver"),
        ("mail", {"driver_settings": {"deployment": "--all"}}, "driver_settings"),
        ("mail", {"driver_settings": {"deployment": "a b;c"}}, "driver_settings"),
        ("mail", {"driver_settings": {"A": "b"}}, "driver_settings"),
        ("mail", {"target_age": timedelta()}, "target_age"),
        ("mail", {"budget": timedelta()}, "budget"),
        ("mail", {"labels": ["No Label"]}, "labels"),
        ("mail", {"note": "x" * 1025}, "note"),
        ("No Pool", {}, "name"),
    ],
)
async def test_what_is_no_pool_is_refused_and_changes_nothing(client, name, fields, says):
    with pytest.raises(duly.InvalidTaskError, match=says):
        await declare(client, name, **fields)

    assert await client.pools() == []


async def test_a_change_that_contradicts_what_stays_is_refused(client):
    first = await declare(client, minimum=3)

    with pytest.raises(duly.InvalidTaskError, match="above the maximum"):
        await client.put_pool("mail", maximum=2)
    await client.put_pool("mail", maximum=4)
    with pytest.raises(duly.PoolConflictError, match="since it was read"):
        await client.put_pool("mail", maximum=5, expected_changed_at=first.pool.changed_at)

    assert (await client.pools())[0].maximum == 4


async def test_a_pool_shows_its_workers_and_why_so_many_are_desired(client, store, frontend, run_duly):
    await declare(client)
    await declare(client, "idle")
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    told = await fleet.ReportHost(a_report("one", lambdas=(LAMBDA,), pool="mail"))
    now = told.store_at.ToDatetime().astimezone()
    fence = await lease.take_lease(store, "host-1:7", NO_FENCE, timedelta(minutes=5))
    soon = Announced(now + SECOND, 12, "8,000 tasks are due")
    plan = Plan(3, ("because", "and because"), Memory(desired=3), 3, soon)
    await lease.write_plans(
        store, "host-1:7", fence, now, [PlanToWrite("mail", plan, "no \x1b[31mDeployment", now)], []
    )

    _, pool = await client.pools()
    leader = await client.autoscaler_leader()
    listed = await run_duly("pools", "list")
    shown = await run_duly("pools", "show", "mail")
    as_json = json.loads((await run_duly("pools", "show", "mail", "--json")).stdout)

    assert (pool.alive, pool.slots, pool.busy_slots) == (1, 16, 3)
    assert (pool.plan.desired, pool.plan.reasons) == (3, ("because", "and because"))
    assert (pool.plan.announced.workers, pool.plan.spin_up_assumed) == (12, True)
    assert (leader.holder, leader.fence, leader.leads) == ("host-1:7", fence, True)
    assert "no autoscaler planned" in listed.stdout
    assert "driver failed: no" in shown.stdout
    assert "\x1b" not in shown.stdout
    assert "- and because" in shown.stdout
    assert (as_json["plan"]["desired"], as_json["alive"]) == (3, 1)


async def test_pools_are_set_and_removed_from_the_shell(client, run_duly):
    words = ("--lambda", "mail.*", "--max", "20", "--driver", "kube", "--driver-setting", "deployment=mail")
    made = await run_duly("pools", "set", "mail", *words, "--target-age", "10s", "--budget", "48h")
    changed = await run_duly("pools", "set", "mail", "--max", "30", "--no-budget")
    refused = await run_duly("pools", "set", "mail", "--min", "31")
    nothing = await run_duly("pools", "set", "mail")

    (pool,) = await client.pools()
    assert (pool.maximum, pool.target_age, pool.budget) == (30, 10 * SECOND, None)
    assert "mail: declared; 0 to 20 workers for mail.*, driver kube\n" in made.stdout
    assert "mail: maximum, budget changed; 0 to 30 workers" in changed.stdout
    assert "above the maximum" in refused.stderr
    assert "say what to change" in nothing.stderr
    assert "Invalid value for" not in nothing.stderr
    assert (await run_duly("pools", "remove", "mail")).stdout.endswith("mail: removed\n")
    assert (await run_duly("pools", "remove", "mail")).exit_code == 1


async def test_a_new_pool_tells_who_serves_its_lambdas_too_and_what_is_known_of_its_driver(
    client, store, run_duly
):
    alone = await declare(client, "first", driver="kube")
    fence = await lease.take_lease(store, "host-1:7", NO_FENCE, timedelta(minutes=5))
    both = await run_duly("pools", "set", "second", "--lambda", "*", "--max", "2", "--driver", "nope")
    now = both_at = (await client.pools(["second"]))[0].changed_at
    plan = Plan(1, ("because",), Memory(desired=1), 1)
    failing = PlanToWrite("second", plan, "nope: no driver of this name", both_at)
    await lease.write_plans(store, "host-1:7", fence, now, [PlanToWrite("first", plan), failing], [])

    again = await client.put_pool("first", maximum=3)
    known = await declare(client, "third", lambdas=["report.*"], driver="kube")
    fails = await declare(client, "fourth", lambdas=["video.*"], driver="nope")

    assert alone.notes == ("no autoscaler leads: none starts its workers until `duly autoscaler` runs",)
    assert f"note: the pool first serves {LAMBDA}, too: each plans for all of its load\n" in both.stdout
    assert "note: no other pool uses the driver nope: `duly pools` says" in both.stdout
    assert again.notes == ()
    assert known.notes == ("the pool second serves report.*, too: each plans for all of its load",)
    assert fails.notes[1:] == ("its driver fails for the pool second: nope: no driver of this name",)


async def test_workers_of_a_pool_that_is_removed_are_counted(client, frontend, run_duly):
    await declare(client)
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("one", lambdas=(LAMBDA,), pool="mail"))

    removed = await run_duly("pools", "remove", "mail")

    assert removed.stdout.endswith("mail: removed; 1 worker goes on until somebody ends it\n")
