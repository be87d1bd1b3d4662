"""Places the nodes of a graph in layers: a node stands right of all that it waits for."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT = 168, 40
_GAP_X, _GAP_Y = 56, 14
_MARGIN = 16
_SWEEPS = 4
"""Rounds of putting each node near those that it is joined with."""


@dataclass(frozen=True, slots=True)
class Node:
    """What is drawn: a node of the graph, or several that stand for one."""

    key: str
    title: str
    """The first line."""
    line: str
    """The second line."""
    status: str
    """The status in words."""
    href: str = ""
    is_critical: bool = False
    """It lies on the critical path."""


@dataclass(frozen=True, slots=True)
class Edge:
    """That `target` waits for `source`."""

    source: str
    target: str
    condition: str
    is_critical: bool = False
    """It leads from one node of the critical path to the next."""


@dataclass(frozen=True, slots=True)
class Box:
    """A node with its place."""

    node: Node
    x: int
    y: int
    width: int = _WIDTH
    height: int = _HEIGHT


@dataclass(frozen=True, slots=True)
class Drawing:
    """Boxes and lines, in pixels."""

    width: int
    height: int
    boxes: Sequence[Box]
    lines: Sequence[tuple[str, str, bool]]
    """The condition of each edge, its path, and whether it leads from one node of the critical path to the next."""


def layers_of(keys: Iterable[str], edges: Iterable[tuple[str, str]]) -> dict[str, int]:
    """Return the layer of each node: 0 if it waits for none, else one more than the last of those that it waits for."""
    sources: Mapping[str, list[str]]
    followers: dict[str, list[str]] = defaultdict(list)
    layers = dict.fromkeys(keys, 0)
    sources = {key: [] for key in layers}
    for source, target in edges:
        if source in layers and target in layers:
            followers[source].append(target)
            sources[target].append(source)
    left = {key: len(found) for key, found in sources.items()}
    ready = [key for key, number in left.items() if not number]
    for key in ready:  # it grows meanwhile
        for follower in followers[key]:
            layers[follower] = max(layers[follower], layers[key] + 1)
            left[follower] -= 1
            if not left[follower]:
                ready.append(follower)
    return layers


def draw(nodes: Sequence[Node], edges: Sequence[Edge]) -> Drawing:
    """Place nodes, and connect them."""
    pairs = [(edge.source, edge.target) for edge in edges]
    layers = layers_of([node.key for node in nodes], pairs)
    columns: list[list[str]] = [[] for _ in range(max(layers.values(), default=-1) + 1)]
    for node in nodes:
        columns[layers[node.key]].append(node.key)
    _untangle(columns, pairs)
    tallest = max(map(len, columns), default=0)
    height = tallest * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN
    by_key = {node.key: node for node in nodes}
    boxes = {}
    for number, column in enumerate(columns):
        top = _MARGIN + (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2
        for row, key in enumerate(column):
            x, y = _MARGIN + number * (_WIDTH + _GAP_X), top + row * (_HEIGHT + _GAP_Y)
            boxes[key] = Box(by_key[key], x, y)
    lines = [
        (edge.condition, _line(boxes[edge.source], boxes[edge.target]), edge.is_critical)
        for edge in edges
        if edge.source in boxes and edge.target in boxes
    ]
    width = len(columns) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _MARGIN
    return Drawing(max(width, 2 * _MARGIN), max(height, 2 * _MARGIN), list(boxes.values()), lines)


def _untangle(columns: list[list[str]], pairs: Sequence[tuple[str, str]]) -> None:
    """Order each column by the mean place of the neighbours, from the left and from the right in turn."""
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for source, target in pairs:
        before[target].append(source)
        after[source].append(target)
    place = {key: row for column in columns for row, key in enumerate(column)}
    for sweep in range(_SWEEPS):
        neighbours = before if sweep % 2 == 0 else after
        for column in columns if sweep % 2 == 0 else reversed(columns):
            means = {}
            for key in column:
                near = [place[each] for each in neighbours[key] if each in place]
                means[key] = sum(near) / len(near) if near else float(place[key])
            column.sort(key=means.__getitem__)
            place.update({key: row for row, key in enumerate(column)})


def _line(source: Box, target: Box) -> str:
    x1, y1 = source.x + source.width, source.y + source.height // 2
    x2, y2 = target.x - 6, target.y + target.height // 2
    bend = max(20, (x2 - x1) // 2)
    return f"M{x1} {y1}C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
