"""A graph as clients see it: how it stands, and its nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from duly.graphs.new_graph import NewGraph
from duly.transport.message_fields import view
from duly_wire.enums import EdgeCondition, GraphStatus, TaskStatus

if TYPE_CHECKING:
    from datetime import datetime

    from duly_wire.v1 import graphs_pb2


@dataclass(frozen=True, slots=True)
class ScheduledGraph:
    """The receipt for a scheduled graph; accepted wherever a graph id is, and `str()` of it is the id."""

    graph_id: str
    # False if this very graph had been scheduled before: a repeat with the same graph_id.
    created: bool
    # The tasks of the nodes, by label.
    task_ids: Mapping[str, str]

    def __str__(self) -> str:
        return self.graph_id


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A node of a graph."""

    label: str
    task_id: str
    lambda_name: str
    # None: its task was removed, some days after its end.
    status: TaskStatus | None
    # For each node that it waits for, how that must end: in one of these ways.
    waits_for: Mapping[str, tuple[EdgeCondition, ...]]
    # One of them is enough.
    any_of: bool
    ignore_failure: bool
    # An attempt that runs longer than max_runtime is the last; and such an attempt was.
    timeout_is_final: bool
    timed_out: bool
    # It waits for an event: the keys, joined by ", "; since when, and until when. Empty and None: it does not.
    awaited_events: str = ""
    awaited_since_at: datetime | None = None
    awaited_until_at: datetime | None = None
    # Since when its predecessors and its own time let it run; None: they do not yet, or its task was removed.
    ready_at: datetime | None = None
    # When its first run started, by the clock of the host (one under way: when it was claimed), and when the node ended, with its retries.
    started_at: datetime | None = None
    ended_at: datetime | None = None
    # How often it was claimed.
    runs: int = 0

    @property
    def waited(self) -> timedelta | None:
        """From when it was ready to its first run, or to its end without one; None: neither is known yet."""
        until = self.started_at or self.ended_at
        return None if self.ready_at is None or until is None else max(until - self.ready_at, timedelta())

    @property
    def duration(self) -> timedelta | None:
        """From its first run to its end, with the pauses between its runs; None: it has not run, or goes on."""
        if self.started_at is None or self.ended_at is None:
            return None
        return max(self.ended_at - self.started_at, timedelta())

    @property
    def is_skipped(self) -> bool:
        """True if it ended without a run: what it waits for can no longer happen."""
        return self.status is TaskStatus.DROPPED

    @classmethod
    def from_proto(cls, node: graphs_pb2.GraphNodeState) -> GraphNode:
        """Return the view of a node as it came over the wire."""
        waits_for = {
            edge.label: tuple(map(EdgeCondition, (edge.condition, *edge.or_conditions)))
            for edge in node.waits_for
        }
        return view(cls, node, waits_for=waits_for)


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalStep:
    """A node of the chain that decided how long a graph took. Its time begins where that of the step before ended."""

    label: str
    begins_at: datetime
    # Of its first run; None: it has not run, and waited all of its time.
    started_at: datetime | None
    # Of an open one: when the graph was read.
    ends_at: datetime
    # It has not ended: the graph waits for it now.
    open: bool

    @property
    def waited(self) -> timedelta:
        """For how long it did not run: held by its own time, resources, workers or an event."""
        return (self.started_at or self.ends_at) - self.begins_at

    @property
    def ran(self) -> timedelta:
        """From its first run to its end, with the pauses between its runs."""
        return self.ends_at - (self.started_at or self.ends_at)

    @classmethod
    def from_proto(cls, step: graphs_pb2.CriticalStep) -> CriticalStep:
        """Return the view of a step as it came over the wire."""
        return view(cls, step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """How a graph stood when the Frontend was asked. Instants are aware and in UTC; None: not yet."""

    graph_id: str
    name: str
    status: GraphStatus
    created_at: datetime
    finished_at: datetime | None
    cancel_requested: bool
    # Nodes, and how many of them ended so; `skipped` ones did not run.
    total: int
    succeeded: int
    failed: int
    skipped: int
    cancelled: int
    # Name and version of the definition that it was made of; empty and 0: of none.
    definition: str
    definition_version: int
    # The first failure that it does not handle ends it.
    fail_fast: bool
    # By label, in the order in which they were written; from `get_graph` only.
    nodes: Mapping[str, GraphNode]
    # The chain of nodes that decided how long it took, in order; while it runs the chain so far. From `get_graph` with nodes, and `wait_graph`.
    critical_path: Sequence[CriticalStep] = ()
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @property
    def ended(self) -> int:
        """How many nodes have ended."""
        return self.succeeded + self.failed + self.skipped + self.cancelled

    @property
    def progress(self) -> float:
        """The part of the nodes that have ended, from 0 to 1."""
        return self.ended / self.total

    @property
    def is_final(self) -> bool:
        """True once all nodes have ended."""
        return self.status is not GraphStatus.RUNNING

    @classmethod
    def from_proto(
        cls,
        state: graphs_pb2.GraphState,
        nodes: list[GraphNode] | None = None,
        critical_path: Sequence[CriticalStep] = (),
    ) -> Graph:
        """Return the view of a graph as it came over the wire."""
        return view(
            cls,
            state,
            nodes={node.label: node for node in nodes or ()},
            critical_path=tuple(critical_path),
        )


GraphRef: TypeAlias = str | UUID | NewGraph | ScheduledGraph | Graph
"""What names a graph: its id as text or UUID, the graph that was scheduled, the receipt of `schedule_graph`, or a Graph read before."""


def graph_id_of(graph: GraphRef) -> str:
    """Return a graph's id in text form."""
    return graph.graph_id if isinstance(graph, Graph | NewGraph) else str(graph)
