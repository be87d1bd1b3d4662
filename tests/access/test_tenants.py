"""Each name that tenants share: what another tenant can touch, delay or learn by it. docs/operators/security.md has the rows."""

import asyncio
import hashlib
import re
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

import duly
from duly import transactional
from duly.graphs.new_graph import NewGraph
from duly_core.access import store as access
from duly_core.access.authorizer import Authorizer
from duly_core.access.cache import AccessCache
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.config.live_sections import LiveSloSettings
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.client_role import grant
from duly_core.slo.store import promised_by_lambda
from duly_core.upkeep.retention import Retention
from duly_wire.ids import new_task_id
from duly_wire.v1 import fleet_pb2_grpc, frontend_pb2, graphs_pb2, hsc_pb2, hsc_pb2_grpc
from tests.fixtures.services import refusal, serve_frontend, serve_hsc
from tests.fleet.test_fleet_hosts import a_report

SECURITY = Path(__file__).parents[2] / "docs/operators/security.md"
OURS, THEIRS = "shop/order.price", "a.send"
NAME = "nightly"
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ROLES = (Role.CLIENT, Role.OWNER, Role.HOST, Role.OPERATOR)
GRANTS = [
    Grant("ops", Role.OPERATOR, "*"),
    Grant("rival", Role.CLIENT, OURS),
    *(Grant("shop", role, "shop/*") for role in ROLES),
    Grant("shop", Role.CLIENT, "evil/x"),
    *(Grant("shared", Role.HOST, pattern) for pattern in ("shop/*", "evil/x")),
    *(Grant("mallory", role, pattern) for role in ROLES for pattern in ("a.*", "s*", "evil/*")),
]
CASES = {}
"""By the name of the row."""


def row(name):
    """Say which row of the table a case tries."""

    def keep(case):
        CASES[name] = case
        return case

    return keep


def headers(principal):
    return [("authorization", f"Bearer duly_{principal}_secret")]


class Tenants:
    """A Frontend and an HSC that ask who calls, and callers."""

    def __init__(self, store, frontend, hsc, stack, task_states):
        self.store, self.frontend, self.hsc, self.task_states = store, frontend, hsc, task_states
        self._stack = stack

    async def client(self, principal):
        made = duly.AsyncClient(self.frontend.address, token=f"duly_{principal}_secret")
        return await self._stack.enter_async_context(made)

    async def claim(self, principal, name, holder="host"):
        """Claim what may run of a lambda."""
        request = hsc_pb2.ClaimWorkRequest(
            holder=holder, lambdas=[name], max_tasks=10, token_prefix=new_task_id().bytes[:14]
        )
        stub = hsc_pb2_grpc.HscServiceStub(self.hsc.channel)
        return (await stub.ClaimWork(request, metadata=headers(principal))).tasks


@pytest.fixture
async def tenants(store, task_states):
    await access.add_grants(store, GRANTS)
    for name in {each.principal for each in GRANTS}:
        digest = hashlib.sha256(f"duly_{name}_secret".encode()).digest()
        await access.add_token(store, digest, name, name)
    for name in (OURS, THEIRS, "evil/x"):
        await task_states.register(name, max_attempts=1)
    authorizer = Authorizer(AccessCache(store))
    async with (
        serve_frontend(store, authorizer=authorizer) as frontend,
        serve_hsc(store, authorizer=authorizer) as hsc,
        AsyncExitStack() as stack,
    ):
        yield Tenants(store, frontend, hsc, stack, task_states)


def documented_rows():
    text = SECURITY.read_text(encoding="utf-8")
    section = text.split("## What another tenant can touch, delay or learn\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("|")]
    return [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", name) for name in rows[2:]]


def test_each_row_of_the_table_has_a_case_and_each_case_a_row():
    assert documented_rows() == [*CASES]


@pytest.mark.parametrize("name", documented_rows())
async def test_a_row_is_true(name, tenants):
    await CASES[name](tenants, await tenants.client("shop"), await tenants.client("mallory"))


@row("session key")
async def a_session_ends_at_its_namespace(tenants, shop, mallory):
    fails = duly.Session("K", on_failure=duly.SessionPolicy.FAIL_REST)
    for each in ("evil/x", THEIRS):
        await mallory.schedule(each, session=fails)
        await mallory.schedule(each, session="K", delay=DAY)
    ours = await shop.schedule(OURS, session="K")
    waiting = await shop.schedule(OURS, session="K")
    for claimed in await tenants.claim("mallory", "evil/x"):
        result = hsc_pb2.TaskResult(claim=claimed.claim, outcome=hsc_pb2.OUTCOME_FATAL_FAILURE)
        stub = hsc_pb2_grpc.HscServiceStub(tenants.hsc.channel)
        await stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]), metadata=headers("mallory"))

    assert len(await tenants.claim("shop", OURS)) == 1
    state = await shop.get_session("K", namespace="shop")
    assert (state.namespace, state.length, state.head_task_id) == ("shop", 2, ours.task_id)
    assert state.waiting_task_ids == (waiting.task_id,)
    assert [each.key async for each in shop.sessions(namespace="shop")] == ["K"]
    assert await mallory.get_session("K", namespace="shop") is None
    with pytest.raises(duly.SessionNotBlockedError):
        await mallory.unblock_session("K", namespace="shop")
    for namespace in (None, "shop", ""):
        with pytest.raises(duly.PermissionDeniedError):
            [each async for each in mallory.sessions(namespace=namespace)]


@row("lambda")
async def a_prefix_ends_at_its_namespace(tenants, shop, mallory):
    await shop.schedule(OURS)

    for call in (mallory.schedule(OURS), mallory.get_lambda(OURS), mallory.backlog([OURS])):
        with pytest.raises(duly.DulyError) as known:
            await call
        assert isinstance(known.value, duly.PermissionDeniedError | duly.UnknownLambdaError)
    assert OURS not in {each.name for each in await mallory.lambdas()}
    assert [each async for each in mallory.list()] == []
    assert await mallory.cancel_where() == 0
    with pytest.raises(duly.PermissionDeniedError):
        await mallory.put_gate("held", duly.GateKind.PAUSE, "shop/*")
    await mallory.put_gate("held", duly.GateKind.PAUSE, "s*")
    assert len(await tenants.claim("shop", OURS)) == 1


@row("idempotency key")
async def a_key_belongs_to_its_lambda(tenants, shop, mallory):
    theirs = await mallory.schedule(THEIRS, {"n": 1}, idempotency_key="once")

    ours = await shop.schedule(OURS, {"n": 2}, idempotency_key="once")
    again = await shop.schedule(OURS, {"n": 2}, idempotency_key="once")

    # a client of the same lambda shares its keys
    rival = await tenants.client("rival")
    repeated = await rival.schedule(OURS, {"n": 2}, idempotency_key="once")

    assert ours.task_id != theirs.task_id
    assert again.task_id == repeated.task_id == ours.task_id
    with pytest.raises(duly.KeyConflictError):
        await rival.schedule(OURS, {"n": 3}, idempotency_key="once")
    key = duly.TaskKey(OURS, "once")
    assert (await shop.get(key)).task_id == ours.task_id
    for named in (ours, key):
        with pytest.raises(duly.TaskNotFoundError):
            await rival.get(named)


@row("task id, graph id")
async def an_id_that_is_taken_is_refused_and_tells_nothing_else(tenants, shop, mallory):
    ours = await shop.schedule(OURS, {"n": 1})
    async with shop.graph("g") as graph:
        graph.task(OURS)
    stolen = NewGraph("g", graph_id=graph.graph_id)
    stolen.task(THEIRS)

    asked = frontend_pb2.NewTask(task_id=ours.task_id, payload=b'{"n":1}', **{"lambda": THEIRS})
    with pytest.raises(duly.KeyConflictError):
        await mallory.send(asked, timeout=HOUR)
    with pytest.raises(duly.KeyConflictError):
        await mallory.schedule_graph(stolen)
    for call in (mallory.get(ours), mallory.cancel(ours), mallory.explain(ours)):
        with pytest.raises(duly.TaskNotFoundError):
            await call
    with pytest.raises(duly.GraphNotFoundError):
        await mallory.cancel_graph(graph.graph_id)
    assert (await shop.get(ours)).payload == {"n": 1}


@row("calendar")
async def a_calendar_with_a_namespace_is_unknown_to_others(tenants, shop, mallory):
    ops = await tenants.client("ops")
    await ops.put_calendar("office", holidays=["DE"])
    await shop.put_calendar("shop/office", holidays=["FR"])
    await shop.create_table("shop.daily", OURS, cron="@daily", calendar="shop/office")
    await shop.create_table(
        "shop.weekly", OURS, cron="@weekly", calendar="office", on_closed=duly.OnClosed.NEXT
    )

    with pytest.raises(duly.CalendarNotFoundError):
        await mallory.create_table(NAME, "evil/x", cron="@daily", calendar="shop/office")
    for name in ("office", "shop/office"):
        with pytest.raises(duly.PermissionDeniedError):
            await mallory.put_calendar(name, note="mine")
        with pytest.raises(duly.PermissionDeniedError):
            await mallory.delete_calendar(name)
    with pytest.raises(duly.CalendarNotFoundError):
        await mallory.calendar("shop/office")

    assert [each.name for each in await mallory.calendars()] == ["office"]
    assert (await mallory.calendar("office")).time_tables == ()
    assert (await shop.calendar("office")).time_tables == ("shop.weekly",)
    assert (await shop.calendar("shop/office")).time_tables == ("shop.daily",)


@row("resource")
async def a_resource_with_a_namespace_is_unknown_to_others(tenants, shop, mallory):
    ops = await tenants.client("ops")
    await ops.put_resource("shop/database", 1)
    await ops.put_resource("shared", 1)

    with pytest.raises(duly.UnknownResourceError):
        await mallory.schedule("evil/x", resources=["shop/database"])
    await mallory.schedule("evil/x", resources=["shared"])
    await tenants.claim("mallory", "evil/x")
    await shop.schedule(OURS, resources=["shop/database"])
    parked = await shop.schedule(OURS, resources=["shared"])

    assert len(await tenants.claim("shop", OURS)) == 1
    assert (await shop.explain(parked)).reasons[0].kind is duly.ReasonKind.RESOURCE
    assert [each.name for each in await mallory.resources()] == ["shared"]
    assert [each.name for each in await shop.resources()] == ["shared", "shop/database"]
    with pytest.raises(duly.PermissionDeniedError):
        await mallory.put_resource("shared", 0)


@row("quota of a lambda or a namespace")
async def a_quota_counts_its_own_namespace(tenants, shop, mallory):
    ops = await tenants.client("ops")
    await ops.put_resource("namespace:default", 1)
    for _ in range(2):
        await mallory.schedule(THEIRS)
    await shop.schedule(OURS)

    assert len(await tenants.claim("mallory", THEIRS)) == 1
    assert len(await tenants.claim("shop", OURS)) == 1
    for name in ("namespace:shop", f"lambda:{OURS}", f"schedule:{OURS}"):
        with pytest.raises(duly.PermissionDeniedError):
            await mallory.put_resource(name, 0)
    assert [each.name for each in await mallory.resources()] == []
    registered = await lambdas.register(tenants.store, [LambdaPolicy("default.x")])
    assert registered
    with pytest.raises(psycopg.errors.CheckViolation):
        await lambdas.register(tenants.store, [LambdaPolicy("default/x")])


@row("domain")
async def a_domain_has_one_quota_for_all(tenants, shop, mallory):
    await tenants.task_states.register("evil/x@~lab", max_attempts=1)
    await tenants.task_states.register(f"{OURS}@~lab", max_attempts=1)
    ops = await tenants.client("ops")
    await ops.put_resource("domain:lab", 1)
    await mallory.schedule("evil/x", domain="lab")
    parked = await shop.schedule(OURS, domain="lab")
    await shop.schedule(OURS)

    assert len(await tenants.claim("mallory", "evil/x@~lab")) == 1
    assert await tenants.claim("shop", f"{OURS}@~lab") == []
    assert len(await tenants.claim("shop", OURS)) == 1
    assert (await shop.explain(parked)).reasons[0].kind is duly.ReasonKind.RESOURCE
    (seen,) = await mallory.resources()
    assert (seen.name, seen.used) == ("domain:lab", 1)
    with pytest.raises(duly.PermissionDeniedError):
        await mallory.put_resource("domain:lab", 0)


@row("node of another tenant's graph")
async def an_added_node_waits_for_what_its_worker_may_know(tenants, shop, mallory):
    graph = NewGraph("order")
    given = graph.task(OURS, label="given")
    graph.task(OURS, label="secret")
    for label in ("spy", "handle"):
        graph.task("evil/x", label=label)
    graph.task("evil/x", label="helper", after=given.finished)
    receipt = await shop.schedule_graph(graph)
    stub = hsc_pb2_grpc.HscServiceStub(tenants.hsc.channel)

    async def end(principal, name, *, outcome=hsc_pb2.OUTCOME_SUCCESS, **after):
        """End what is claimed of a lambda, each with a node that waits for what `after` says of its label."""
        labels = {node.task_id: label for label, node in (await shop.get_graph(receipt)).nodes.items()}
        async with asyncio.timeout(20):
            while not (tasks := await tenants.claim(principal, name)):  # the HSC hears of what became due
                pass
        for claimed in tasks:
            label = labels[str(UUID(bytes=claimed.claim.task_id))]
            edges = [
                graphs_pb2.GraphEdge(label=source, condition=how) for source, how in after.get(label, ())
            ]
            task = {"lambda": "evil/x", "task_id": str(new_task_id())}
            node = graphs_pb2.GraphNode(label=f"after-{label}", task=task, waits_for=edges)
            result = hsc_pb2.TaskResult(claim=claimed.claim, outcome=outcome, nodes=[node] if edges else [])
            await stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]), metadata=headers(principal))

    succeeded, failed = duly.EdgeCondition.SUCCEEDED, duly.EdgeCondition.FAILED
    await end("mallory", "evil/x", spy=[("secret", succeeded)], handle=[("secret", failed)])
    await end("shop", OURS, outcome=hsc_pb2.OUTCOME_FATAL_FAILURE)
    await end("mallory", "evil/x", helper=[("given", failed), ("helper", succeeded)])

    nodes = (await shop.get_graph(receipt)).nodes
    assert nodes.keys() == {"given", "secret", "spy", "handle", "helper", "after-helper"}
    for label in ("spy", "handle"):
        task = await shop.get(nodes[label].task_id)
        assert task.status is duly.TaskStatus.FATAL_FAILURE
        assert "no node has the label 'secret'" in task.failure.message
    with pytest.raises(duly.GraphNotFoundError):
        await mallory.get_graph(receipt)


@row("time table, graph definition")
async def a_name_that_is_taken_can_be_neither_read_nor_replaced(tenants, shop, mallory):
    await shop.create_table(NAME, OURS, every=HOUR)
    ours, theirs = NewGraph(NAME), NewGraph(NAME)
    ours.task(OURS)
    theirs.task(THEIRS)
    await shop.put_graph_definition(ours)

    with pytest.raises(duly.PermissionDeniedError):
        await mallory.create_table(NAME, THEIRS, every=HOUR)
    with pytest.raises(duly.PermissionDeniedError):
        await mallory.put_graph_definition(theirs)
    for call in (mallory.table(NAME), mallory.pause_table(NAME), mallory.delete_table(NAME)):
        with pytest.raises(duly.TimeTableNotFoundError):
            await call
    with pytest.raises(duly.GraphNotFoundError):
        await mallory.get_graph_definition(NAME)
    assert (await mallory.tables(), await mallory.graph_definitions()) == ([], [])
    assert (await shop.table(NAME)).lambda_name == OURS


@row("gate")
async def a_gate_hits_what_its_owner_may_operate(tenants, shop, mallory):
    await shop.put_gate(NAME, duly.GateKind.PAUSE, OURS, session="K")

    with pytest.raises(duly.PermissionDeniedError, match="somebody else set"):
        await mallory.put_gate(NAME, duly.GateKind.PAUSE, THEIRS)
    with pytest.raises(duly.UnknownGateError):
        await mallory.delete_gate(NAME)
    assert await mallory.gates() == []
    await mallory.put_gate("theirs", duly.GateKind.DROP, "evil/*", session="K2", collection="c")
    await shop.schedule(OURS, session="K2", collection="c")
    assert len(await tenants.claim("shop", OURS)) == 1
    async with tenants.store.connection() as connection:
        await connection.execute(
            "insert into gate (name, kind, lambda, owner, reason, created_at) "
            "select 'g' || number, 'pause', 'x', 'x' || number, '', now() from generate_series(1, 898) as number"
        )
    with pytest.raises(duly.InvalidTaskError, match="900"):
        await mallory.put_gate("one-more", duly.GateKind.PAUSE, "evil/*")
    await (await tenants.client("ops")).put_gate("room", duly.GateKind.PAUSE, "*", session="none")


@row("objective")
async def an_objective_is_of_the_lambdas_that_its_setter_operates(tenants, shop, mallory):
    await shop.put_objective(OURS, 0.9, start_within=timedelta(seconds=1))

    for pattern in (OURS, "shop/*"):
        with pytest.raises(duly.PermissionDeniedError):
            await mallory.put_objective(pattern, 0.5, start_within=timedelta(seconds=1))
    with pytest.raises(duly.PermissionDeniedError):
        await mallory.delete_objective(OURS)
    await mallory.put_objective("s*", 0.5, start_within=timedelta(seconds=5))

    assert [each.lambda_name for each in await mallory.objectives()] == ["s*"]
    assert [(each.lambda_name, each.share) for each in await shop.objectives()] == [(OURS, 0.9)]
    promised = await promised_by_lambda(tenants.store, LiveSloSettings())
    assert promised[OURS].pattern == OURS
    async with tenants.store.connection() as connection:
        await connection.execute(
            "insert into start_objective select 'team/' || number, 0.9, '1 s', now() from generate_series(1, 898) as number"
        )
    with pytest.raises(duly.InvalidTaskError, match="900"):
        await mallory.put_objective("evil/*", 0.5, start_within=timedelta(seconds=1))
    await (await tenants.client("ops")).put_objective("evil/*", 0.5, start_within=timedelta(seconds=1))


@row("collection")
async def a_collection_is_of_the_lambdas_that_the_caller_may_reach(tenants, shop, mallory):
    ours = await shop.schedule(OURS, collection="spring", delay=HOUR)
    theirs = await mallory.schedule(THEIRS, collection="spring", delay=HOUR)

    assert [each.task_id async for each in mallory.list(collection="spring")] == [theirs.task_id]
    assert await mallory.cancel_where(collection="spring") == 1
    assert (await shop.get(ours)).status is duly.TaskStatus.NEW


@row("breaker, setting")
async def only_operators_of_all_lambdas_set_them(tenants, shop, mallory):
    for call in (
        mallory.put_breaker(OURS, 0.5),
        mallory.put_breaker(THEIRS, 0.5),
        mallory.put_objective(OURS, 0.5, start_within=timedelta(seconds=1)),
        mallory.delete_objective(OURS),
        mallory.set_settings({"store_consumer.poll_interval": "1s"}),
        mallory.settings(),
    ):
        with pytest.raises(duly.PermissionDeniedError):
            await call
    assert await mallory.breakers() == []


@row("host")
async def a_host_is_of_who_reported_it_first(tenants, shop, mallory):
    stub = fleet_pb2_grpc.FleetServiceStub(tenants.frontend.channel)
    await stub.ReportHost(a_report("rack-1", lambdas=(OURS,)), metadata=headers("shop"))

    refused = await refusal(
        stub.ReportHost(a_report("rack-1", lambdas=("evil/x",)), metadata=headers("mallory"))
    )

    assert refused.code.name == "PERMISSION_DENIED"
    assert [each async for each in mallory.hosts()] == []
    assert [each.host_id async for each in shop.hosts()] == ["rack-1"]


async def test_a_task_without_a_host_names_its_pool_to_those_who_see_pools(tenants):
    ops, mallory = await tenants.client("ops"), await tenants.client("mallory")
    await ops.put_pool("all-tenants", lambdas=["*"], maximum=9, driver="kube")
    theirs = await mallory.schedule("evil/x")

    seen, told = [(await each.explain(theirs)).reasons[0] for each in (ops, mallory)]

    assert seen.kind is told.kind is duly.ReasonKind.NO_HOST
    assert "the pool all-tenants serves it" in seen.text
    assert "pool" not in told.text + told.action


@row("slot of a worker that serves lambdas of several tenants")
async def who_holds_the_slots_is_told_to_those_who_may_see_the_tasks(tenants, shop, mallory):
    ops = await tenants.client("ops")
    fleet = fleet_pb2_grpc.FleetServiceStub(tenants.frontend.channel)
    report = a_report(lambdas=(OURS, "evil/x"))
    report.executors[0].processes = report.executors[0].slots = 1
    await fleet.ReportHost(report, metadata=headers("shared"))
    theirs = await mallory.schedule("evil/x")
    await tenants.claim("mallory", "evil/x", holder=report.executors[0].executor_id)
    ours = await shop.schedule(OURS)
    async with tenants.store.connection() as connection:
        await connection.execute(
            "update task_assoc set next_trigger_at = next_trigger_at - interval '12 s', claimed_at = claimed_at - interval '12 s'"
        )

    seen, told = (await ops.explain(ours)).reasons[0], (await shop.explain(ours)).reasons[0]

    assert seen.kind is told.kind is duly.ReasonKind.SLOTS_TAKEN
    assert [each.task_id for each in seen.tasks] == [theirs.task_id]
    assert f"duly cancel --kill {theirs.task_id}" in seen.action
    assert told.tasks == ()
    assert "evil" not in told.text
    assert "--kill" not in told.action


@row("Executor")
async def the_name_of_an_executor_holds_no_claim(tenants, shop, mallory):
    await shop.schedule(OURS)
    (claimed,) = await tenants.claim("shop", OURS, holder="rack-1/0")

    assert await tenants.claim("mallory", "evil/x", holder="rack-1/0") == []
    stub = hsc_pb2_grpc.HscServiceStub(tenants.hsc.channel)
    guess = hsc_pb2.Claim(task_id=claimed.claim.task_id, token=bytes(16))
    answer = await stub.Heartbeat(
        hsc_pb2.HeartbeatRequest(holder="rack-1/0", items=[hsc_pb2.HeartbeatItem(claim=guess)]),
        metadata=headers("mallory"),
    )
    assert [*answer.verdicts] == [hsc_pb2.HEARTBEAT_VERDICT_LOST_CLAIM]


@row("login of Postgres")
async def a_login_stops_nobody_and_schedules_for_every_lambda(tenants, shop, mallory):
    dsn = tenants.store.settings.dsn
    grant(dsn, "duly_test_tenant")
    with psycopg.connect(dsn, autocommit=True) as login:
        login.execute("set role duly_test_tenant")
        for lock in ("hashtext('duly_lambda')", "1685417082"):
            login.execute(f"select pg_advisory_lock({lock})".encode())
        login.execute("listen duly_due")

        registered = await lambdas.register(tenants.store, [LambdaPolicy("shop/new")])
        month = timedelta(days=30)
        done = await Retention(tenants.store, month, month, DAY).run_once()
        task = transactional.schedule(login, OURS)
        heard = [each.payload for each in login.notifies(timeout=5, stop_after=1)]

        assert registered["shop/new"].before is None
        assert done.added
        assert (await shop.explain(task)).lambda_name == OURS
        assert any(OURS in each for each in heard)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            login.execute("select from turn where name = 'registry' for update")
