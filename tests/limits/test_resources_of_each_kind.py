"""Resources of nodes, of tasks that callbacks schedule, and of ticks: checked as those of `schedule`, and taken at the claim."""

import re
from datetime import timedelta

import pytest

import duly
from duly_core.limits.store import ResourceLimit
from duly_wire.enums import Outcome
from duly_wire.ids import new_task_id
from duly_wire.v1 import frontend_pb2, graphs_pb2, hsc_pb2, registry_pb2, task_pb2
from tests.fixtures import whole
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.task_states import LAMBDA

HOUR = timedelta(hours=1)
BAD = [
    ([duly.ResourceNeed("nobody-knows")], r"no resource 'nobody-knows' is declared"),
    ([duly.ResourceNeed("lambda:x")], r"is a quota"),
    ([duly.ResourceNeed("database", key="k")], r"has no keys"),
    ([duly.ResourceNeed("tenant")], r"key: must be 1 to 255"),
    (["database", "database"], r"is named twice"),
]


@pytest.fixture
async def client(frontend, task_states):
    await task_states.register()
    await whole.put_resource(task_states.store, ResourceLimit("database", 1))
    await whole.put_resource(task_states.store, ResourceLimit("tenant", 1, per_key=True))
    async with duly.AsyncClient(frontend.address) as opened:
        yield opened


def serialized(*needs):
    return task_pb2.ResourceNeeds(
        needs=[task_pb2.ResourceNeed(name=need.name, key=need.key, weight=need.weight) for need in needs]
    ).SerializeToString()


async def succeed(hsc, task, *, children=(), nodes=()):
    claim = hsc_pb2.Claim(task_id=task.task_id, token=task.token)
    result = hsc_pb2.TaskResult(claim=claim, outcome=hsc_pb2.OUTCOME_SUCCESS, children=children, nodes=nodes)
    await hsc.stub.SetResults(hsc_pb2.SetResultsRequest(results=[result]))


async def test_nodes_wait_for_units_once_their_predecessors_let_them_run(client, store):
    async with client.graph("discovery") as g:
        first = g.task(LAMBDA, label="first")
        for number in range(3):
            g.task(LAMBDA, label=f"node-{number}", after=first, resources=["database"])
    await end(store, await claim_work(store))

    at_a_time = []
    while claimed := await claim_work(store):
        at_a_time.append(len(claimed))
        await end(store, claimed)

    assert at_a_time == [1, 1, 1]
    graph = await client.get_graph(g.graph_id)
    assert graph.status is duly.GraphStatus.SUCCEEDED
    assert (await client.get(g.scheduled.task_ids["node-0"])).resources == (duly.ResourceNeed("database"),)


async def test_a_graph_that_is_cancelled_or_fails_fast_takes_its_parked_nodes_away(client, store):
    for fails in (True, False):
        async with client.graph("discovery", fail_fast=True) as g:
            g.task(LAMBDA, label="bad")
            for number in range(2):
                g.task(LAMBDA, label=f"node-{number}", resources=["database"])
        claimed = {task.task_id.hex(): task for task in await claim_work(store)}
        bad = claimed.pop(g.scheduled.task_ids["bad"].replace("-", ""))
        (running,) = claimed.values()

        if fails:
            await end(store, [bad], Outcome.FATAL_FAILURE)
        else:
            await client.cancel_graph(g.graph_id)
            await end(store, [bad])
        await end(store, [running])

        assert await claim_work(store) == []
        assert [(each.used, each.parked) for each in await client.resources() if each.name == "database"] == [
            (0, 0)
        ]


@pytest.mark.parametrize(("resources", "said"), BAD)
async def test_a_graph_and_a_time_table_with_a_bad_resource_are_refused(client, resources, said):
    graph = duly.NewGraph("g")
    graph.task(LAMBDA, label="a", resources=resources)

    with pytest.raises(duly.DulyError, match=said):
        await client.schedule_graph(graph)
    with pytest.raises(duly.DulyError, match=said):
        await client.create_table("t", LAMBDA, every=HOUR, resources=resources)


async def test_a_definition_may_name_a_resource_that_is_declared_later_and_each_run_is_checked(client, store):
    graph = duly.NewGraph("g")
    graph.task(LAMBDA, label="a", resources=["later"])
    await client.put_graph_definition(graph)

    with pytest.raises(duly.UnknownResourceError, match="'later'"):
        await client.run_graph("g")
    await client.put_resource("later", 1)
    await client.run_graph("g")

    assert len(await claim_work(store)) == 1


@pytest.mark.parametrize("as_node", [False, True])
@pytest.mark.parametrize(("resources", "said"), BAD)
async def test_a_child_with_a_bad_resource_makes_the_attempt_a_fatal_failure(
    client, hsc, store, resources, said, as_node
):
    async with client.graph("discovery") as g:
        g.task(LAMBDA, label="parent")
    (parent,) = await claim_work(store)
    needs = [duly.ResourceNeed(each) if isinstance(each, str) else each for each in resources]
    child = frontend_pb2.NewTask(
        task_id=str(new_task_id()), resources=serialized(*needs), **{"lambda": LAMBDA}
    )
    added = {"nodes": [graphs_pb2.GraphNode(label="more", task=child)]} if as_node else {"children": [child]}

    await succeed(hsc, parent, **added)

    task = await client.get(g.scheduled.task_ids["parent"])
    assert task.status is duly.TaskStatus.FATAL_FAILURE
    assert re.search(said, task.failure.message)


async def test_children_and_added_nodes_take_units(client, hsc, store):
    async with client.graph("discovery") as g:
        g.task(LAMBDA, label="parent")
    (parent,) = await claim_work(store)
    ids = [str(new_task_id()) for _ in range(4)]
    new = [
        frontend_pb2.NewTask(
            task_id=task_id, resources=serialized(duly.ResourceNeed("database")), **{"lambda": LAMBDA}
        )
        for task_id in ids
    ]

    nodes = [graphs_pb2.GraphNode(label=f"n{place}", task=task) for place, task in enumerate(new[2:])]
    await succeed(hsc, parent, children=new[:2], nodes=nodes)

    ran = []
    while claimed := await claim_work(store):
        assert len(claimed) == 1
        ran += claimed
        await end(store, claimed)
    assert len(ran) == 4


async def test_a_time_table_shows_and_changes_what_its_tasks_share(client):
    need, session = (
        duly.ResourceNeed("tenant", key="acme", weight=2),
        duly.Session("k", duly.SessionOrder.DUE),
    )
    await client.create_table("t", LAMBDA, every=HOUR, resources=[need, "database"], session=session)
    same = await client.create_table("t", LAMBDA, every=HOUR, resources=["database", need], session=session)

    assert (same.revision, set(same.resources), same.session) == (
        1,
        {need, duly.ResourceNeed("database")},
        session,
    )
    changed = await client.change_table("t", resources=None, session="other")
    assert (changed.changed, changed.resources, changed.session) == (
        ("resources", "session.key", "session.order"),
        (),
        duly.Session("other"),
    )
    assert (await client.change_table("t", session=None)).session is None


async def test_a_declared_time_table_with_an_unknown_resource_is_left_out_and_its_lambda_is_not(
    frontend, client
):
    declared = registry_pb2.Lambda(name="report.make", owner="o", version="1")
    for name, resource in (("good", "database"), ("bad", "nobody-knows")):
        table = declared.time_tables.add(name=name)
        table.every.FromTimedelta(HOUR)
        table.resources.add(name=resource, weight=1)

    (result,) = (
        await frontend.registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=[declared]))
    ).results

    assert result.in_force
    assert "time table 'bad' not written: resources[0].name: no resource 'nobody-knows'" in result.warning
    assert [each.name for each in await client.tables()] == ["good"]
