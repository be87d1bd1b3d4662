"""Validates the graphs that clients ask for: the rules of graphs, and those of each node's task."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta

from duly_core.events.wait_nodes import is_wait_lambda
from duly_core.graphs.rules import MOST_NODES, Edge, GraphError, Node, check_size, checking
from duly_core.graphs.store import NewGraph
from duly_core.lambdas.names import DEFAULT_NAMESPACE, namespace_of
from duly_core.rpc.requests.checks import check_text
from duly_core.rpc.requests.new_nodes import check_order, edges_of, max_runtime, node_field, node_task
from duly_core.rpc.requests.new_tasks import parse_task_id
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import read_needs
from duly_core.tasks.task import HARD_PAYLOAD_LIMIT
from duly_core.traffic.slices import Steps, each
from duly_wire.ids import new_task_id
from duly_wire.v1 import graphs_pb2, task_pb2

_LONGEST_NAME = 255
_LONGEST_RUNTIME = timedelta(days=365)
_MOST_USES = 10_000
"""Of attachments, of all nodes: they are written in one transaction."""
_A_STEP = 500
"""Nodes or edges, where each is soon done."""


def reading_needs(
    nodes: Sequence[graphs_pb2.GraphNode],
) -> Steps[list[Sequence[task_pb2.ResourceNeed] | Problem]]:
    """Return what the nodes say of resources, read in steps; those that name none are left out."""
    return (yield from each(read_needs, [node.task.resources for node in nodes if node.task.resources]))


def checking_graph(
    asked: graphs_pb2.ScheduleGraphRequest,
    payload_limits: Mapping[str, int],
    horizon: timedelta,
    kinds: Mapping[str, bool],
) -> Steps[NewGraph]:
    """Check a graph, and each of its tasks as a task alone is checked; in steps. The first problem ends it.

    `kinds` says which of the resources that nodes name are declared, and which of these have keys.

    Raises:
        Problem: names the node, the field and the fix.
    """
    check_name("name", asked.name)
    nodes, edges = yield from _checking_nodes(asked.nodes)
    tasks = yield from each(lambda node: node_task(node, payload_limits, horizon, kinds), asked.nodes)
    uses = sum(len(task.attachments) for task in tasks)
    if uses > _MOST_USES:
        raise Problem(
            "nodes",
            f"use {uses:,} attachments together: at most {_MOST_USES:,} go with a graph, so pack some into one",
        )
    ids = {task.task_id for task in tasks}
    if len(ids) < len(tasks):
        raise Problem("nodes.task.task_id", "two nodes have the same: leave it out, or make one for each")
    definition = None
    if asked.definition:
        check_name("definition", asked.definition)
        if asked.definition_version < 1:
            raise Problem("definition_version", "must be at least 1 where a definition is named")
        definition = asked.definition, asked.definition_version
    return NewGraph(
        graph_id=parse_task_id(asked.graph_id, "graph_id") if asked.graph_id else new_task_id().bytes,
        name=asked.name,
        nodes=nodes,
        tasks=tasks,
        max_runtimes=(yield from each(max_runtime, asked.nodes, _A_STEP)),
        edges=edges,
        digest=(yield from digesting(asked)),
        definition=definition,
        fail_fast=asked.fail_fast,
    )


def digesting(asked: graphs_pb2.ScheduleGraphRequest) -> Steps[bytes]:
    """Return what a repeat of a graph has in common with it: all but the ids of its tasks, which a caller makes anew."""
    bare = graphs_pb2.ScheduleGraphRequest()
    bare.CopyFrom(asked)
    yield
    yield from each(lambda node: node.task.ClearField("task_id"), bare.nodes, _A_STEP)
    yield
    return hashlib.sha256(bare.SerializeToString(deterministic=True)).digest()


def _checking_nodes(asked: Sequence[graphs_pb2.GraphNode]) -> Steps[tuple[list[Node], list[Edge]]]:
    """Check the shape of a graph; return its nodes and edges.

    Raises:
        Problem: names the nodes at fault.
    """
    try:
        check_size(len(asked), sum(len(node.waits_for) for node in asked[: MOST_NODES + 1]))
        nodes = yield from each(_node, asked, _A_STEP)
        edges: list[Edge] = []
        seen = 0
        for node in asked:
            edges += edges_of(node)
            seen += 1 + len(node.waits_for)
            if seen >= _A_STEP:
                seen = 0
                yield
        yield from checking(nodes, edges)
    except GraphError as error:
        raise Problem("nodes", str(error)) from error
    yield from each(_check_node, asked)
    _check_namespaces(asked)
    return nodes, edges


def _check_namespaces(asked: Sequence[graphs_pb2.GraphNode]) -> None:
    """Check that nodes that wait for events are of the namespace of some other node: the keys of others are not theirs."""
    waiting = [node for node in asked if is_wait_lambda(getattr(node.task, "lambda"))]
    if not waiting or len(waiting) == len(asked):
        return
    namespaces = {
        namespace_of(name) for node in asked if not is_wait_lambda(name := getattr(node.task, "lambda"))
    }
    for node in waiting:
        namespace = namespace_of(getattr(node.task, "lambda"))
        if namespace not in namespaces:
            raise Problem(
                node_field(node.label, "lambda"),
                f"no other node of the graph is of the namespace {namespace or DEFAULT_NAMESPACE!r}: wait in one of theirs",
            )


def _node(asked: graphs_pb2.GraphNode) -> Node:
    return Node(asked.label, asked.any_of, asked.ignore_failure, asked.timeout_is_final)


def _check_node(node: graphs_pb2.GraphNode) -> None:
    check_order(node)
    max_runtime(node)


def checking_definition(name: str, nodes: Sequence[graphs_pb2.GraphNode], *, fail_fast: bool) -> Steps[bytes]:
    """Check a definition in steps, and return what is stored of it; its lambdas need not be registered.

    Raises:
        Problem: names the field, or the nodes at fault.
    """
    check_name("name", name)
    yield from _checking_nodes(nodes)
    yield from each(_check_defined, nodes)
    yield
    return graphs_pb2.GraphDefinition(nodes=nodes, fail_fast=fail_fast).SerializeToString(deterministic=True)


def _check_defined(node: graphs_pb2.GraphNode) -> None:
    if node.task.task_id:
        raise Problem(node_field(node.label, "task_id"), "leave it out: each run makes its own")
    if node.task.attachments:
        raise Problem(
            node_field(node.label, "attachments"),
            "leave it out: a definition keeps none, each run names its own",
        )
    node_task(node, {getattr(node.task, "lambda"): HARD_PAYLOAD_LIMIT}, _LONGEST_RUNTIME)


def check_version(asked: graphs_pb2.GetGraphDefinitionRequest) -> None:
    """Check which version of a definition is asked for.

    Raises:
        Problem: the name or the version is invalid.
    """
    check_name("name", asked.name)
    if asked.version < 0:
        raise Problem("version", "must be at least 1, or 0 for the newest")


def check_name(field: str, name: str) -> None:
    """Check the name of a graph or of a definition.

    Raises:
        Problem: it is empty, too long, or has a NUL.
    """
    check_text(field, name, _LONGEST_NAME, least=1)
