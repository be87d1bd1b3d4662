"""Add nodes to the graphs of tasks that succeed, in the transaction that ends them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from duly_core.graphs.growth_rules import NewNode, Placed, Source, check_request, place
from duly_core.graphs.rules import FAILURES, OUTCOME_BITS, End, GraphError, State, handled_by
from duly_core.graphs.store import edge_parameters
from duly_core.postgres.arrays import int2s, intervals, texts, uuids
from duly_core.postgres.pool import Connection, fetch
from duly_core.postgres.statements import LOCKS, READS, TRANSITIONS
from duly_core.tasks.schedule import keep_inputs, missing_of, task_parameters
from duly_core.tasks.waiting import ENTERS
from duly_wire.ids import TaskId

_NOT_WRITTEN = "the lambda of a node was unregistered meanwhile, or its task id is taken"


@dataclass(frozen=True, slots=True)
class _Growing:
    """A graph that is locked, and what new nodes ask of it."""

    graph_id: UUID
    total: int
    takes_none: bool
    """It was cancelled, or failed fast."""
    sources: dict[str, Source]
    handled: dict[str, int]
    """Of the sources: which of their failures the graph handles already, as bits."""
    given: frozenset[str]
    """Of the sources: those that the parent itself waits for."""
    lambdas: dict[str, str]
    """Of the sources, by label."""


class NotWrittenError(GraphError):
    """Part of the nodes was written: the transaction can only be taken back."""


async def redriven(connection: Connection, task_ids: Sequence[TaskId]) -> set[TaskId]:
    """Return those of these tasks whose ends lock no graph, though they may have one: they were redriven.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await fetch(connection, READS["redriven_nodes"], {"task_ids": uuids(sorted(task_ids))})
    return {row[0] for row in rows}


async def lock_graph_of(connection: Connection, task_id: TaskId) -> None:
    """Lock the graph of a task, if it has one.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    await fetch(connection, LOCKS["lock_graph_of"], {"task_id": UUID(bytes=task_id)})


async def grow(connection: Connection, parent: TaskId, nodes: Sequence[NewNode]) -> dict[str, timedelta]:
    """Add nodes to the graph of a task; return the lambdas of those that may run, and how far ahead the first of each is due.

    The transaction has ended the task, and holds its graph. A graph that was cancelled, or failed fast, stays as it is.

    Raises:
        GraphError: the nodes cannot be added; the text says why. Nothing was written.
        NotWrittenError: nor can these; the transaction must be taken back at once.
    """
    check_request(nodes)
    graph = _within_reach(await _read(connection, parent, nodes), nodes)
    placed = place(nodes, graph.sources, graph.total)
    if graph.takes_none:
        return {}
    tasks = [each.task for each in nodes]
    lacking = await missing_of(connection, tasks)
    if lacking:
        label = next(each.node.label for each in nodes if each.task.task_id in lacking)
        raise GraphError(f"{label!r}: {next(iter(lacking.values()))}")
    rows = await fetch(connection, TRANSITIONS["grow_graph"], _parameters(graph, nodes, placed))
    due_in = {row[0]: timedelta(microseconds=row[1]) for row in rows}
    if len(due_in) < len(nodes):
        raise NotWrittenError(_NOT_WRITTEN)
    await keep_inputs(connection, tasks, due_in)
    due: dict[str, timedelta] = {}
    for each, how in zip(nodes, placed, strict=True):
        if how.state is State.RUNS:
            ahead, name = due_in[each.task.task_id], each.task.lambda_name
            if each.task.session is not None:
                ahead = ENTERS
            due[name] = min(ahead, due.get(name, ahead))
    return due


async def _read(connection: Connection, parent: TaskId, nodes: Sequence[NewNode]) -> _Growing:
    labels = {each.node.label for each in nodes} | {edge.source for each in nodes for edge in each.edges}
    parameters = {"task_id": UUID(bytes=parent), "labels": texts(sorted(labels))}
    rows = await fetch(connection, READS["growing_graph"], parameters)
    if not rows:
        raise GraphError("the task is not a node of a graph: use ctx.schedule without a label")
    sources, handled, given, lambdas = {}, {}, set(), {}
    for _, _, _, label, task_id, ignore_failure, handled_ends, end, is_live, lambda_name, is_given in rows:
        if label is None:
            continue
        if end is None and not is_live:
            raise GraphError(f"{label!r} was removed after its end: nothing can wait for it")
        sources[label] = Source(task_id, ignore_failure, None if end is None else End(end))
        lambdas[label] = lambda_name
        handled[label] = handled_ends
        if is_given:
            given.add(label)
    graph_id, total, takes_none, *_ = rows[0]
    graph_id = graph_id if isinstance(graph_id, UUID) else UUID(bytes=graph_id)
    return _Growing(graph_id, total, takes_none, sources, handled, frozenset(given), lambdas)


def _within_reach(graph: _Growing, nodes: Sequence[NewNode]) -> _Growing:
    """Leave out the nodes that new ones may not wait for: these are as unknown as others.

    Whoever waits for a node gets its result, and handles its failure. A host is given both of what it runs, and of what the owner of
    the graph has it wait for.
    """
    labels = {each.node.label for each in nodes}
    beyond = {
        edge.source
        for each in nodes
        if each.reach is not None
        for edge in each.edges
        if edge.source in graph.lambdas
        and edge.source not in labels
        and edge.source not in graph.given
        and not each.reach.covers(graph.lambdas[edge.source])
    }
    if not beyond:
        return graph
    return replace(
        graph, sources={label: each for label, each in graph.sources.items() if label not in beyond}
    )


def _parameters(graph: _Growing, nodes: Sequence[NewNode], placed: Sequence[Placed]) -> dict[str, Any]:
    tasks = [each.task for each in nodes]
    edges = [edge for each in nodes for edge in each.edges]
    new = {each.node.label: each for each in nodes}
    ids = {label: source.task_id for label, source in graph.sources.items()}
    ids |= {label: each.task.task_id for label, each in new.items()}
    ignoring = {label: source.ignore_failure for label, source in graph.sources.items()}
    ignoring |= {label: each.node.ignore_failure for label, each in new.items()}
    waited_for = handled_by(edges)
    handled = sorted(label for label in waited_for if label in graph.sources)
    failed = [
        label
        for label in handled
        if (end := graph.sources[label].end) is not None
        and OUTCOME_BITS[end] & waited_for[label] & ~graph.handled[label]
    ]
    return (
        task_parameters(tasks)
        | {
            "graph_id": graph.graph_id,
            "max_runtimes": intervals([each.max_runtime for each in nodes]),
            "labels": texts([each.node.label for each in nodes]),
            "open_edges": [how.open_edges for how in placed],
            "any_of": [each.node.any_of for each in nodes],
            "ignore_failure": [each.node.ignore_failure for each in nodes],
            "timeouts_final": [each.node.timeout_is_final for each in nodes],
            "handled": int2s(
                [
                    FAILURES if each.node.ignore_failure else waited_for.get(each.node.label, 0)
                    for each in nodes
                ]
            ),
            "runs": [how.state is State.RUNS for how in placed],
            "skipped": [how.state is State.SKIPPED for how in placed],
            "now_handled": len(failed),
            "handled_labels": texts(handled),
            "handled_ends": int2s([waited_for[label] for label in handled]),
        }
        | edge_parameters(list(new), edges, ids, ignoring)
    )
