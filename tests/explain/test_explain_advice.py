"""Each command that Explain advises is run as it is printed: it works, it helps where it says so, and it erases nothing."""

import ast
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

import duly
import duly_frontend
from duly_core.events.rules import EventWait
from duly_core.gates.breakers import NewBreaker, judge_breakers
from duly_core.gates.cache import GateCache
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_core.tasks.turns import find_fair_lambdas
from duly_core.tasks.waiting import end_waiting
from duly_frontend.explain import clocks as explain_clocks
from duly_frontend.explain import gates as explain_gates
from duly_frontend.explain import held as explain_held
from duly_frontend.explain import hosts as explain_hosts
from duly_frontend.explain import labels as explain_labels
from duly_frontend.explain import lambdas as explain_lambdas
from duly_frontend.explain import pending as explain_pending
from duly_frontend.explain import pools as explain_pools
from duly_frontend.explain import slots as explain_slots
from duly_frontend.explain import text as explain_text
from duly_frontend.explain import turns as explain_turns
from duly_frontend.explain import units as explain_units
from duly_frontend.explain import waiting as explain_waiting
from duly_store_consumer.gate_loop import GateLoop
from duly_wire.enums import Outcome, ReasonKind
from duly_wire.v1 import fleet_pb2_grpc
from tests.explain.test_explain_reasons import a_report, pick, text_of, write
from tests.fixtures import whole
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.task_states import HEARTBEAT_TIMEOUT, LAMBDA, SECOND

MINUTE = timedelta(minutes=1)
OTHERS = {"__init__", "breaker_history", "conditions", "event_kinds", "history", "ramps", "service", "text"}
MODULES = (
    explain_clocks,
    explain_gates,
    explain_held,
    explain_hosts,
    explain_labels,
    explain_lambdas,
    explain_pending,
    explain_pools,
    explain_slots,
    explain_turns,
    explain_units,
    explain_waiting,
)
CHANGES = {
    "cancel",
    "redrive",
    "lambdas restore",
    "sessions unblock",
    "events send",
    "resources set",
    "gates delete",
    "update",
}
"""Commands after which the reason must be gone; the others show something."""
_RATE = duly.Rate(1000, period=SECOND, burst=10)


@dataclass(frozen=True)
class Case:
    """A situation, and what Explain advises in it."""

    make: Callable[["World"], Awaitable[object]]
    kind: ReasonKind
    sites: tuple[str, ...]
    """Where the code names the commands, in the order of the text: MODULE.FUNCTION VERB."""


@dataclass
class World:
    """What a case makes its situation of."""

    client: duly.AsyncClient
    states: object
    clock: object
    store: object
    dsn: str
    fleet: object

    async def full(self, capacity):
        """A resource with a rate, a burst and a note, all of whose units are taken; the next task."""
        await self.client.put_resource("database", capacity, rate=_RATE, note="20 connections")
        for _ in range(capacity):
            await self.client.schedule(LAMBDA, resources=["database"])
        task = await self.client.schedule(LAMBDA, resources=["database"])
        await pick(self.states)
        return task

    async def failed(self, outcome, **fields):
        task = await self.client.schedule(LAMBDA)
        (claimed,) = await pick(self.states)
        await write(self.states, claimed, outcome, **fields)
        return task

    async def without_lambda(self):
        task = await self.client.schedule(LAMBDA)
        self.sql("delete from lambda")
        return task

    def sql(self, text, *parameters):
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute(text, parameters)


def one_slot(host_id, served):
    """The report of a host with one Executor of one slot."""
    executor = {"executor_id": f"{host_id}/0", "processes": 1, "slots": 1, "lambda_set": 0}
    report = a_report(host_id, "rack-1", served, interval=600)
    report.executors.add(**executor)
    return report


async def full_resource(world):
    return await world.full(2)


async def not_parked_yet(world):
    await world.client.put_resource("database", 1, rate=_RATE, note="20 connections")
    await world.client.schedule(LAMBDA, resources=["database"])
    await pick(world.states)
    return await world.client.schedule(LAMBDA, resources=["database"])


async def resource_of_zero_units(world):
    return await world.full(0)


async def rate(world):
    await world.client.put_resource(
        "mail", 20, rate=duly.Rate(1, period=timedelta(hours=1), burst=2), note="what the provider allows"
    )
    tasks = [await world.client.schedule(LAMBDA, resources=["mail"]) for _ in range(3)]
    await pick(world.states)
    return tasks[-1]


async def rate_of_nothing_known(world):
    task = await rate(world)
    world.sql("delete from resource")
    return task


async def paused(world):
    await world.client.put_gate(
        "black-friday", duly.GateKind.PAUSE, LAMBDA, reason="too much mail", duration=MINUTE, owner="ann"
    )
    return await world.client.schedule(LAMBDA)


async def gate_that_is_gone(world):
    await world.client.put_gate("spring", duly.GateKind.PAUSE, LAMBDA, collection="spring")
    task = await world.client.schedule(LAMBDA, collection="spring")
    cache = GateCache(world.store)
    await cache.run_once()
    await GateLoop(world.store, cache, lambda: [LAMBDA], lambda *_: None, has_queues=False).run_once()
    await world.client.delete_gate("spring")
    return task


async def open_breaker(world):
    await whole.put_breaker(world.store, NewBreaker(LAMBDA, 0.5, 10, MINUTE, MINUTE, 3, "ann", ""))
    task = await world.client.schedule(LAMBDA)
    await world.clock.tick(5 * SECOND)
    world.sql(
        "insert into breaker_count (lambda, second, ended, failed)"
        " values (%s, date_trunc('second', duly_now()) - interval '2 s', 20, 20)",
        LAMBDA,
    )
    await judge_breakers(world.store, [LAMBDA])
    return task


async def blocked_session(world):
    session = duly.Session("ann smith", on_failure=duly.SessionPolicy.BLOCK)
    await world.client.schedule(LAMBDA, session=session)
    second = await world.client.schedule(LAMBDA, session="ann smith")
    await world.states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    return second


async def in_a_session(world):
    await world.client.schedule(LAMBDA, session="vlan-7")
    return await world.client.schedule(LAMBDA, session="vlan-7")


async def failing_session(world):
    rest = duly.Session("vlan-7", on_failure=duly.SessionPolicy.FAIL_REST)
    await world.client.schedule(LAMBDA, session=rest)
    second = await world.client.schedule(LAMBDA, session=rest)
    await world.states.end_all_that_may_run(Outcome.FATAL_FAILURE)
    return second


async def in_a_graph(world):
    async with world.client.graph("discovery") as g:
        a = g.task(LAMBDA, label="a")
        g.task(LAMBDA, label="last", after=a)
    return (await world.client.get_graph(g.scheduled)).nodes["last"].task_id


async def dropped_from_a_graph(world):
    async with world.client.graph("discovery") as g:
        a = g.task(LAMBDA, label="a")
        g.task(LAMBDA, label="alarm", after=a.failed)
    task_id = (await world.client.get_graph(g.scheduled)).nodes["alarm"].task_id
    await end(world.store, await claim_work(world.store))
    await end_waiting(world.store, 100)
    return task_id


async def deleted_lambda(world):
    task = await world.without_lambda()
    world.sql("insert into deleted_lambda values (%s, 'team', '1', 1, duly_now(), 'ann')", LAMBDA)
    return task


async def unknown_version(world):
    await world.states.register(f"{LAMBDA}@7")
    task = await world.client.schedule(f"{LAMBDA}@7")
    world.sql("delete from lambda_declaration")
    return task


async def expired(world):
    task = await world.client.schedule(LAMBDA, expires_at=datetime.now(UTC) + MINUTE)
    await world.clock.tick(2 * MINUTE)
    return task


async def backoff(world):
    return await world.failed(Outcome.RETRIABLE_FAILURE, failure_message="x", retry_after=MINUTE)


async def served(world):
    await world.fleet.ReportHost(a_report("rack-1:1:a", "rack-1", LAMBDA, interval=600))


async def backlog(world):
    await served(world)
    await world.client.schedule(LAMBDA)
    return await world.client.schedule(LAMBDA)


async def turns_before(world):
    await served(world)
    await world.client.schedule(LAMBDA, fair_key="ada")
    await world.client.schedule(LAMBDA, fair_key="bob")
    task = await world.client.schedule(LAMBDA, fair_key="ada")
    await find_fair_lambdas(world.store)
    return task


async def ready(world):
    await served(world)
    task = await world.client.schedule(LAMBDA)
    await world.clock.tick(10 * SECOND)
    return task


async def slots_taken(world):
    await world.fleet.ReportHost(one_slot("rack-1:1:a", LAMBDA))
    await world.client.schedule(LAMBDA)
    await pick(world.states, holder="rack-1:1:a/0")
    task = await world.client.schedule(LAMBDA)
    await world.clock.tick(11 * SECOND)
    return task


async def cancel_asked(world):
    task = await world.states.processing()
    await world.client.cancel(text_of(task.task_id))
    return text_of(task.task_id)


async def handed_over(world):
    task = await world.states.processing()
    result = Result(
        task.task_id,
        task.token,
        Outcome.COMPLETE_LATER,
        completion_hash=bytes(32),
        complete_within=MINUTE,
    )
    await set_results(world.states.store, [result])
    return text_of(task.task_id)


async def waits_for_an_event(world):
    task = await world.states.processing()
    wait = EventWait("answer", ("approved",), False, MINUTE)
    await set_results(
        world.states.store, [Result(task.task_id, task.token, Outcome.WAIT_FOR_EVENT, event_wait=wait)]
    )
    return text_of(task.task_id)


async def enqueued(world):
    return text_of((await world.states.enqueued()).task_id)


async def silent(world):
    task = await world.states.processing()
    await world.clock.tick(HEARTBEAT_TIMEOUT + 2 * SECOND)
    return text_of(task.task_id)


async def nobody_claims(world):
    task = await world.client.schedule(LAMBDA)
    await world.clock.tick(MINUTE)
    return task


async def a_pool_serves_it(world):
    await world.client.put_pool("mail", lambdas=[LAMBDA], maximum=9, driver="local")
    return await nobody_claims(world)


async def no_live_host(world):
    await world.fleet.ReportHost(a_report("other:1:a", "rack-2", "report.make"))
    return await world.client.schedule(LAMBDA)


async def no_host_with_the_label(world):
    await world.fleet.ReportHost(a_report("rack-1:1:a", "rack-1", LAMBDA))
    return await world.client.schedule(LAMBDA, requires=["gpu"])


async def last_host_is_silent(world):
    await world.fleet.ReportHost(a_report("rack-1:1:a", "rack-1", LAMBDA))
    await world.clock.tick(5 * MINUTE)
    return await world.client.schedule(LAMBDA)


async def on_a_host_whose_clock_is_off(world):
    report = a_report("rack-1:1:a", "rack-1", LAMBDA)
    report.executors.add(executor_id="test-host")
    report.clock_ahead.FromTimedelta(MINUTE)
    await world.fleet.ReportHost(report)
    return text_of((await world.states.processing()).task_id)


async def dead_letter(world):
    return await world.failed(Outcome.FATAL_FAILURE, failure_message="no such user")


async def unregistered(world):
    return await world.without_lambda()


CASES = [
    Case(full_resource, ReasonKind.RESOURCE, ("units._more_units resources",)),
    Case(not_parked_yet, ReasonKind.RESOURCE, ("units._more_units resources",)),
    Case(
        resource_of_zero_units,
        ReasonKind.RESOURCE,
        ("units._more_units audit", "units._more_units resources"),
    ),
    Case(rate, ReasonKind.RATE, ("units.faster_rates resources set",)),
    Case(rate_of_nothing_known, ReasonKind.RATE, ("units.faster_rates resources list",)),
    Case(paused, ReasonKind.GATE, ("gates._of_gate gates",)),
    Case(gate_that_is_gone, ReasonKind.GATE, ("gates.gate_reasons health",)),
    Case(
        open_breaker,
        ReasonKind.GATE,
        ("gates._of_breaker dead-letters", "gates._of_breaker list"),
    ),
    Case(
        blocked_session,
        ReasonKind.SESSION_BLOCKED,
        ("waiting._in_session redrive", "waiting._in_session sessions"),
    ),
    Case(in_a_session, ReasonKind.SESSION, ("waiting._in_session explain",)),
    Case(failing_session, ReasonKind.ENDS_SOON, ("waiting.waiting_reasons health",)),
    Case(in_a_graph, ReasonKind.GRAPH, ("waiting._in_graph explain",)),
    Case(dropped_from_a_graph, ReasonKind.ENDED, ("held.ended_reasons graph",)),
    Case(
        deleted_lambda,
        ReasonKind.LAMBDA_DELETED,
        ("lambdas.lambda_reasons lambdas", "lambdas.lambda_reasons cancel"),
    ),
    Case(unknown_version, ReasonKind.VERSION_UNKNOWN, ("lambdas.lambda_reasons cancel",)),
    Case(unregistered, ReasonKind.LAMBDA_UNKNOWN, ("lambdas.lambda_reasons cancel",)),
    Case(expired, ReasonKind.ENDS_SOON, ("pending.expiry_reasons health",)),
    Case(backoff, ReasonKind.BACKOFF, ("pending._backoff lambdas",)),
    Case(backlog, ReasonKind.BACKLOG, ("pending._raise_priority update",)),
    Case(turns_before, ReasonKind.BACKLOG, ("turns.turn_reason lambdas fair",)),
    Case(ready, ReasonKind.READY, ("pending._ready health",)),
    Case(slots_taken, ReasonKind.SLOTS_TAKEN, ("slots.slot_reasons cancel",)),
    Case(handed_over, ReasonKind.COMPLETION, ("waiting._for_completion cancel",)),
    Case(waits_for_an_event, ReasonKind.EVENT, ("waiting._for_event events send",)),
    Case(cancel_asked, ReasonKind.CANCEL_REQUESTED, ("held._cancel_requested cancel",)),
    Case(enqueued, ReasonKind.ENQUEUED, ("pending.enqueued_reasons backlog",)),
    Case(silent, ReasonKind.HOLDER_SILENT, ("held.held_reasons health",)),
    Case(nobody_claims, ReasonKind.NO_HOST, ("hosts.host_reasons health",)),
    Case(a_pool_serves_it, ReasonKind.NO_HOST, ("pools._action autoscaler",)),
    Case(no_live_host, ReasonKind.NO_HOST, ("hosts._start hosts",)),
    Case(no_host_with_the_label, ReasonKind.NO_HOST, ("labels.label_reasons hosts",)),
    Case(last_host_is_silent, ReasonKind.NO_HOST, ("hosts._start hosts",)),
    Case(on_a_host_whose_clock_is_off, ReasonKind.CLOCK_SKEW, ("clocks.skew_of_holder hosts",)),
    Case(dead_letter, ReasonKind.ENDED, ("held.ended_reasons redrive",)),
]


@pytest.fixture
async def world(client, task_states, clock, store, dsn, frontend):
    await task_states.register(max_attempts=5)
    fleet = fleet_pb2_grpc.FleetServiceStub(frontend.channel)
    return World(client, task_states, clock, store, dsn, fleet)


@pytest.fixture
def named(monkeypatch):
    """Where the code named commands."""
    sites = []

    def noted(*words):
        caller = sys._getframe(1)
        while caller.f_code.co_name.startswith("<"):  # a comprehension
            caller = caller.f_back
        module = caller.f_globals["__name__"].rpartition(".")[2]
        sites.append(f"{module}.{caller.f_code.co_name} {' '.join(words[:2])}")
        return explain_text.command(*words)

    for module in MODULES:
        monkeypatch.setattr(module, "command", noted)
    return sites


def commands_of(action):
    return re.findall(r"`(duly [^`]*)`", action)


def verb_of(words):
    return " ".join(words[1:3]) if " ".join(words[1:3]) in CHANGES else words[1]


async def objects(client):
    """What operators set, without what changes by itself."""
    resources = {
        each.name: (each.capacity, each.rate, each.per_key, each.note) for each in await client.resources()
    }
    gates = {each.name: (each.kind, each.lambda_name, each.reason) for each in await client.gates()}
    return resources, gates, [each.lambda_name for each in await client.breakers()]


@pytest.mark.parametrize(
    ("case", "place"),
    [
        pytest.param(case, place, id=f"{case.make.__name__}-{place}")
        for case in CASES
        for place in range(len(case.sites))
    ],
)
async def test_an_advised_command_works_as_it_is_printed(world, client, named, run_duly, case, place):
    task = await case.make(world)
    (before,) = [each for each in (await client.explain(task)).reasons if each.kind is case.kind][:1]
    printed = commands_of(before.action)
    resources, gates, breakers = await objects(client)
    words = shlex.split(printed[place])
    sites = [each for each in named if each.startswith(case.sites[place])]

    shown = await run_duly("explain", str(getattr(task, "task_id", task)))
    done = await run_duly(*words[1:])
    after = (await client.explain(task)).reasons

    assert sites, named
    assert len(printed) == len(case.sites), before.action
    assert printed[place] in shown.stdout  # on one line
    assert done.exit_code == 0, done.output
    if verb_of(words) in CHANGES:
        assert (before.kind, before.text) not in [(each.kind, each.text) for each in after]
    now, gates_now, breakers_now = await objects(client)
    assert breakers_now == breakers
    assert gates_now == {name: gate for name, gate in gates.items() if words[1:3] != ["gates", "delete"]}
    for name, (capacity, speed, per_key, note) in resources.items():
        new_capacity, new_speed, *rest = now[name]
        assert rest == [per_key, note]
        assert (speed and speed.burst) == (new_speed and new_speed.burst)
        is_rate = "--rate" in words
        assert (speed == new_speed) is not is_rate
        assert (capacity == new_capacity) is (is_rate or words[1:3] != ["resources", "set"])


async def test_more_units_and_a_faster_rate_let_the_task_run(world, client, run_duly):
    parked = await world.full(0)
    put_off = await rate(world)
    for task, kind in ((parked, ReasonKind.RESOURCE), (put_off, ReasonKind.RATE)):
        (reason,) = [each for each in (await client.explain(task)).reasons if each.kind is kind]

        *_, advised = commands_of(reason.action)
        assert (await run_duly(*shlex.split(advised)[1:])).exit_code == 0

        assert kind not in [each.kind for each in (await client.explain(task)).reasons]


def calls_of_command(module):
    """Yield where a module names commands: MODULE.FUNCTION VERB, as far as the words are literals."""
    name = module.__name__.rpartition(".")[2]
    tree = ast.parse(Path(module.__file__).read_text())
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "command":
                    words = [each.value for each in call.args if isinstance(each, ast.Constant)]
                    yield f"{name}.{function.name} {' '.join(words[:2])}"


def test_every_command_that_explain_names_has_a_case():
    tried = {site for case in CASES for site in case.sites}
    untried = [
        site
        for module in MODULES
        for site in calls_of_command(module)
        if not any(site.startswith(each) for each in tried)
    ]

    assert untried == []


def test_no_reason_names_a_command_in_another_way():
    folder = Path(duly_frontend.__file__).parent / "explain"
    texts = [
        (path.stem, node.value)
        for path in sorted(folder.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    modules = {module.__name__.rpartition(".")[2] for module in MODULES} | OTHERS

    by_hand = [each for each in texts if re.search(r"\bduly [a-z-]+", each[1]) and each[0] != "text"]

    assert {path.stem for path in folder.glob("*.py")} == modules
    assert by_hand == []
