"""The rules of nodes that a callback adds to its own graph, without a store."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from duly_core.access.grants import Scope
from duly_core.graphs.rules import (
    MOST_EDGES,
    MOST_NODES,
    Edge,
    End,
    GraphError,
    Node,
    State,
    check,
    check_labels,
    evaluate,
)
from duly_core.tasks.task import NewTask
from duly_wire.ids import TaskId


class NewNode(NamedTuple):
    """A node that is added to a graph; not written yet."""

    node: Node
    task: NewTask
    max_runtime: timedelta | None = None
    """None: its lambda's."""
    edges: tuple[Edge, ...] = ()
    """What it waits for: nodes of the graph, or nodes that are added with it."""
    reach: Scope | None = None
    """The lambdas that the host of its parent may run: of the graph's nodes it may wait for these, and for those that the
    parent waits for. None: for any."""


class Source(NamedTuple):
    """A node of the graph that a new one waits for."""

    task_id: TaskId
    ignore_failure: bool
    end: End | None
    """How its edges were decided; None: they were not."""


class Placed(NamedTuple):
    """What the rules say of a node when it is added."""

    state: State
    open_edges: int
    """Edges that are not decided yet."""


def check_request(nodes: Sequence[NewNode]) -> None:
    """Check what can be said of new nodes without their graph, so that the store is not asked about what no graph has.

    Raises:
        GraphError: a label is invalid, or there are more labels or edges than a graph can have.
    """
    edges = sum(len(each.edges) for each in nodes)
    if edges > MOST_EDGES:
        raise GraphError(f"the nodes have {edges:,} edges; at most {MOST_EDGES:,} are possible")
    labels = {each.node.label for each in nodes} | {edge.source for each in nodes for edge in each.edges}
    if len(labels) > MOST_NODES:
        raise GraphError(f"the nodes name {len(labels):,} labels; a graph has at most {MOST_NODES:,} nodes")
    check_labels(sorted(labels))


def place(nodes: Sequence[NewNode], sources: Mapping[str, Source], total: int) -> list[Placed]:
    """Return what becomes of each new node of a graph that has `total` nodes; `sources` by label.

    Raises:
        GraphError: a label is taken, unknown, or used twice; the graph would be too large; new nodes wait for each other.
    """
    new = [each.node for each in nodes]
    edges = [edge for each in nodes for edge in each.edges]
    if taken := [node.label for node in new if node.label in sources]:
        raise GraphError(f"the graph has a node {taken[0]!r} already: use another label")
    if total + len(new) > MOST_NODES:
        raise GraphError(
            f"the graph has {total:,} nodes, and {len(new):,} more are too many: {MOST_NODES:,} at most are possible"
        )
    waited_for = {edge.source for edge in edges}
    old = [
        Node(label, ignore_failure=source.ignore_failure)
        for label, source in sources.items()
        if label in waited_for
    ]
    # old ones wait for nothing here: what becomes of those that have not ended is not known
    check([*old, *new], edges)
    ended = {node.label: end for node in old if (end := sources[node.label].end) is not None}
    states = evaluate([*old, *new], edges, ended)
    undecided = {label for label, state in states.items() if state is not State.SKIPPED}
    return [
        Placed(states[each.node.label], sum(edge.source in undecided for edge in each.edges))
        for each in nodes
    ]
