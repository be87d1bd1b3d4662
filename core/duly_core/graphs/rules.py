"""The rules of graphs, without a store: which graphs are valid, which edges an end fires, which nodes then run.

The store decides the same in SQL (duly_advance_graphs); a property test holds the two against each other.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import NamedTuple

from duly_core.tasks.lifecycle import Status
from duly_core.traffic.slices import Steps, finish
from duly_wire.enums import EdgeCondition

MOST_NODES = 10_000
MOST_EDGES = 100_000
LONGEST_LABEL = 128
_SHOWN = 20
"""Labels of a cycle that an error names."""
_A_STEP = 500
"""Nodes or edges that a step of a check looks at."""

SUCCEEDED, FAILED, CANCELLED, TIMED_OUT, SKIPPED = 1, 2, 4, 8, 16
"""The bits of an edge's `fires_on`."""
FAILURES = FAILED | TIMED_OUT


class End(StrEnum):
    """How a node ended, as its edges see it: its status, but for a timeout that is final."""

    SUCCESS = Status.SUCCESS
    FATAL_FAILURE = Status.FATAL_FAILURE
    TIMED_OUT = "timed_out"
    CANCELLED = Status.CANCELLED
    DROPPED = Status.DROPPED


OUTCOME_BITS: Mapping[str, int] = {
    End.SUCCESS: SUCCEEDED,
    End.FATAL_FAILURE: FAILED,
    End.TIMED_OUT: TIMED_OUT,
    End.CANCELLED: CANCELLED,
    End.DROPPED: SKIPPED,
}
"""Of the ends of nodes."""

_FIRES_ON = {
    EdgeCondition.SUCCEEDED: SUCCEEDED,
    EdgeCondition.FAILED: FAILED,
    EdgeCondition.FINISHED: SUCCEEDED | FAILED | CANCELLED | TIMED_OUT,
    EdgeCondition.TIMED_OUT: TIMED_OUT,
    EdgeCondition.CANCELLED: CANCELLED,
    EdgeCondition.SKIPPED: SKIPPED,
}


class GraphError(ValueError):
    """A graph that cannot be run; the text names the nodes at fault and the fix."""


class Node(NamedTuple):
    """What the rules know of a node."""

    label: str
    any_of: bool = False
    """One edge that fires is enough."""
    ignore_failure: bool = False
    """Its failure, or its timeout, fires what waits for its success."""
    timeout_is_final: bool = False
    """An attempt that runs too long is the last."""


class Edge(NamedTuple):
    """`target` waits for `source`."""

    source: str
    target: str
    condition: EdgeCondition = EdgeCondition.SUCCEEDED
    or_conditions: tuple[EdgeCondition, ...] = ()
    """Each of these is enough, too."""

    def fires_on(self, *, ignore_failure: bool) -> int:
        """Return the ends of its source, as bits, at which it fires."""
        if not self.or_conditions:
            return _FIRES[ignore_failure][self.condition]
        return reduce(or_, (_FIRES[ignore_failure][each] for each in (self.condition, *self.or_conditions)))

    @property
    def condition_bits(self) -> int:
        """Its conditions, as the store keeps them."""
        if not self.or_conditions:
            return 1 << self.condition - 1
        return reduce(or_, (1 << each - 1 for each in (self.condition, *self.or_conditions)))


class State(StrEnum):
    """What the rules say of a node that has not ended."""

    WAITS = "waits"
    RUNS = "runs"
    SKIPPED = "skipped"


def fires_on(condition: EdgeCondition, *, ignore_failure: bool) -> int:
    """Return the ends of its source, as bits, at which an edge fires."""
    if condition is EdgeCondition.SUCCEEDED and ignore_failure:
        return SUCCEEDED | FAILURES
    return _FIRES_ON[condition]


_FIRES = [
    [0, *(fires_on(each, ignore_failure=ignored) for each in EdgeCondition)] for ignored in (False, True)
]
"""The same by the number of the condition: each edge of a large graph asks, and the hash of an enum is slow."""


def conditions_of(bits: int) -> list[EdgeCondition]:
    """Return the conditions of an edge that the store keeps as these bits."""
    return [each for each in EdgeCondition if bits >> each - 1 & 1]


def handled_by(edges: Iterable[Edge]) -> dict[str, int]:
    """Return, by node, which of its failures other nodes wait for, as bits."""
    handled: dict[str, int] = {}
    for edge in edges:
        if ends := edge.fires_on(ignore_failure=False) & FAILURES:
            handled[edge.source] = handled.get(edge.source, 0) | ends
    return handled


def check_size(nodes: int, edges: int) -> None:
    """Check how large a graph is; this needs no look at its nodes.

    Raises:
        GraphError: it is empty or too large.
    """
    if not nodes:
        raise GraphError("the graph has no nodes: add one at least")
    if nodes > MOST_NODES or edges > MOST_EDGES:
        raise GraphError(
            f"the graph has {nodes:,} nodes and {edges:,} edges; at most {MOST_NODES:,} and {MOST_EDGES:,} are "
            "possible: split it, and let the last node of a part schedule the next part"
        )


def check(nodes: Sequence[Node], edges: Sequence[Edge]) -> None:
    """Check that a graph can be run, at once.

    Raises:
        GraphError: as `checking`.
    """
    finish(checking(nodes, edges))


def checking(nodes: Sequence[Node], edges: Sequence[Edge]) -> Steps[None]:
    """Check that a graph can be run, in steps; the first error ends it.

    Raises:
        GraphError: it is empty or too large, a label is invalid or used twice, an edge is said twice or leads from an
            unknown node, or nodes wait for each other.
    """
    check_size(len(nodes), len(edges))
    labels = Counter(node.label for node in nodes)
    check_labels(labels)
    if twice := [label for label, number in labels.items() if number > 1]:
        raise GraphError(f"{_names(twice)} named more than once: each node needs a label of its own")
    pairs = set()
    for place, (source, target, *_) in enumerate(edges, start=1):
        if not place % _A_STEP:
            yield
        if source not in labels or target not in labels:
            unknown = target if source in labels else source
            raise GraphError(
                f"{target!r} waits for {source!r}, but no node has the label {unknown[:LONGEST_LABEL]!r}"
            )
        if (source, target) in pairs:
            raise GraphError(f"{target!r} waits for {source!r} more than once: keep one condition")
        pairs.add((source, target))
    if cycle := (yield from _finding_cycle(labels, edges)):
        shown = cycle if len(cycle) <= _SHOWN else [*cycle[:_SHOWN], "...", cycle[-1]]
        raise GraphError(f"nodes wait for each other: {' -> '.join(shown)}; take out one of these edges")


def check_labels(labels: Iterable[str]) -> None:
    """Check that nodes may have these labels.

    Raises:
        GraphError: one is empty, too long, or has a NUL.
    """
    for label in labels:
        if not 1 <= len(label.encode()) <= LONGEST_LABEL or "\x00" in label:
            raise GraphError(f"the label {label[:64]!r} must be 1 to {LONGEST_LABEL} bytes without NUL")


def find_cycle(labels: Iterable[str], edges: Sequence[Edge]) -> list[str]:
    """Return the labels of a cycle, the first once more at its end; empty: there is none."""
    return finish(_finding_cycle(list(labels), edges))


def _finding_cycle(labels: Collection[str], edges: Sequence[Edge]) -> Steps[list[str]]:
    left = set(labels).difference((yield from _ordering(labels, edges)))
    if not left:
        return []
    before: dict[str, list[str]] = {}
    for place, edge in enumerate(edges, start=1):
        if not place % _A_STEP:
            yield
        if edge.source in left:
            before.setdefault(edge.target, []).append(edge.source)
    # each node that is left waits for another one that is left: walked backwards, one comes twice
    label = next(label for label in labels if label in left)
    seen: dict[str, int] = {}
    path: list[str] = []
    while label not in seen:
        seen[label] = len(path)
        path.append(label)
        label = before[label][0]
    return [label, *reversed(path[seen[label] :])]


def evaluate(nodes: Sequence[Node], edges: Sequence[Edge], ended: Mapping[str, str]) -> dict[str, State]:
    """Return the state of each node that has not ended.

    Args:
        nodes: of a valid graph.
        edges: of the same.
        ended: how the nodes ended that ran or were cancelled (End, or a final status).
    """
    by_label = {node.label: node for node in nodes}
    incoming: dict[str, list[Edge]] = {node.label: [] for node in nodes}
    for edge in edges:
        incoming[edge.target].append(edge)
    states: dict[str, State] = {}

    def fired(edge: Edge) -> bool | None:
        if edge.source in ended:
            return bool(
                edge.fires_on(ignore_failure=by_label[edge.source].ignore_failure)
                & OUTCOME_BITS[ended[edge.source]]
            )
        if states[edge.source] is State.SKIPPED:
            return bool(edge.fires_on(ignore_failure=False) & SKIPPED)
        return None

    for label in in_order(by_label, edges):
        if label not in ended:
            states[label] = _judge(by_label[label], [fired(edge) for edge in incoming[label]])
        else:
            states[label] = State.RUNS
    return {label: state for label, state in states.items() if label not in ended}


def _judge(node: Node, fired: Sequence[bool | None]) -> State:
    """Say what becomes of a node whose edges fired, never will, or are not decided yet (None)."""
    if not fired or (any(fired) if node.any_of else all(fired)):
        return State.RUNS
    if node.any_of:
        return State.WAITS if None in fired else State.SKIPPED
    return State.SKIPPED if False in fired else State.WAITS


def in_order(labels: Iterable[str], edges: Iterable[Edge]) -> list[str]:
    """Return labels, each behind those that it waits for; those in a cycle, or behind one, are left out."""
    return finish(_ordering(labels, edges))


def _ordering(labels: Iterable[str], edges: Iterable[Edge]) -> Steps[list[str]]:
    open_edges = dict.fromkeys(labels, 0)
    after: dict[str, list[str]] = {}
    for place, edge in enumerate(edges, start=1):
        if not place % _A_STEP:
            yield
        open_edges[edge.target] += 1
        after.setdefault(edge.source, []).append(edge.target)
    ordered = [label for label, number in open_edges.items() if not number]
    seen = 0
    for label in ordered:
        targets = after.get(label, ())
        seen += 1 + len(targets)
        if seen >= _A_STEP:
            seen = 0
            yield
        for target in targets:
            open_edges[target] -= 1
            if not open_edges[target]:
                ordered.append(target)
    return ordered


def _names(labels: Sequence[str]) -> str:
    shown = ", ".join(repr(label) for label in labels[:5])
    return (
        f"{shown} and {len(labels) - 5} more are"
        if len(labels) > 5
        else f"{shown} {'are' if len(labels) > 1 else 'is'}"
    )
