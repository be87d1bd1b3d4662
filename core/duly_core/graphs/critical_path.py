"""When the nodes of a graph were ready, and the chain of nodes that decided how long it took. No I/O."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from duly_core.graphs.rules import OUTCOME_BITS, End
from duly_core.traffic.slices import Steps

_A_STEP = 500
"""Nodes that a step looks at."""
_SAME_TRANSACTION = timedelta(seconds=1)
"""A node that a callback added is as old as the end of that callback's node, but for this."""


class Awaited(NamedTuple):
    """A node that another one waits for."""

    label: str
    fires_on: int
    """The ends of it, as bits, at which the other one goes on."""


@dataclass(frozen=True, slots=True)
class TimedNode:
    """What is known of a node and its task. Instants are the database's, but for `started_at`, which is a host's."""

    label: str
    awaited: Sequence[Awaited]
    any_of: bool
    created_at: datetime | None
    """None: its task was removed."""
    due_at: datetime | None
    started_at: datetime | None
    """Of its first run; None: it has none."""
    ended_at: datetime | None
    end: End | None
    """None: it has not ended, or its task was removed."""


@dataclass(frozen=True, slots=True)
class Step:
    """A node on the path. Its time begins where that of the step before ended."""

    label: str
    begins_at: datetime
    started_at: datetime | None
    """None: it has not run."""
    ends_at: datetime
    """Of an open one: now."""
    is_open: bool

    @property
    def waited(self) -> timedelta:
        """From when it could go on until its first run; without a run: all of its time."""
        return (self.ends_at if self.started_at is None else self.started_at) - self.begins_at

    @property
    def ran(self) -> timedelta:
        """From its first run to its end, with the pauses between its runs."""
        return timedelta() if self.started_at is None else self.ends_at - self.started_at


class Timeline(NamedTuple):
    """What is computed of a graph."""

    ready_at: Mapping[str, datetime]
    """By label: since when its predecessors and its own time let a node run. Those that wait for nodes are not in it."""
    path: Sequence[Step]
    """In order, from the graph's beginning. Empty: the times of its nodes are not known any more."""


def timeline_of(nodes: Sequence[TimedNode], began_at: datetime, now: datetime) -> Steps[Timeline]:
    """Compute when nodes were ready, and which chain of them decided.

    The last node of the path is the one that ended last. While nodes are open it is an open one: of those that nothing but their own time,
    resources, workers or events hold, the one with the longest chain of open nodes behind it; of several the one that was ready first.
    The step before a node is the one whose end let it go on. Time and memory grow with nodes and edges only.

    Args:
        nodes: of the graph, in any order.
        began_at: when the graph was written.
        now: by the database's clock.
    """
    by_label = {node.label: node for node in nodes}
    growers = _Growers(nodes, began_at)
    released: dict[str, datetime] = {}
    before: dict[str, str] = {}
    for place, node in enumerate(nodes, start=1):
        if (found := _release(node, by_label, growers, began_at)) is not None:
            released[node.label], decider = found
            if decider is not None:
                before[node.label] = decider
        if not place % _A_STEP:
            yield
    ready = {label: _ready(by_label[label], at) for label, at in released.items()}
    yield
    last = yield from _last(nodes, released, ready)
    return Timeline(ready, _path(last, by_label, before, began_at, now))


def _ready(node: TimedNode, released_at: datetime) -> datetime:
    """Return when a node that its predecessors let go on was due, too."""
    due_at = node.due_at or released_at
    known = [at for at in (node.started_at, node.ended_at) if at is not None]
    # a redrive, or an operator, may have let it run before its time
    return max(released_at, min(due_at, *known) if known else due_at)


def _within(at: datetime, low: datetime, high: datetime) -> datetime:
    return max(low, min(at, high))


def _release(
    node: TimedNode, by_label: Mapping[str, TimedNode], growers: "_Growers", began_at: datetime
) -> tuple[datetime, str | None] | None:
    """Return when a node's predecessors let it go on or ended it, and which one did last; None: they have not yet."""
    if node.created_at is None:
        return None
    ends: list[tuple[datetime, str, bool]] = []
    for label, fires_on in node.awaited:
        source = by_label.get(label)
        if source is not None and source.ended_at is not None and source.end is not None:
            ends.append((source.ended_at, label, bool(fires_on & OUTCOME_BITS[source.end])))
    if node.started_at is not None or node.ended_at is not None:
        # a predecessor that was redriven ended again, after what it had decided
        limit = min(each for each in (node.started_at, node.ended_at) if each is not None)
        ends = [each for each in ends if each[0] <= limit] or [
            each for each in ends if each[0] <= (node.ended_at or limit)
        ]
    is_skipped = node.end is End.DROPPED
    deciding = [each for each in ends if each[2] is not is_skipped]
    is_by_first = node.any_of is not is_skipped
    if node.awaited and node.ended_at is None and node.started_at is None:
        enough = bool(deciding) if node.any_of else len(deciding) == len(node.awaited)
        if not enough:
            return None
    decided = (min if is_by_first else max)(deciding or ends, default=None)
    grown_at, grower = growers.of(node)
    if decided is None or (grown_at is not None and decided[0] < grown_at):
        return (grown_at, grower) if grown_at is not None else (began_at, None)
    return max(decided[0], began_at), decided[1]


class _Growers:
    """Finds the node whose callback added another one: the one that succeeded at that moment."""

    def __init__(self, nodes: Sequence[TimedNode], began_at: datetime) -> None:
        self._began_at = began_at
        self._ends = sorted(
            (node.ended_at, node.label)
            for node in nodes
            if node.ended_at is not None and node.end is End.SUCCESS
        )

    def of(self, node: TimedNode) -> tuple[datetime | None, str | None]:
        """Return when a node was added, and by which one if that is known; None: it was there from the beginning."""
        added_at = node.created_at
        if added_at is None or added_at - self._began_at < timedelta(milliseconds=1):
            return None, None
        place = bisect_left(self._ends, (added_at, ""))
        near = [
            (abs(ended_at - added_at), ended_at, label)
            for ended_at, label in self._ends[max(0, place - 1) : place + 1]
            if label != node.label and abs(ended_at - added_at) <= _SAME_TRANSACTION
        ]
        if not near:
            return (None, None) if added_at - self._began_at <= _SAME_TRANSACTION else (added_at, None)
        _, ended_at, label = min(near)
        return ended_at, label


def _last(
    nodes: Sequence[TimedNode], released: Mapping[str, datetime], ready: Mapping[str, datetime]
) -> Steps[TimedNode | None]:
    """Return with which node the path ends."""
    going = [
        node
        for node in nodes
        if node.ended_at is None
        and node.created_at is not None
        and (node.started_at is not None or node.label in released)
    ]
    if going:
        behind = yield from _chains(nodes)
        return min(
            going, key=lambda node: (-behind[node.label], ready.get(node.label, node.created_at), node.label)
        )
    ended = [node for node in nodes if node.ended_at is not None]
    if not ended:
        return None
    # what is skipped is ended a moment after it was decided, by another process: it takes no time of the graph
    ran = [node for node in ended if node.end is not End.DROPPED] or ended
    return max(ran, key=lambda node: (node.ended_at, node.label))


def _chains(nodes: Sequence[TimedNode]) -> Steps[dict[str, int]]:
    """Return the number of nodes of the longest chain of open ones that begins with each."""
    is_open = {node.label for node in nodes if node.ended_at is None}
    sources = {node.label: [each.label for each in node.awaited if each.label in is_open] for node in nodes}
    followers: dict[str, int] = defaultdict(int)
    for label in is_open:
        for source in sources[label]:
            followers[source] += 1
    yield
    chain = dict.fromkeys(sources, 1)
    done = [label for label in is_open if not followers[label]]
    for place, label in enumerate(done, start=1):  # it grows meanwhile
        for source in sources[label]:
            chain[source] = max(chain[source], chain[label] + 1)
            followers[source] -= 1
            if not followers[source]:
                done.append(source)
        if not place % _A_STEP:
            yield
    return chain


def _path(
    last: TimedNode | None,
    by_label: Mapping[str, TimedNode],
    before: Mapping[str, str],
    began_at: datetime,
    now: datetime,
) -> list[Step]:
    """Return the chain that leads to a node; a step begins where the one before it ends."""
    chain: list[TimedNode] = []
    seen: set[str] = set()
    while last is not None and last.label not in seen:
        chain.append(last)
        seen.add(last.label)
        last = by_label.get(before.get(last.label, ""))
    steps: list[Step] = []
    begins_at = began_at
    for node in reversed(chain):
        ends_at = max(begins_at, node.ended_at or now)
        started_at = None if node.started_at is None else _within(node.started_at, begins_at, ends_at)
        steps.append(Step(node.label, begins_at, started_at, ends_at, node.ended_at is None))
        begins_at = ends_at
    return steps
