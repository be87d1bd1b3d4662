"""From the store's graphs and nodes to the wire's."""

from collections.abc import Mapping
from datetime import datetime

from duly_core.graphs.critical_path import Step
from duly_core.graphs.definitions import Definition
from duly_core.graphs.reads import GraphRow, NodeRow
from duly_core.graphs.store import GraphScheduling
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.lifecycle import Status
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.enums import GraphStatus
from duly_wire.v1 import graphs_pb2, task_pb2

REFUSALS = {
    GraphScheduling.CONFLICT: Problem(
        "graph_id",
        "another graph has this id: use another id for another graph",
        task_pb2.ERROR_CODE_KEY_CONFLICT,
    ),
    GraphScheduling.TASK_CONFLICT: Problem(
        "nodes.task.task_id",
        "another task has the id of a node: leave the ids out, or make new ones",
        task_pb2.ERROR_CODE_KEY_CONFLICT,
    ),
    GraphScheduling.UNKNOWN_LAMBDA: Problem(
        "nodes.task.lambda",
        "a lambda was unregistered meanwhile: start a worker that declares it",
        task_pb2.ERROR_CODE_UNKNOWN_LAMBDA,
    ),
}
FINISHED = Problem("graph_id", "it has finished already", task_pb2.ERROR_CODE_ALREADY_FINAL)
_COUNTS = ("total", "succeeded", "failed", "skipped", "cancelled")


def status_of(row: GraphRow) -> GraphStatus:
    """Return how a graph stands."""
    if row["open"]:
        return GraphStatus.RUNNING
    if row["cancel_requested"]:
        return GraphStatus.CANCELLED
    if row["unhandled"]:
        return GraphStatus.FAILED
    return GraphStatus.CANCELLED if row["cancelled"] else GraphStatus.SUCCEEDED


def graph_to_wire(row: GraphRow) -> graphs_pb2.GraphState:
    """Return a graph as clients see it."""
    state = graphs_pb2.GraphState(
        graph_id=str(row["graph_id"]),
        name=row["name"],
        status=graphs_pb2.GraphStatus.ValueType(status_of(row)),
        cancel_requested=row["cancel_requested"],
        definition=row["definition"] or "",
        definition_version=row["version"] or 0,
        fail_fast=row["fail_fast"],
    )
    for name in _COUNTS:
        setattr(state, name, row[name])
    for name in ("created_at", "finished_at"):
        moment: datetime | None = row[name]
        if moment is not None:
            getattr(state, name).FromDatetime(moment)
    return state


def node_to_wire(row: NodeRow, ready_at: Mapping[str, datetime]) -> graphs_pb2.GraphNodeState:
    """Return a node of a graph as clients see it; `ready_at` by label."""
    node = graphs_pb2.GraphNodeState(
        label=row["label"],
        task_id=str(row["task_id"]),
        any_of=row["any_of"],
        ignore_failure=row["ignore_failure"],
        timeout_is_final=row["timeout_is_final"],
        timed_out=row["timed_out"],
        waits_for=[
            graphs_pb2.GraphEdge(label=label, condition=first, or_conditions=others)
            for label, (first, *others) in row["waits_for"]
        ],
    )
    setattr(node, "lambda", row["lambda"] or "")
    if row["status"]:
        node.status = STATUS_TO_WIRE[Status(row["status"])]
    if row["awaited_events"]:
        node.awaited_events = row["awaited_events"]
        for name in ("awaited_since_at", "awaited_until_at"):
            if (moment := row[name]) is not None:
                getattr(node, name).FromDatetime(moment)
    node.runs = row["runs"]
    if (ready := ready_at.get(row["label"])) is not None:
        node.ready_at.FromDatetime(ready)
    for name in ("started_at", "ended_at"):
        if (moment := row[name]) is not None:
            getattr(node, name).FromDatetime(moment)
    return node


def step_to_wire(step: Step) -> graphs_pb2.CriticalStep:
    """Return a step of a critical path as clients see it."""
    said = graphs_pb2.CriticalStep(label=step.label, open=step.is_open)
    said.begins_at.FromDatetime(step.begins_at)
    said.ends_at.FromDatetime(step.ends_at)
    if step.started_at is not None:
        said.started_at.FromDatetime(step.started_at)
    return said


def definition_to_wire(stored: Definition) -> graphs_pb2.GraphDefinition:
    """Return a definition as clients see it."""
    definition = graphs_pb2.GraphDefinition.FromString(stored.definition)
    definition.name = stored.name
    definition.version = stored.version
    definition.created_at.FromDatetime(stored.created_at)
    return definition
