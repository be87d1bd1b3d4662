"""Graphs through a real Frontend: written by the SDK's client, all or nothing; refused with the nodes named."""

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

import duly
from duly.client import AsyncClient
from duly_cli.graphs import drawing
from duly_core.graphs.growth_rules import NewNode
from duly_core.graphs.rules import Node
from duly_core.tasks import polling
from duly_core.tasks.task import NewTask
from duly_wire.ids import new_task_id, new_task_id_text
from duly_wire.v1 import graphs_pb2, task_pb2
from tests.fixtures.graph_states import claim_work, end
from tests.fixtures.services import refusal
from tests.fixtures.task_states import LAMBDA
from tests.fixtures.waiting import wait_until

SECOND = timedelta(seconds=1)


@pytest.fixture
async def client(frontend, task_states):
    await task_states.register()
    async with AsyncClient(frontend.address) as opened:
        yield opened


async def test_a_graph_is_scheduled_at_the_end_of_its_block_and_followed(client, store):
    async with client.graph("discovery") as g:
        ipmi = g.task(LAMBDA, {"node": "n1"}, label="ipmi")
        g.task(LAMBDA, label="report", after=ipmi)
        g.task(LAMBDA, label="alarm", after=ipmi.failed)
    for _ in range(2):
        await end(store, await claim_work(store))

    graph = await client.get_graph(g.scheduled)
    report = await client.get(graph.nodes["report"].task_id)

    assert (report.graph_id, report.graph_label) == (g.graph_id, "report")
    assert graph.nodes["report"].status is duly.TaskStatus.SUCCESS
    assert graph.nodes["alarm"].status is duly.TaskStatus.WAITING
    assert graph.nodes["alarm"].waits_for == {"ipmi": (duly.EdgeCondition.FAILED,)}
    assert graph.status is duly.GraphStatus.RUNNING
    assert graph.progress == pytest.approx(2 / 3)


async def test_a_graph_tells_times_of_its_nodes_and_its_critical_path(client, store):
    async with client.graph("discovery") as g:
        first = g.task(LAMBDA, label="first")
        second = g.task(LAMBDA, label="second", after=first)
        g.task(LAMBDA, label="alarm", after=first.failed)
        g.task(LAMBDA, label="late", after=second, delay=timedelta(hours=1))
    await end(store, await claim_work(store), duly.Outcome.RETRIABLE_FAILURE)
    (retried,) = [node for node in (await client.get_graph(g.scheduled)).nodes.values() if node.runs]
    async with store.connection() as connection:
        await connection.execute(
            "update task_assoc set next_trigger_at = duly_now() where status = 'retriable_failure'"
        )
    for _ in range(2):
        await end(store, await claim_work(store))

    graph = await client.get_graph(g.scheduled)
    ended, waits = graph.nodes["second"], graph.nodes["late"]

    assert (retried.label, graph.nodes["first"].runs) == ("first", 2)
    assert graph.nodes["first"].started_at < retried.started_at + SECOND
    assert graph.nodes["first"].started_at <= graph.nodes["first"].ended_at == ended.ready_at
    assert ended.ready_at <= ended.started_at <= ended.ended_at
    assert (ended.waited, ended.duration) == (
        ended.started_at - ended.ready_at,
        ended.ended_at - ended.started_at,
    )
    assert (waits.started_at, waits.ended_at, waits.waited, waits.runs) == (None, None, None, 0)
    assert waits.ready_at > graph.created_at + timedelta(minutes=59)
    assert [step.label for step in graph.critical_path] == ["first", "second", "late"]
    assert [step.open for step in graph.critical_path] == [False, False, True]
    assert graph.critical_path[0].begins_at == graph.created_at
    assert (await client.get_graph(g.scheduled, nodes=False)).critical_path == ()


async def test_a_block_that_raises_schedules_nothing(client):
    with pytest.raises(ZeroDivisionError):
        async with client.graph("discovery") as g:
            g.task(LAMBDA, 1 / 0)

    with pytest.raises(duly.GraphNotFoundError):
        await client.get_graph(g.graph_id)


async def test_a_repeat_writes_nothing_and_a_different_graph_of_the_same_id_is_refused(client, store):
    graph = duly.NewGraph("g")
    graph.task(LAMBDA, label="a")
    first = await client.schedule_graph(graph)

    again = await client.schedule_graph(graph)

    assert (first.created, again.created) == (True, False)
    assert again.task_ids == first.task_ids
    elsewhere = duly.NewGraph("g", graph_id=graph.graph_id)  # a program that was started anew
    elsewhere.task(LAMBDA, label="a")
    assert (await client.schedule_graph(elsewhere)).task_ids == first.task_ids
    graph.task(LAMBDA, label="b")
    with pytest.raises(duly.KeyConflictError, match="another graph has this id"):
        await client.schedule_graph(graph)
    assert len(await claim_work(store)) == 1


async def test_a_repeat_is_answered_with_its_own_nodes_though_a_callback_added_one(client, store):
    graph = duly.NewGraph("g")
    first = graph.task(LAMBDA, label="a")
    graph.task(LAMBDA, label="b", after=first)
    written = await client.schedule_graph(graph)
    added = NewNode(Node("c"), NewTask(new_task_id().bytes, LAMBDA, b"{}"))
    (task,) = await claim_work(store)
    await end(store, [task], nodes={task.task_id: [added]})

    repeated = await client.schedule_graph(graph)

    assert (repeated.created, repeated.task_ids) == (False, written.task_ids)
    assert list((await client.get_graph(graph.graph_id)).nodes) == ["a", "b", "c"]


def a_node(label, *sources, **task):
    node = graphs_pb2.GraphNode(label=label, waits_for=[graphs_pb2.GraphEdge(label=each) for each in sources])
    setattr(node.task, "lambda", LAMBDA)
    for name, value in task.items():
        setattr(node.task, name, value)
    return node


async def test_an_invalid_graph_is_refused_and_its_nodes_are_named(client, frontend):
    for nodes, field, message in [
        ([], "nodes", "no nodes"),
        ([a_node("a", "c"), a_node("b", "a"), a_node("c", "b")], "nodes", "-> "),
        ([a_node("a", "a")], "nodes", "a -> a"),
        ([a_node("a", "gone")], "nodes", "'a' waits for 'gone'"),
        ([a_node("a"), a_node("a")], "nodes", "'a' is named more than once"),
        ([a_node("a"), a_node("b", "a", "a")], "nodes", "'b' waits for 'a' more than once"),
        ([a_node("")], "nodes", "must be 1 to 128 bytes"),
        ([a_node("a", idempotency_key="k")], "nodes['a'].task.idempotency_key", "graph_id"),
        ([a_node("a", unique=b"\n\x01k")], "nodes['a'].task.unique", "a node of a graph"),
        ([a_node("a", priority=9)], "nodes['a'].task.priority", "is not a priority"),
        ([a_node("a") for _ in range(10_001)], "nodes", "10,001 nodes"),
    ]:
        request = graphs_pb2.ScheduleGraphRequest(name="g", nodes=nodes)

        response = await frontend.graphs.ScheduleGraph(request)

        assert response.error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT
        assert response.error.field == field
        assert message in response.error.message


async def test_a_node_may_name_a_session_and_is_in_it_when_the_call_returns(client):
    graph = duly.NewGraph("g")
    graph.task(LAMBDA, label="a", session="vlan-7")
    graph.task(LAMBDA, label="b", session="vlan-7")

    await client.schedule_graph(graph)

    session = await client.get_session("vlan-7")
    assert session.length == 2
    assert session.head_status is duly.TaskStatus.NEW


async def test_a_bad_session_of_a_node_is_refused(client, frontend):
    node = a_node("a")
    node.task.session.key = "x" * 256

    response = await frontend.graphs.ScheduleGraph(graphs_pb2.ScheduleGraphRequest(name="g", nodes=[node]))

    assert response.error.field == "nodes['a'].task.session.key"


async def test_one_unknown_lambda_refuses_the_whole_graph(client, store):
    graph = duly.NewGraph("g")
    first = graph.task(LAMBDA)
    graph.task("nobody.has.it", after=first)

    with pytest.raises(duly.UnknownLambdaError, match=r"nodes\['nobody.has.it'\]"):
        await client.schedule_graph(graph)

    assert await claim_work(store) == []


async def test_a_task_id_that_is_taken_refuses_the_whole_graph(client, store, task_states):
    graph = duly.NewGraph("g")
    node = graph.task(LAMBDA)
    await client.schedule_graph(graph)
    other = duly.NewGraph("g")
    stolen = a_node("b")
    stolen.task.task_id = node.task_id
    other.task(LAMBDA, label="a")
    other.add(stolen)

    with pytest.raises(duly.KeyConflictError, match="another task has the id"):
        await client.schedule_graph(other)

    with pytest.raises(duly.GraphNotFoundError):
        await client.get_graph(other.graph_id)


async def test_a_wait_ends_with_the_graph_and_says_how_it_stood_if_it_takes_too_long(client, store):
    async with client.graph("g") as g:
        g.task(LAMBDA)
    with pytest.raises(duly.GraphWaitTimeoutError, match="0 of 1"):
        await client.wait_graph(g.graph_id, timeout=timedelta())
    await end(store, await claim_work(store))

    graph = await client.wait_graph(g)

    assert graph.status is duly.GraphStatus.SUCCEEDED
    assert graph.is_final


async def test_a_cancelled_graph_ends_what_waits_and_what_is_due(client, store):
    async with client.graph("g") as g:
        g.task(LAMBDA, label="b", after=g.task(LAMBDA, label="a").finished)

    await client.cancel_graph(g.graph_id)

    graph = await client.get_graph(g.graph_id)
    assert graph.status is duly.GraphStatus.CANCELLED
    assert {node.status for node in graph.nodes.values()} == {duly.TaskStatus.CANCELLED}
    repeated = await client.cancel_graph(g.graph_id)  # as after a lost reply
    assert (repeated.status, repeated.finished_at) == (graph.status, graph.finished_at)
    with pytest.raises(duly.GraphNotFoundError):
        await client.cancel_graph(new_task_id_text())


async def test_a_node_that_is_about_to_be_skipped_is_left_to_that_by_a_cancel(client, store):
    async with client.graph("g") as g:
        alarm = g.task(LAMBDA, label="alarm", after=g.task(LAMBDA, label="a").failed)
    await end(store, await claim_work(store))

    assert await client.cancel(alarm.task_id) is duly.TaskStatus.WAITING

    await polling.handle_timeouts(store, None, SECOND, 10)
    assert (await client.get(alarm.task_id)).status is duly.TaskStatus.DROPPED


async def test_a_graph_that_finished_by_itself_cannot_be_cancelled(client, store):
    async with client.graph("g") as g:
        g.task(LAMBDA)
    await end(store, await claim_work(store))

    with pytest.raises(duly.TaskFinalError):
        await client.cancel_graph(g.graph_id)


async def test_lists_go_through_all_pages_newest_first(client):
    names = ["a", "b", "a", "b", "a"]
    ids = []
    for name in names:
        async with client.graph(name) as g:
            g.task(LAMBDA)
        ids.append(g.graph_id)

    everything = [graph.graph_id async for graph in client.list_graphs(page_size=2)]

    assert everything == sorted(ids, reverse=True)
    assert [graph.name async for graph in client.list_graphs(name="a", page_size=1)] == ["a"] * 3
    assert len([graph async for graph in client.list_graphs(running=True)]) == 5


async def test_definitions_have_versions_and_run_with_other_payloads(client, store):
    graph = duly.NewGraph("discovery")
    graph.task(LAMBDA, {"node": "?", "depth": 1}, label="a")
    first = await client.put_graph_definition(graph)
    assert (await client.put_graph_definition(graph)).version == first.version == 1
    graph.task(LAMBDA, label="b")
    assert (await client.put_graph_definition(graph)).version == 2

    run = await client.run_graph("discovery", {"*": {"node": "n1"}, "a": {"depth": 2}})

    assert [each.version for each in await client.graph_definitions()] == [2]
    assert (await client.get_graph_definition("discovery", 1)).labels == ("a",)
    state = await client.get_graph(run)
    assert (state.definition, state.definition_version) == ("discovery", 2)
    assert (await client.get(run.task_ids["a"])).payload == {"node": "n1", "depth": 2}
    assert (await client.get(run.task_ids["b"])).payload == {"node": "n1"}
    with pytest.raises(duly.InvalidTaskError, match="no node has the label 'x'"):
        await client.run_graph("discovery", {"x": {}})
    with pytest.raises(duly.GraphNotFoundError, match="version 7"):
        await client.run_graph("discovery", version=7)


async def test_a_definition_with_a_cycle_is_refused(client):
    graph = duly.NewGraph("g")
    graph.add(a_node("a", "b"))
    graph.add(a_node("b", "a"))

    with pytest.raises(duly.InvalidTaskError, match="-> a"):
        await client.put_graph_definition(graph)


async def test_the_shell_stores_runs_draws_and_cancels_graphs(client, store, run_duly, tmp_path):
    file = tmp_path / "discovery.json"
    tasks = [
        {"label": "a", "taskName": LAMBDA},
        {"label": "b", "taskName": LAMBDA, "waitOn": {"a": "finished"}},
    ]
    file.write_text(json.dumps({"injectableName": "discovery", "tasks": tasks}))
    assert (await run_duly("graph", "put", str(file))).stdout == "discovery: version 1, 2 nodes\n"
    graph_id = (await run_duly("graph", "run", "discovery", '{"*": {"node": "n1"}}')).stdout.strip()
    await end(store, await claim_work(store))

    text = await run_duly("graph", "show", graph_id)
    mermaid = await run_duly("graph", "show", graph_id, "--format", "mermaid")
    dot = await run_duly("graph", "show", graph_id, "--format", "dot")
    as_json = json.loads((await run_duly("graph", "show", graph_id, "--json")).stdout)

    assert "1 of 2 nodes have ended" in text.stdout
    assert "a finished" in text.stdout
    assert "n0 -->|finished| n1" in mermaid.stdout
    assert 'n0 -> n1 [label="finished"];' in dot.stdout
    assert [node["status"] for node in as_json["nodes"]] == ["success", "new"]
    assert graph_id in (await run_duly("graph", "list", "--running")).stdout
    assert "discovery" in (await run_duly("graph", "definitions")).stdout
    assert (await run_duly("graph", "cancel", graph_id)).stdout == f"{graph_id}: cancelled\n"
    waited = await run_duly("graph", "wait", graph_id)
    assert (waited.exit_code, "cancelled" in waited.stdout) == (1, True)
    assert (await run_duly("graph", "show", graph_id, "--format", "png")).exit_code == 2
    assert (await run_duly("graph", "run", "discovery", "[]")).exit_code == 2
    assert (await run_duly("graph", "put", str(tmp_path / "gone.json"))).exit_code == 2
    assert "no graph definition" in (await run_duly("graph", "run", "unknown")).stderr


def first_end(graph):
    """When the first node of a graph expires."""
    return graph.to_proto().nodes[0].task.expires_at.ToDatetime(UTC)


async def test_a_repeat_is_answered_after_the_time_of_a_node_has_passed(client):
    graph = duly.NewGraph("g")
    graph.task(LAMBDA, label="a", expires_at=datetime.now(UTC) + SECOND / 2)
    await client.schedule_graph(graph)
    await asyncio.to_thread(wait_until, lambda: datetime.now(UTC) > first_end(graph))

    assert (await client.schedule_graph(graph)).created is False


async def test_an_unusable_request_is_refused_as_a_whole(frontend):
    for method, request_, field in [
        ("ListGraphs", graphs_pb2.ListGraphsRequest(name="\x00"), "name"),
        ("ListGraphs", graphs_pb2.ListGraphsRequest(page_size=1001), "page_size"),
        ("ListGraphs", graphs_pb2.ListGraphsRequest(page_token="?"), "page_token"),
        ("ListGraphDefinitions", graphs_pb2.ListGraphDefinitionsRequest(page_size=-1), "page_size"),
        ("ListGraphDefinitions", graphs_pb2.ListGraphDefinitionsRequest(page_token="\x00"), "page_token"),
        ("WaitGraph", graphs_pb2.WaitGraphRequest(timeout=Duration(seconds=61)), "timeout"),
    ]:
        refused = await refusal(getattr(frontend.graphs, method)(request_))

        assert (refused.code, refused.field) == (grpc.StatusCode.INVALID_ARGUMENT, field)


async def test_the_command_prints_the_critical_path_with_shares_and_what_is_waited_for(client, store):
    async with client.graph("discovery") as g:
        first = g.task(LAMBDA, label="first")
        g.task(LAMBDA, label="side")
        g.task(LAMBDA, label="second", after=first)
    claimed = await claim_work(store)
    await end(store, claimed)

    running = "\n".join(drawing.text(await client.get_graph(g.graph_id)))
    await end(store, await claim_work(store))
    ended = "\n".join(drawing.text(await client.get_graph(g.graph_id)))

    assert re.search(r"\ncritical path so far: .*, now node second new\nSHARE +WAITED +TOOK +NODE\n", running)
    _, _, steps = ended.partition("\ncritical path: ")
    shares = [int(share) for share in re.findall(r"^(\d+)%", steps, re.MULTILINE)]
    assert re.findall(r"(\w+)$", steps, re.MULTILINE)[-2:] == ["first", "second"]
    assert 99 <= sum(shares) <= 101
    assert "side" not in steps
