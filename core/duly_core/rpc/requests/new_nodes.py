"""Reads what a node of a graph says beside its task: its edges, and how long it may run."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Never

from duly_core.events.wait_nodes import is_wait_lambda, read_wait_node
from duly_core.graphs.rules import Edge
from duly_core.rpc.requests.checks import read_duration
from duly_core.rpc.requests.new_tasks import ProblemUnlessRepeatedError, new_task
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import needs_of
from duly_core.tasks.task import NewTask
from duly_wire.enums import EdgeCondition
from duly_wire.v1 import graphs_pb2, task_pb2

_LONGEST_RUNTIME = timedelta(days=365)
_CONDITIONS = {int(condition): condition for condition in EdgeCondition} | {
    graphs_pb2.EDGE_CONDITION_UNSPECIFIED: EdgeCondition.SUCCEEDED
}


def edges_of(node: graphs_pb2.GraphNode) -> list[Edge]:
    """Return what a node waits for.

    Raises:
        Problem: a condition is unknown.
    """
    label = node.label
    edges = []
    for edge in node.waits_for:
        condition = _CONDITIONS.get(edge.condition) or _no_condition(label, edge.condition)
        others = edge.or_conditions
        edges.append(
            Edge(
                edge.label,
                label,
                condition,
                tuple([_CONDITIONS.get(each) or _no_condition(label, each) for each in others]),
            )
            if others
            else Edge(edge.label, label, condition)
        )
    return edges


def check_order(node: graphs_pb2.GraphNode) -> None:
    """Check that a node's task has no key of any kind.

    Raises:
        Problem: it has one.
    """
    if node.task.idempotency_key:
        raise Problem(
            node_field(node.label, "idempotency_key"), "a node has none: the graph_id makes a repeat safe"
        )
    if node.task.unique:
        raise Problem(
            node_field(node.label, "unique"), "a node of a graph cannot have a unique key yet: leave it out"
        )


def max_runtime(node: graphs_pb2.GraphNode) -> timedelta | None:
    """Return how long an attempt of a node may run; None: as long as its lambda says.

    Raises:
        Problem: it is no duration, or out of range.
    """
    if not node.HasField("max_runtime"):
        return None
    field = f"nodes[{node.label!r}].max_runtime"
    return read_duration(field, node.max_runtime, _LONGEST_RUNTIME, least=timedelta.resolution)


def node_task(
    node: graphs_pb2.GraphNode,
    payload_limits: Mapping[str, int],
    horizon: timedelta,
    kinds: Mapping[str, bool] | None = None,
) -> NewTask:
    """Check a node's task as a task alone is checked. `kinds`: which resources are declared; None: they need not be.

    Raises:
        Problem: names the node, the field and the fix.
    """
    try:
        if is_wait_lambda(getattr(node.task, "lambda")):
            _check_wait(node)
        return new_task(node.task, payload_limits, horizon, needs_of(node.task, kinds))
    except ProblemUnlessRepeatedError as late:
        problem = late.problem
    except Problem as other:
        problem = other
    raise Problem(node_field(node.label, problem.field), problem.message, problem.code)


def _check_wait(node: graphs_pb2.GraphNode) -> None:
    task = node.task
    if "@" in getattr(task, "lambda") or task.resources or task.HasField("session"):
        raise Problem("lambda", "a node that waits for an event has no domain, labels, resources or session")
    if task.payload_encoding not in (task_pb2.ENCODING_JSON, task_pb2.ENCODING_UNSPECIFIED):
        raise Problem(
            "payload", "must be JSON, and not encrypted: what a node waits for is read by the server"
        )
    try:
        read_wait_node(task.payload)
    except ValueError as error:
        raise Problem("payload", str(error)) from None


def node_field(label: str, field: str) -> str:
    """Return the path of a field of a node's task."""
    return f"nodes[{label!r}].task.{field}"


def _no_condition(label: str, value: int) -> Never:
    raise Problem(
        f"nodes[{label!r}].waits_for",
        f"{value} is no condition: use {', '.join(each.name for each in EdgeCondition)}",
    )
