"""What is drawn of a graph: its nodes, or groups of them if they are too many."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from duly_console.formatting import count, word
from duly_console.graphs.layout import Drawing, Edge, Node, draw, layers_of
from duly_wire.v1 import graphs_pb2

MOST_DRAWN = 200
"""Nodes; of more, those of one lambda in one layer are drawn as one."""

_WORST_FIRST = (
    "fatal failure", "retriable failure", "processing", "claimed", "enqueued", "new", "waiting",
    "cancelled", "dropped", "success",
)  # fmt: skip
_LONGEST = 22


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing, and whether its boxes are groups."""

    drawing: Drawing
    is_summary: bool


def picture(nodes: Sequence[graphs_pb2.GraphNodeState], critical: Sequence[str] = ()) -> Picture:
    """Draw a graph; `critical` has the labels of its critical path."""
    if len(nodes) <= MOST_DRAWN:
        return Picture(draw(*_each(nodes, critical)), is_summary=False)
    groups = draw(*_groups(nodes, critical, by_lambda=True))
    if len(groups.boxes) > MOST_DRAWN:
        groups = draw(*_groups(nodes, critical, by_lambda=False))
    if len(groups.boxes) > MOST_DRAWN:
        groups = draw([], [])  # a chain of hundreds of layers says nothing as a picture
    return Picture(groups, is_summary=True)


def _each(
    nodes: Sequence[graphs_pb2.GraphNodeState], critical: Sequence[str]
) -> tuple[list[Node], list[Edge]]:
    on_path, steps = set(critical), set(pairwise(critical))
    drawn = [
        Node(
            node.label,
            _short(node.label),
            _short(getattr(node, "lambda")),
            word(node.status, "status") if node.status else "removed",
            f"/tasks/{node.task_id}" if node.task_id else "",
            node.label in on_path,
        )
        for node in nodes
    ]
    edges = [
        Edge(edge.label, node.label, word(edge.condition, "edge"), (edge.label, node.label) in steps)
        for node in nodes
        for edge in node.waits_for
    ]
    return drawn, edges


def _groups(
    nodes: Sequence[graphs_pb2.GraphNodeState], critical: Sequence[str], *, by_lambda: bool
) -> tuple[list[Node], list[Edge]]:
    layers = layers_of(
        [node.label for node in nodes],
        [(edge.label, node.label) for node in nodes for edge in node.waits_for],
    )
    group_of = {
        node.label: f"{layers[node.label]} {getattr(node, 'lambda') if by_lambda else ''}" for node in nodes
    }
    members: dict[str, list[graphs_pb2.GraphNodeState]] = defaultdict(list)
    for node in nodes:
        members[group_of[node.label]].append(node)
    on_path = [group_of[label] for label in critical if label in group_of]
    critical_groups, steps = set(on_path), set(pairwise(on_path))
    drawn = []
    for key, found in members.items():
        states = Counter(word(node.status, "status") for node in found)
        worst = next((status for status in _WORST_FIRST if status in states), "new")
        title = key.partition(" ")[2] if by_lambda else f"layer {key.strip()}"
        done = states["success"]
        line = f"{count(len(found))} nodes, {count(done)} succeeded"
        drawn.append(Node(key, _short(title), line, worst, is_critical=key in critical_groups))
    pairs = {
        (group_of[edge.label], group_of[node.label])
        for node in nodes
        for edge in node.waits_for
        if edge.label in group_of
    }
    return drawn, [Edge(*pair, "succeeded", pair in steps) for pair in sorted(pairs)]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"
