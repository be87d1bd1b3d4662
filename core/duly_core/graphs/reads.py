"""Read graphs for people: how they stand, with their nodes, and lists of them."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from duly_core.access.grants import Scope
from duly_core.graphs.critical_path import Awaited, TimedNode, Timeline, timeline_of
from duly_core.graphs.rules import Edge, End, conditions_of
from duly_core.graphs.statements import GRAPHS
from duly_core.postgres.arrays import uuids
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import READS
from duly_core.tasks.lifecycle import FINAL, Status
from duly_core.tasks.scope import graph_condition, scope_parameters
from duly_core.tasks.store import select_text
from duly_core.tasks.task import GraphId
from duly_core.traffic.slices import Steps

GraphRow = Mapping[str, Any]
"""Columns of `graph` by name."""

NodeRow = Mapping[str, Any]
"""A node by column name; `waits_for` has pairs of a label and its conditions."""

_NODES = GRAPHS["nodes_of_graph"].sql

_LIST = """select graph.*
from graph
where graph.graph_id < %(before)s and (graph.name = %(name)s or %(name)s = '') and (graph.open > 0 or not %(running)s)
    and {scope}
order by graph.graph_id desc
limit %(limit)s"""

_LAST = bytes([255] * 16)

_A_STEP = 500
"""Nodes."""


async def get_graphs(
    store: Store, graph_ids: Sequence[GraphId], scope: Scope | None = None
) -> dict[GraphId, GraphRow]:
    """Return graphs by id; unknown ones are left out, and those that are not in the scope (None: all are).

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await select_text(
        store,
        f"select * from graph where graph_id = any(%(graph_ids)s::uuid[]) and {_condition(scope)}",  # noqa: S608
        {"graph_ids": [UUID(bytes=graph_id) for graph_id in graph_ids]} | scope_parameters(scope),
    )
    return {row["graph_id"].bytes: row for row in rows}


async def finished_of(store: Store, graph_ids: Collection[GraphId]) -> set[GraphId]:
    """Return which of these graphs need not be waited for: finished, or not there at all.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    wanted = set(graph_ids)
    rows = await store.run(READS["running_graphs"], {"graph_ids": uuids(sorted(wanted))})
    return wanted - {row[0] for row in rows}


async def get_nodes(store: Store, graph_id: GraphId) -> list[NodeRow]:
    """Return the nodes of a graph, in the order in which they were given.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    rows = await select_text(store, _NODES, {"graph_id": UUID(bytes=graph_id)})
    return [
        row
        | {
            "waits_for": [
                (label, conditions_of(bits))
                for label, bits in sorted(zip(row["sources"], row["conditions"], strict=True))
            ]
        }
        for row in rows
    ]


def computing_timeline(rows: Sequence[NodeRow], began_at: datetime) -> Steps[Timeline]:
    """Compute when the nodes of a graph were ready, and its critical path; of the rows of `get_nodes`."""
    ignoring = {row["label"] for row in rows if row["ignore_failure"]}
    nodes = []
    for place, row in enumerate(rows, start=1):
        nodes.append(_timed(row, ignoring))
        if not place % _A_STEP:
            yield
    now = rows[0]["read_at"] if rows else began_at
    return (yield from timeline_of(nodes, began_at, now))


def _timed(row: NodeRow, ignoring: Collection[str]) -> TimedNode:
    label = row["label"]
    awaited = [
        Awaited(source, Edge(source, label, first, tuple(others)).fires_on(ignore_failure=source in ignoring))
        for source, (first, *others) in row["waits_for"]
    ]
    status = row["status"] and Status(row["status"])
    end = None
    if status in FINAL:
        end = End.TIMED_OUT if row["timed_out"] else End(status)
    return TimedNode(
        label,
        awaited,
        row["any_of"],
        row["created_at"],
        row["due_at"],
        row["started_at"],
        row["ended_at"],
        end,
    )


async def list_graphs(
    store: Store,
    *,
    name: str,
    running: bool,
    before: GraphId | None,
    limit: int,
    scope: Scope | None = None,
) -> list[GraphRow]:
    """Return up to `limit` graphs, newest id first, from below `before` on.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    parameters = {"name": name, "running": running, "before": UUID(bytes=before or _LAST), "limit": limit}
    query = _LIST.format(scope=_condition(scope))
    return list(await select_text(store, query, parameters | scope_parameters(scope)))


def _condition(scope: Scope | None) -> str:
    return "true" if scope is None else graph_condition(scope)
