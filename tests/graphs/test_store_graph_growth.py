"""Nodes that a callback adds to its graph: all with its success, or not at all."""

import asyncio
import os

import pytest

from duly_core.graphs import reads as graph_reads
from duly_core.graphs import store as graphs
from duly_core.graphs.growth_rules import NewNode
from duly_core.graphs.rules import Edge, Node
from duly_core.postgres.pool import fetch
from duly_core.postgres.statements import TRANSITIONS
from duly_core.results import successes
from duly_core.results.store import set_results
from duly_core.results.successes import success_parameters
from duly_core.tasks import polling
from duly_core.tasks import store as tasks
from duly_core.tasks.dead_letters import redrive
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import Applied, NewTask, Result
from duly_wire.enums import EdgeCondition, FailureKind, Outcome
from duly_wire.ids import new_task_id
from tests.fixtures.database import until_a_statement_waits_for_a_lock
from tests.fixtures.graph_states import claim_work, end, write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA

SUCCEEDED, FAILED, FINISHED = EdgeCondition.SUCCEEDED, EdgeCondition.FAILED, EdgeCondition.FINISHED


@pytest.fixture
async def store(store, task_states):
    await task_states.register()
    return store


def node(label, *edges, lambda_name=LAMBDA, **more):
    return NewNode(Node(label), NewTask(new_task_id().bytes, lambda_name, b"{}"), edges=edges, **more)


async def row_of(graph):
    graph_id = graph.new.graph_id
    return (await graph_reads.get_graphs(graph.store, [graph_id]))[graph_id]


async def status_of(store, new):
    return Status(
        (await tasks.get_tasks(store, [new.task.task_id], most_bytes=None))[new.task.task_id]["status"]
    )


async def finish(store, task, *nodes, token=None):
    result = Result(task.task_id, token or task.token, Outcome.SUCCESS, result=b"1", nodes=nodes)
    return (await set_results(store, [result])).verdicts


async def test_a_graph_is_not_finished_before_a_node_that_its_last_one_added(store):
    graph = await write_graph(store, {"a": {}})
    added = node("b", Edge("a", "b"))

    await finish(store, (await graph.claim())["a"], added)

    row = await row_of(graph)
    assert (row["total"], row["open"], row["succeeded"], row["finished_at"]) == (2, 1, 1, None)
    assert await status_of(store, added) is Status.NEW
    graph.new.nodes.append(added.node)
    graph.new.tasks.append(added.task)
    await end(store, list((await graph.claim()).values()))
    row = await row_of(graph)
    assert (row["open"], row["succeeded"]) == (0, 2)
    assert row["finished_at"] is not None


async def test_a_node_is_found_behind_those_of_the_request(store):
    graph = await write_graph(store, {"b": {"a": SUCCEEDED}})

    await finish(store, (await graph.claim())["a"], node("c", Edge("b", "c", FINISHED)))

    nodes = await graph_reads.get_nodes(store, graph.new.graph_id)
    assert [each["label"] for each in nodes] == ["b", "a", "c"]
    assert nodes[-1]["sources"] == ["b"]


async def test_a_result_under_a_token_that_is_not_current_adds_nothing(store):
    graph = await write_graph(store, {"a": {}})
    task = (await graph.claim())["a"]

    verdicts = await finish(store, task, node("b"), token=os.urandom(16))

    assert verdicts == [Applied.LOST]
    assert (await row_of(graph))["total"] == 1


async def test_a_result_that_comes_twice_adds_its_nodes_once(store):
    graph = await write_graph(store, {"a": {}})
    task = (await graph.claim())["a"]
    added = node("b")

    first = await finish(store, task, added)
    second = await finish(store, task, added)

    assert (first, second) == ([Applied.APPLIED], [Applied.ALREADY_APPLIED])
    assert (await row_of(graph))["total"] == 2


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node("a")], "ctx.add_node: the graph has a node 'a' already"),
        ([node("b\0")], "ctx.add_node: the label 'b\\x00' must be"),
        ([node("c", Edge("nobody", "c"))], "ctx.add_node: 'c' waits for 'nobody', but no node has the label"),
        ([node("c"), node("d", lambda_name="gone")], "ctx.add_node: the lambda of a node was unregistered"),
    ],
)
async def test_nodes_that_cannot_be_added_make_the_attempt_a_fatal_failure(store, nodes, said):
    graph = await write_graph(store, {"a": {}})

    verdicts = await finish(store, (await graph.claim())["a"], *nodes)

    assert verdicts == [Applied.APPLIED]
    row = (await tasks.get_tasks(store, [graph.ids["a"]], most_bytes=None))[graph.ids["a"]]
    assert (row["status"], row["failure_kind"]) == ("fatal_failure", FailureKind.BAD_RESULT)
    assert row["failure_message"].startswith(said)
    assert (await row_of(graph))["total"] == 1


async def test_a_task_of_no_graph_adds_no_node(store, task_states):
    task = await task_states.claimed()

    await finish(store, task, node("b"))

    row = await task_states.row(task.task_id)
    assert row["status"] == "fatal_failure"
    assert "not a node of a graph" in row["failure_message"]


async def test_of_two_that_add_the_same_label_at_once_one_succeeds(store):
    graph = await write_graph(store, {"a": {}, "b": {}})
    claimed = await graph.claim()

    await set_results(
        store,
        [Result(task.task_id, task.token, Outcome.SUCCESS, nodes=(node("x"),)) for task in claimed.values()],
    )

    assert sorted((await graph.statuses()).values()) == [Status.FATAL_FAILURE, Status.SUCCESS]
    assert (await row_of(graph))["total"] == 3


async def test_nothing_is_added_to_a_graph_that_was_cancelled(store):
    graph = await write_graph(store, {"a": {}})
    task = (await graph.claim())["a"]
    await graphs.cancel_graph(store, graph.new.graph_id)

    verdicts = await finish(store, task, node("b"))

    row = await row_of(graph)
    assert verdicts == [Applied.APPLIED]
    assert (row["total"], row["succeeded"]) == (1, 1)
    assert row["finished_at"] is not None


async def test_a_node_behind_one_that_is_to_be_skipped_is_skipped(store):
    graph = await write_graph(store, {"a": {}, "b": {}, "c": {"b": SUCCEEDED}})
    claimed = await graph.claim()
    await end(store, [claimed["b"]], Outcome.FATAL_FAILURE)
    added = node("d", Edge("c", "d", FINISHED))

    await finish(store, claimed["a"], added)
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 10)

    assert await status_of(store, added) is Status.DROPPED
    row = await row_of(graph)
    assert (row["open"], row["skipped"]) == (0, 2)


async def test_a_failure_that_an_added_node_waits_for_is_handled(store):
    graph = await write_graph(store, {"a": {}, "b": {}})
    claimed = await graph.claim()
    await end(store, [claimed["b"]], Outcome.FATAL_FAILURE)
    assert (await row_of(graph))["unhandled"] == 1
    added = node("alarm", Edge("b", "alarm", FAILED))

    await finish(store, claimed["a"], added)

    assert await status_of(store, added) is Status.NEW
    assert (await row_of(graph))["unhandled"] == 0


async def test_a_node_that_runs_again_after_a_redrive_counts_as_failed(store):
    graph = await write_graph(store, {"a": {}, "b": {}})
    claimed = await graph.claim()
    await end(store, [claimed["b"]], Outcome.FATAL_FAILURE)
    await redrive(store, [graph.ids["b"]])
    added = node("c", Edge("b", "c"))

    await finish(store, claimed["a"], added)
    await polling.handle_timeouts(store, None, ENQUEUE_TIMEOUT, 10)

    assert await status_of(store, added) is Status.DROPPED


async def test_a_redriven_node_sees_an_end_that_was_not_committed_yet(store, dsn):
    graph = await write_graph(store, {"a": {}, "x": {}})
    claimed = await graph.claim()
    await end(store, [claimed["a"]], Outcome.FATAL_FAILURE)
    await redrive(store, [graph.ids["a"]])
    again = (await graph.claim())["a"]
    added = node("b", Edge("x", "b", FINISHED))

    async with store.connection() as connection, connection.transaction():
        ended = Result(graph.ids["x"], claimed["x"].token, Outcome.SUCCESS)
        await fetch(connection, TRANSITIONS["finish"], success_parameters([ended]))
        finishing = asyncio.create_task(finish(store, again, added))
        await until_a_statement_waits_for_a_lock(dsn)
    verdicts = await finishing

    assert verdicts == [Applied.APPLIED]
    assert await status_of(store, added) is Status.NEW


async def test_redriven_nodes_of_many_graphs_add_nodes_beside_other_ends_without_a_deadlock(store):
    graphs_of_two = [await write_graph(store, {"a": {}, "x": {}}) for _ in range(8)]
    first = {task.task_id: task for task in await claim_work(store)}
    failing = [first[graph.ids["a"]] for graph in graphs_of_two]
    await end(store, failing, Outcome.FATAL_FAILURE)
    await redrive(store, [task.task_id for task in failing])
    again = {task.task_id: task for task in await claim_work(store)}

    def ends(some):
        return [
            Result(task.task_id, task.token, Outcome.SUCCESS, nodes=(node(label),))
            for graph in some
            for label, task in (("b", again[graph.ids["a"]]), ("c", first[graph.ids["x"]]))
        ]

    batches = [ends(graphs_of_two[:4]), ends(graphs_of_two[4:]), ends(graphs_of_two[::-1])]
    written = await asyncio.gather(*(set_results(store, batch) for batch in batches))

    assert all(set(each.verdicts) <= {Applied.APPLIED, Applied.ALREADY_APPLIED} for each in written)
    assert [(await row_of(graph))["total"] for graph in graphs_of_two] == [4] * 8


async def test_many_results_with_bad_nodes_are_refused_together(store, monkeypatch):
    written = [await write_graph(store, {"a": {}}) for _ in range(20)]
    claimed = await claim_work(store)
    finished = []
    monkeypatch.setattr(successes, "_finish", spy(successes._finish, finished))

    await set_results(
        store, [Result(task.task_id, task.token, Outcome.SUCCESS, nodes=(node("a"),)) for task in claimed]
    )

    assert len(finished) == 1
    assert [(await row_of(graph))["failed"] for graph in written] == [1] * 20


def spy(function, calls):
    """Note each call of an async function."""

    async def called(*arguments):
        calls.append(arguments)
        return await function(*arguments)

    return called
