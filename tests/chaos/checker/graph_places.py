"""Graphs as they were: what each node waited for, and which end of its sources was decided when."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from duly_core.graphs.rules import OUTCOME_BITS
from duly_core.tasks.lifecycle import FINAL, Status
from duly_wire.enums import FailureKind
from tests.chaos.checker.cases import Case
from tests.chaos.checker.turns import NOT_YET_NS
from tests.chaos.history import EdgeRow, History, NodeRow, Transition


@dataclass(frozen=True, slots=True)
class Decision:
    """What the edges of a node were decided by: its end, or that it was found to be skipped."""

    move: Transition
    bits: int
    """As in `graph_rules.OUTCOME_BITS`."""

    def fires(self, edge: EdgeRow) -> bool:
        """Whether an edge that begins here fired."""
        return bool(self.bits & edge.fires_on)


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a node waits for."""

    node: NodeRow
    edges: tuple[EdgeRow, ...]
    decisions: Mapping[str, Decision]
    """Of those of its sources that are decided, by task id."""

    def holds(self, release: Transition | None = None) -> bool:
        """Whether what it waits for happened; before this write, or in its transaction, if one is given."""
        fired = [
            (decision := self.decisions.get(edge.from_task)) is not None
            and (
                release is None
                or decision.move.sequence < release.sequence
                or decision.move.txid == release.txid
            )
            and decision.fires(edge)
            for edge in self.edges
        ]
        return not fired or (any(fired) if self.node.any_of else all(fired))

    @property
    def released_ns(self) -> int:
        """When it was known whether it runs; 0: always."""
        if not self.edges:
            return 0
        fired = [
            decision.move.at_ns
            for edge in self.edges
            if (decision := self.decisions.get(edge.from_task)) is not None and decision.fires(edge)
        ]
        if self.node.any_of and fired:
            return min(fired)
        decided = [self.decisions.get(edge.from_task) for edge in self.edges]
        return max(NOT_YET_NS if each is None else each.move.at_ns for each in decided)


def places_of(history: History, cases: Mapping[str, Case]) -> dict[str, Waiting]:
    """Return what each node waits for, by task id."""
    incoming: dict[str, list[EdgeRow]] = defaultdict(list)
    for edge in history.edges:
        incoming[edge.to_task].append(edge)
    decisions = {
        node.task_id: decision
        for node in history.nodes
        if node.task_id in cases and (decision := _decision(cases[node.task_id])) is not None
    }
    return {
        node.task_id: Waiting(
            node,
            tuple(incoming[node.task_id]),
            {
                edge.from_task: decisions[edge.from_task]
                for edge in incoming[node.task_id]
                if edge.from_task in decisions
            },
        )
        for node in history.nodes
    }


def note_graph_releases(cases: Mapping[str, Case], places: Mapping[str, Waiting]) -> None:
    """Write into each case when it was known whether its node runs, if that is later than its turn in a session."""
    for task_id, place in places.items():
        if task_id in cases:
            cases[task_id].released_ns = max(cases[task_id].released_ns, place.released_ns)


def _decision(case: Case) -> Decision | None:
    for move in case.transitions:
        # what its session dooms is decided by its end
        if move.doom not in (0, FailureKind.SESSION_FAILED) and move.after == Status.WAITING:
            return Decision(move, 0)
        if move.after in FINAL:
            return Decision(move, OUTCOME_BITS[Status(move.after)])
    return None
