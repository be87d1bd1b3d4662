"""Write graphs and cancel them. The ends of their tasks release those that wait (end_task in fragments.sql)."""

import asyncio
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from typing import Any
from uuid import UUID

import psycopg

from duly_core.access.current import scheduler
from duly_core.attachments.rules import NotStored
from duly_core.graphs.rules import FAILURES, Edge, Node, handled_by
from duly_core.graphs.statements import GRAPHS
from duly_core.postgres.arrays import bools, int2s, int4s, intervals, texts, uuids
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.statements import LOCKS, READS, TRANSITIONS
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.schedule import keep_inputs, missing_of, task_parameters
from duly_core.tasks.store import Cancelled, cancel_tasks
from duly_core.tasks.task import GraphId, NewTask
from duly_core.traffic.slices import Steps, each, finish
from duly_wire.ids import TaskId

_PAGE = 1_000
_A_STEP = 500
"""Edges."""
_LOCK = GRAPHS["request_graph_cancel"].sql


@dataclass(frozen=True, slots=True)
class NewGraph:
    """A graph that was asked for and found valid (graphs/rules.py); not written yet."""

    graph_id: GraphId
    name: str
    nodes: Sequence[Node]
    tasks: Sequence[NewTask]
    """One for each node, in the same order. They have no keys."""
    max_runtimes: Sequence[timedelta | None]
    """As well; None: the lambda's."""
    edges: Sequence[Edge]
    digest: bytes
    """Of all that was asked for: a repeat has the same."""
    definition: tuple[str, int] | None = None
    """Name and version of the definition that it was made of."""
    fail_fast: bool = False
    """The first failure that it does not handle ends it."""


class GraphScheduling(enum.Enum):
    """What became of a NewGraph."""

    CREATED = "created"
    REPEATED = "repeated"
    CONFLICT = "conflict"
    """Its id belongs to another graph."""
    TASK_CONFLICT = "task conflict"
    """The id of one of its tasks is taken."""
    UNKNOWN_LAMBDA = "unknown lambda"
    ATTACHMENT_MISSING = "attachment missing"


@dataclass(frozen=True, slots=True)
class ScheduledGraph:
    """The store's answer to a NewGraph."""

    verdict: GraphScheduling
    due_in: timedelta | None = None
    """With CREATED: how far ahead the first of its tasks is due."""
    missing: tuple[str, NotStored] | None = None
    """With ATTACHMENT_MISSING: the label of a node, and what it uses."""


async def schedule_graph(
    store: Store, graph: NewGraph, parameters: Mapping[str, Any] | None = None
) -> ScheduledGraph:
    """Write a graph with all its tasks, or nothing.

    `parameters` are what `writing_parameters` returned; None: they are made now.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again with the same graph.
    """
    if parameters is None:
        parameters = finish(writing_parameters(graph))
    async with store.connection() as connection, connection.transaction() as transaction:
        lacking = await missing_of(connection, graph.tasks)
        if lacking:
            raise psycopg.Rollback(transaction)
        rows = await fetch(connection, TRANSITIONS["schedule_graph"], parameters)
        due_in = {row[0]: row[1] for row in rows if row[0] is not None}
        made = any(row[2] for row in rows)
        whole = len(due_in) == len(graph.nodes)
        if made and not whole:
            raise psycopg.Rollback(transaction)
        if made:
            await keep_inputs(connection, graph.tasks, due_in)
    if lacking:
        return await _lacking(store, graph, lacking)
    if made and not whole:
        names = {task.lambda_name for task in graph.tasks}
        registered = await store.run(READS["registered"], {"names": texts(sorted(names))})
        known = len(registered) == len(names)
        return ScheduledGraph(GraphScheduling.TASK_CONFLICT if known else GraphScheduling.UNKNOWN_LAMBDA)
    if made:
        first = min(due_in[task.task_id] for task in roots(graph))
        return ScheduledGraph(GraphScheduling.CREATED, timedelta(microseconds=first))
    same = await is_repeated(store, graph.graph_id, graph.digest)
    return ScheduledGraph(GraphScheduling.REPEATED if same else GraphScheduling.CONFLICT)


async def _lacking(store: Store, graph: NewGraph, lacking: Mapping[TaskId, NotStored]) -> ScheduledGraph:
    """Answer for a graph with a node that uses what is not stored: it may have been written when it was."""
    if await is_repeated(store, graph.graph_id, graph.digest):
        return ScheduledGraph(GraphScheduling.REPEATED)
    node, task = next(
        (node, task) for node, task in zip(graph.nodes, graph.tasks, strict=True) if task.task_id in lacking
    )
    return ScheduledGraph(GraphScheduling.ATTACHMENT_MISSING, missing=(node.label, lacking[task.task_id]))


async def is_repeated(store: Store, graph_id: GraphId, digest: bytes) -> bool:
    """Return whether this very graph was written before.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await store.run(READS["graph_digest"], {"graph_id": UUID(bytes=graph_id)})
    return [row[0] for row in rows] == [digest]


def roots(graph: NewGraph) -> list[NewTask]:
    """Return the tasks of the nodes that wait for no other."""
    waiting = {edge.target for edge in graph.edges}
    pairs = zip(graph.nodes, graph.tasks, strict=True)
    return [task for node, task in pairs if node.label not in waiting]


def writing_parameters(graph: NewGraph) -> Steps[Mapping[str, Any]]:
    """Return the parameters of the statement that writes a graph, made in steps."""
    ids = {node.label: task.task_id for node, task in zip(graph.nodes, graph.tasks, strict=True)}
    ignoring = {node.label: node.ignore_failure for node in graph.nodes}
    handled = handled_by(graph.edges)
    name, version = graph.definition or (None, None)
    yield
    tasks = task_parameters(graph.tasks)
    yield
    edges = yield from making_edge_parameters(
        [node.label for node in graph.nodes], graph.edges, ids, ignoring
    )
    return (
        tasks
        | {
            "graph_id": UUID(bytes=graph.graph_id),
            "name": graph.name,
            "digest": graph.digest,
            "definition": name,
            "version": version,
            "fail_fast": graph.fail_fast,
            "max_runtimes": intervals(graph.max_runtimes),
            "labels": texts([node.label for node in graph.nodes]),
            "any_of": bools([node.any_of for node in graph.nodes]),
            "ignore_failure": bools([node.ignore_failure for node in graph.nodes]),
            "timeouts_final": bools([node.timeout_is_final for node in graph.nodes]),
            "handled": int2s(
                [FAILURES if node.ignore_failure else handled.get(node.label, 0) for node in graph.nodes]
            ),
        }
        | edges
    )


def edge_parameters(
    labels: Iterable[str], edges: Iterable[Edge], ids: Mapping[str, TaskId], ignoring: Mapping[str, bool]
) -> dict[str, Any]:
    """Return the parameters for the edges of new nodes: by node, `waits_for` of them from `first_edges` on.

    `ids` and `ignoring` also have the older nodes that the edges lead from.
    """
    return finish(making_edge_parameters(labels, edges, ids, ignoring))


def making_edge_parameters(
    labels: Iterable[str], edges: Iterable[Edge], ids: Mapping[str, TaskId], ignoring: Mapping[str, bool]
) -> Steps[dict[str, Any]]:
    """Do the same in steps."""
    by_target: dict[str, list[Edge]] = {label: [] for label in labels}
    yield from each(lambda edge: by_target[edge.target].append(edge), edges, _A_STEP)
    waits_for = list(map(len, by_target.values()))
    yield
    sources, targets, conditions, fires_on = [], [], [], []
    done = 0
    for label, waited_for in by_target.items():
        target = ids[label]
        for edge in waited_for:
            source = edge.source
            sources.append(ids[source])
            targets.append(target)
            conditions.append(edge.condition_bits)
            fires_on.append(edge.fires_on(ignore_failure=ignoring[source]))
        done += 1 + len(waited_for)
        if done >= _A_STEP:
            done = 0
            yield
    return {
        "waits_for": int4s(waits_for),
        "first_edges": int4s(list(accumulate(waits_for[:-1], initial=1))),
        "edges_from": uuids(sources),
        "edges_to": uuids(targets),
        "conditions": int2s(conditions),
        "fires_on": int2s(fires_on),
    }


async def cancel_graph(store: Store, graph_id: GraphId) -> Cancelled:
    """End the nodes of a graph that nobody runs, and ask the holders of the others; nothing follows what ends.

    Repeating it is safe, and finishes what a call began that was cut off.

    Raises:
        StoreUnavailableError: the outcome is unknown; ask again.
    """
    parameters = {"graph_id": UUID(bytes=graph_id)}
    async with store.connection() as connection, connection.transaction():
        # in statements of their own: each sees the rows as they are once the others have locked
        await connection.execute(_LOCK, parameters)
        waiting = await fetch(connection, LOCKS["lock_nodes"], parameters)
        task_ids = uuids(row[0] for row in waiting)
        rows = await fetch(connection, TRANSITIONS["cancel_graph"], {"task_ids": task_ids, "by": scheduler()})
    statuses = {row[0]: Status.CANCELLED for row in rows if row[0] is not None}
    released: dict[str, timedelta] = {}
    left = [row[0] for row in await store.run(READS["live_nodes"], parameters)]
    for start in range(0, len(left), _PAGE):
        cancelled = await cancel_tasks(store, left[start : start + _PAGE])
        statuses |= cancelled.statuses
        released |= cancelled.released
        await asyncio.sleep(0)
    return Cancelled(statuses, released)
