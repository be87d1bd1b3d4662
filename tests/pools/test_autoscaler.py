"""The autoscaler: who leads, what is told to drivers, and what drivers that fail do to others."""

import asyncio
import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from duly_autoscaler.drivers import local
from duly_autoscaler.drivers.command import CommandDriver
from duly_autoscaler.drivers.local import LocalDriver
from duly_autoscaler.drivers.port import DriverError, Order
from duly_autoscaler.drivers.specs import CommandSpec, LocalSpec, parse_drivers
from duly_autoscaler.leadership import Leadership
from duly_autoscaler.loads import CellLoads
from duly_autoscaler.rounds import Rounds, choose_to_drain
from duly_autoscaler.settings import AutoscalerSettings
from duly_core.errors import SettingsError
from duly_core.gates.cache import FixedGates
from duly_core.pools import store as pools
from duly_core.pools.rules import Pool
from duly_core.pools.store import PoolWorker
from duly_wire.v1 import fleet_pb2_grpc
from tests.fixtures.database import ask
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.waiting import until
from tests.fleet.test_fleet_hosts import a_report

SECOND = timedelta(seconds=1)
LEASE = timedelta(minutes=5)
POOL = Pool(name="mail", lambdas=(LAMBDA,), maximum=9, idle_time=timedelta(), driver="fake")


@dataclass
class FakeDriver:
    """Notes what it is told; fails or hangs if it is to."""

    ends_workers: bool = True
    orders: list = field(default_factory=list)
    drained: list = field(default_factory=list)
    fails: str = ""
    hangs: bool = False
    workers: tuple = ()

    async def ensure(self, order):
        self.workers = order.workers
        self.orders.append((order.pool.name, order.desired, order.start))
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise DriverError(self.fails)

    async def drain(self, pool, host_ids):
        self.drained += host_ids

    async def close(self):
        pass


@pytest.fixture
async def autoscaler(store):
    """Makes autoscalers that take their turns when they are told."""
    made = []

    async def make(drivers, holder="a", timeout=20 * SECOND):
        leadership = Leadership(store, holder, LEASE)
        loads = CellLoads.of_sole_store(store, FixedGates())
        rounds = Rounds(store, leadership, drivers, loads, 2 * SECOND, timeout)
        made.append((rounds, leadership))
        await leadership.run_once()
        return rounds, leadership

    yield make
    for rounds, leadership in made:
        await rounds.close()
        await leadership.give_up()


async def declare(store, pool=POOL):
    await pools.put_pool(store, pool.name, lambda _: pool)


async def plan_of(store, name="mail"):
    return (await pools.list_plans(store, [name]))[name]


async def test_a_backlog_asks_for_workers_once_and_their_spin_up_is_learned(
    store, client, task_states, frontend, autoscaler, dsn
):
    await task_states.register()
    await declare(store)
    for _ in range(3):
        await client.schedule(LAMBDA)
    driver = FakeDriver()
    rounds, _ = await autoscaler({"fake": driver})

    await rounds.run_once()
    await rounds.run_once()
    asked = await plan_of(store)
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("one", lambdas=(LAMBDA,), pool="mail"))
    await rounds.run_once()
    came = await plan_of(store)

    assert driver.orders[0] == ("mail", 1, 1)
    assert {start for _, _, start in driver.orders[1:]} <= {0}
    assert (asked.desired, len(asked.memory.spin_up.asked), asked.memory.spin_up.samples) == (1, 1, ())
    assert (came.memory.spin_up.asked, len(came.memory.spin_up.samples)) == ((), 1)
    ((request,),) = ask(dsn, "select request from audit_event where method = 'Autoscaler/Scale'")
    assert json.loads(request)["reasons"] == list(asked.reasons)
    assert (json.loads(request)["from"], json.loads(request)["to"]) == (0, 1)


async def test_idle_workers_drain_first_when_fewer_are_desired(store, frontend, task_states, autoscaler):
    await task_states.register()
    await declare(store, Pool(**{**pool_fields(), "minimum": 1}))
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("busy", lambdas=(LAMBDA,), pool="mail"))
    idle = [{"executor_id": "x", "processes": 1, "slots": 4, "busy_slots": 0, "lambda_set": 0}]
    await fleet.ReportHost(a_report("idle", lambdas=(LAMBDA,), pool="mail", executors=idle))
    driver = FakeDriver(ends_workers=False)
    rounds, _ = await autoscaler({"fake": driver})

    await rounds.run_once()
    await rounds.run_once()
    await until(lambda: driver.drained)

    told = [
        (await fleet.ReportHost(a_report(name, lambdas=(LAMBDA,), pool="mail"))).drain
        for name in ("busy", "idle")
    ]
    assert driver.drained == ["idle"]
    assert driver.workers == ("busy", "idle")
    assert told == [False, True]


def pool_fields():
    return {name: getattr(POOL, name) for name in POOL.__dataclass_fields__}


async def test_a_driver_that_fails_or_hangs_marks_its_pool_and_holds_up_no_other(
    store, client, task_states, autoscaler
):
    await task_states.register()
    for name, driver in (("bad", "bad"), ("hung", "hung"), ("none", "none"), ("good", "good")):
        fields = {**pool_fields(), "name": name, "driver": driver, "minimum": 1}
        await declare(store, Pool(**fields))
    drivers = {
        "bad": FakeDriver(fails="no such Deployment"),
        "hung": FakeDriver(hangs=True),
        "good": FakeDriver(),
    }
    rounds, _ = await autoscaler(drivers, timeout=0.2 * SECOND)

    await rounds.run_once()
    await until(lambda: all(rounds._calls[name].failure for name in ("bad", "hung", "none")))
    await rounds.run_once()

    plans = await pools.list_plans(store, ["bad", "hung", "none", "good"])
    assert plans["bad"].failure == "bad: no such Deployment"
    assert plans["hung"].failure == "hung: no answer within 0.2 s"
    assert "no driver of this name" in plans["none"].failure
    assert (plans["good"].failure, plans["good"].failed_since) == (None, None)
    assert plans["bad"].failed_since is not None
    assert len(drivers["bad"].orders) == 1  # a pause comes before the next try
    assert drivers["good"].orders[0] == ("good", 1, 1)
    # what did not start is not waited for
    assert (plans["bad"].memory.spin_up.asked, len(plans["good"].memory.spin_up.asked)) == ((), 1)


@pytest.mark.parametrize("said", ["\u65e5" * 5_000, "half of a pair: \ud800", "zero \x00 byte"])
async def test_what_a_driver_says_cannot_keep_the_plans_of_other_pools_from_being_written(
    store, task_states, autoscaler, said
):
    await task_states.register()
    for name in ("bad", "good"):
        await declare(store, Pool(**{**pool_fields(), "name": name, "driver": name, "minimum": 1}))
    rounds, _ = await autoscaler({"bad": FakeDriver(fails=said), "good": FakeDriver()})
    await rounds.run_once()
    await until(lambda: rounds._calls["bad"].failure)

    await rounds.run_once()

    plans = await pools.list_plans(store, ["bad", "good"])
    assert plans["bad"].failure.startswith(f"bad: {said[:4]}")
    assert plans["good"].failure is None


async def test_a_driver_that_works_again_is_told_again(store, task_states, autoscaler):
    await task_states.register()
    await declare(store, Pool(**{**pool_fields(), "minimum": 2}))
    driver = FakeDriver(fails="away")
    rounds, _ = await autoscaler({"fake": driver})
    await rounds.run_once()
    await until(lambda: rounds._calls["mail"].failure)

    driver.fails = ""
    rounds._calls["mail"]._again_at = float("-inf")
    await rounds.run_once()
    await until(lambda: not rounds._calls["mail"].failure)
    await rounds.run_once()

    plan = await plan_of(store)
    assert driver.orders == [("mail", 2, 2), ("mail", 2, 2)]
    assert (plan.failure, len(plan.memory.spin_up.asked)) == (None, 2)


async def test_a_worker_that_comes_ends_the_pause_of_a_driver_that_failed(
    store, frontend, task_states, autoscaler
):
    await task_states.register()
    await declare(store, Pool(**{**pool_fields(), "minimum": 2}))
    driver = FakeDriver(fails="away")
    rounds, _ = await autoscaler({"fake": driver})
    await rounds.run_once()
    await until(lambda: rounds._calls["mail"].failure)
    await rounds.run_once()
    before = [*driver.orders]

    driver.fails = ""
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    await fleet.ReportHost(a_report("one", lambdas=(LAMBDA,), pool="mail"))
    await rounds.run_once()
    await until(lambda: not rounds._calls["mail"].failure)

    assert before == [("mail", 2, 2)]
    assert driver.orders[1:] == [("mail", 2, 1)]


async def test_a_worker_that_cannot_start_fails_its_pool_until_one_that_was_started_since_has_reported(
    tmp_path, monkeypatch
):
    program = tmp_path / "program"
    program.write_text(
        f'#!/bin/sh\ntest -e "{tmp_path}/$6" && exit 78\nexec tail -f /dev/null\n'
    )  # $6: the pool
    program.chmod(0o700)
    monkeypatch.setattr(local, "sys", SimpleNamespace(executable=str(program)))
    driver = LocalDriver(LocalSpec("mail:app"), timedelta(seconds=20))
    other, third = replace(POOL, name="other"), replace(POOL, name="third")
    (tmp_path / POOL.name).touch()
    (tmp_path / third.name).touch()
    await driver.ensure(Order(POOL, 3, 1))
    await asyncio.wait(driver._watching)

    said = [await refusal(driver, Order(POOL, 3, start)) for start in (0, 3)]
    await asyncio.wait(driver._watching)
    (tmp_path / POOL.name).unlink()
    said += [await refusal(driver, Order(POOL, 3, 3)) for _ in range(2)]
    (trial,) = driver._children
    await driver.ensure(Order(other, 1, 1))
    await driver.ensure(Order(POOL, 3, 2, (f"host-1:{trial}:0a1b2c3d",)))
    works_again = len(driver._children)
    await driver.ensure(Order(third, 1, 1))
    await until(lambda: driver._doubts)
    said.append(await refusal(driver, Order(third, 1, 0)))
    await driver.ensure(Order(third, 0, 0))  # none is missing any more
    await driver.close()

    assert len(said) == 5
    assert all(each.startswith("a worker of mail:app ended with code 78") for each in said)
    assert works_again == 4


async def refusal(driver, order):
    with pytest.raises(DriverError) as refused:
        await driver.ensure(order)
    return str(refused.value)


async def test_of_two_autoscalers_one_plans_and_the_other_takes_over_at_once_when_it_stops(
    store, task_states, autoscaler
):
    await task_states.register()
    await declare(store, Pool(**{**pool_fields(), "minimum": 1}))
    first, second = FakeDriver(), FakeDriver()
    one, leads = await autoscaler({"fake": first}, "a")
    other, waits = await autoscaler({"fake": second}, "b")
    await one.run_once()
    await until(lambda: first.orders)
    await other.run_once()
    before = (len(first.orders), len(second.orders), waits.term)

    await leads.give_up()
    await waits.run_once()
    await one.run_once()
    await other.run_once()
    await until(lambda: second.orders)

    assert before == (1, 0, None)
    assert len(first.orders) == 1
    assert second.orders == [("mail", 1, 1)]  # whether the other's worker still starts, nobody knows
    assert (await plan_of(store)).desired_since < (await plan_of(store)).planned_at
    assert waits.term.fence == 2


async def test_a_new_leader_goes_on_from_the_failures_that_the_last_one_left(store, task_states, autoscaler):
    await task_states.register()
    await declare(store, Pool(**{**pool_fields(), "minimum": 1}))
    one, leads = await autoscaler({"fake": FakeDriver(fails="away")}, "a")
    other, waits = await autoscaler({"fake": FakeDriver()}, "b")
    await one.run_once()
    await until(lambda: one._calls["mail"].failure)
    await one.run_once()
    left = await plan_of(store)
    await leads.give_up()
    await waits.run_once()

    await other.run_once()
    taken_over = await plan_of(store)
    await until(lambda: not other._calls["mail"].failure)
    await other.run_once()

    assert left.failure == "fake: away"
    assert (taken_over.failure, taken_over.failed_since) == (left.failure, left.failed_since)
    assert (await plan_of(store)).failure is None


async def test_a_leader_that_cannot_renew_stops_before_its_lease_is_over(store, clock):
    now = [0.0]
    leadership = Leadership(store, "a", 6 * SECOND, lambda: now[0])
    await leadership.run_once()
    term = leadership.term

    now[0] = 4.7
    in_time = leadership.term
    now[0] = 4.9

    assert in_time is term
    assert leadership.term is None
    assert term.ended.is_set()


async def test_a_leader_that_slept_gives_its_call_up_and_its_plans_are_refused(
    store, task_states, autoscaler, clock
):
    await task_states.register()
    await declare(store, Pool(**{**pool_fields(), "minimum": 1}))
    hanging = FakeDriver(hangs=True)
    slept, old = await autoscaler({"fake": hanging}, "a")
    await slept.run_once()
    await clock.tick(LEASE + SECOND)
    other, new = await autoscaler({"fake": FakeDriver()}, "b")
    await other.run_once()
    term = old.term

    await slept.run_once()
    await until(term.ended.is_set)

    assert old.term is None
    assert (await pools.list_plans(store, ["mail"]))["mail"].desired == 1
    await old.run_once()
    assert (old.term, new.term.fence) == (None, 2)


def test_idle_workers_are_chosen_first_then_the_newest():
    start = datetime(2026, 11, 26, tzinfo=UTC)
    found = [
        PoolWorker("busy", "alive", start, 4, 3, is_to_drain=False),
        PoolWorker("old", "alive", start, 4, 0, is_to_drain=False),
        PoolWorker("new", "alive", start + SECOND, 4, 0, is_to_drain=False),
        PoolWorker("draining", "draining", start, 4, 0, is_to_drain=False),
    ]

    assert choose_to_drain(found, 1) == ["new", "old"]
    assert choose_to_drain(found, 3) == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON"),
        ("[]", "table of drivers"),
        ('{"A": {}}', "no name of a driver"),
        ('{"a": {"kind": "moon"}}', "a.kind: must be one of"),
        ('{"a": {"kind": "local"}}', "a.application"),
        (
            '{"a": {"kind": "local", "application": "x:y", "slots": 3}}',
            "a.slots: a driver of the kind local has no such key",
        ),
        ('{"a": {"kind": "command", "command": "scale {workers}"}}', "a.command: must be a list"),
        ('{"a": {"kind": "command", "command": ["scale"]}}', "no argument has {workers}"),
        (
            '{"a": {"kind": "command", "command": ["x", "{workers}"], "drain": ["y"]}}',
            "no argument has {worker}",
        ),
    ],
)
def test_settings_of_drivers_say_what_is_wrong(text, says):
    with pytest.raises(SettingsError, match=r"autoscaler\.drivers") as refused:
        AutoscalerSettings.load(drivers=text)

    assert says in str(refused.value)


def test_drivers_are_read_by_name():
    text = '{"here": {"kind": "local", "application": "a:b", "arguments": ["--slots", "3"]}, "x": {"kind": "command", "command": ["s", "{workers}"]}}'

    found = parse_drivers(text)

    assert found == {"here": LocalSpec("a:b", ("--slots", "3")), "x": CommandSpec(("s", "{workers}"))}
    assert parse_drivers("") == {}


async def test_a_command_gets_its_values_as_parts_of_arguments_and_no_shell(tmp_path):
    out = tmp_path / "out"
    script = f'printf "%s\\n" "$@" > {out}'
    spec = CommandSpec(("/bin/sh", "-c", script, "sh", "--name={deployment}", "{pool}", "{workers}"))
    pool = Pool(**{**pool_fields(), "driver_settings": {"deployment": "a;rm"}})

    await CommandDriver(spec).ensure(Order(pool, 3, 1))

    assert out.read_text().splitlines() == ["--name=a;rm", "mail", "3"]


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (
            ("/bin/sh", "-c", "echo first >&2; echo 'no quota' >&2; exit 3", "{workers}"),
            "ended with code 3: no quota",
        ),
        (("/no/such", "{workers}"), "cannot be started: No such file"),
        (("/bin/true", "{cluster}", "{workers}"), "no driver setting 'cluster'"),
    ],
)
async def test_a_command_that_fails_says_why(command, says):
    with pytest.raises(DriverError, match=says):
        await CommandDriver(CommandSpec(command)).ensure(Order(POOL, 3, 1))


async def test_a_command_that_hangs_is_killed_with_what_it_started(tmp_path):
    pid_file = tmp_path / "pid"
    script = f"/bin/sh -c 'echo $$ > {pid_file}; exec tail -f /dev/null' & wait"
    driver = CommandDriver(CommandSpec(("/bin/sh", "-c", script, "{workers}")))
    running = asyncio.ensure_future(driver.ensure(Order(POOL, 3, 1)))
    await until(lambda: pid_file.exists() and pid_file.read_text().strip())

    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    pid = int(pid_file.read_text())
    await until(lambda: not is_alive(pid))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
