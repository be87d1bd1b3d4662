"""The store and the rules of graphs say the same of any graph, whatever its nodes end with and whoever ends them at once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly_core.graphs import reads as graph_reads
from duly_core.graphs.growth_rules import NewNode
from duly_core.graphs.rules import FAILURES, OUTCOME_BITS, End, Node, State, evaluate, handled_by
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.limits.store import UNLIMITED, ResourceLimit
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.tasks import polling
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import ClaimedTask, NewTask
from duly_wire.enums import EdgeCondition, FailureKind, Outcome
from duly_wire.ids import TaskId, new_task_id
from tests.fixtures import whole
from tests.fixtures.graph_states import Conditions, StoredGraph, Waits, claim_work, edges_of, end, write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA

ENDS = {
    End.SUCCESS: Outcome.SUCCESS,
    End.FATAL_FAILURE: Outcome.FATAL_FAILURE,
    # an attempt that was too long is reported as one to be retried
    End.TIMED_OUT: Outcome.RETRIABLE_FAILURE,
    End.CANCELLED: Outcome.CANCELLED,
}


@dataclass(frozen=True)
class Case:
    """A graph, how each of its nodes will end, and who ends what is claimed together."""

    waits: dict[str, dict[str, Conditions]]
    any_of: frozenset[str]
    ignoring: frozenset[str]
    ends: dict[str, End]
    enders: dict[str, int]
    """Of three callers that write at the same time; the third writes later."""
    grows: dict[str, dict[str, dict[str, Conditions]]]
    """The nodes that a node adds when it succeeds, and what these wait for."""
    quota: int | None
    """How many nodes run at once; the others are parked."""


CONDITIONS: st.SearchStrategy[Conditions] = st.sampled_from(EdgeCondition) | st.lists(
    st.sampled_from(EdgeCondition), min_size=2, max_size=3, unique=True
).map(tuple)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Graphs of up to nine nodes."""
    labels = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    waits = {
        label: {
            source: draw(CONDITIONS)
            for source in draw(st.lists(st.sampled_from(labels[:place]), unique=True, max_size=4))
        }
        if place
        else {}
        for place, label in enumerate(labels)
    }
    grows: dict[str, dict[str, dict[str, Conditions]]] = {}
    for label in draw(st.lists(st.sampled_from(labels), unique=True, max_size=3)):
        added: dict[str, dict[str, Conditions]] = {}
        for number in range(draw(st.integers(1, 3))):
            sources = draw(st.lists(st.sampled_from([*labels, *added]), unique=True, max_size=3))
            added[f"{label}+{number}"] = {source: draw(CONDITIONS) for source in sources}
        grows[label] = added
    labels += [label for added in grows.values() for label in added]
    some = st.frozensets(st.sampled_from(labels))
    ends = {
        label: draw(
            st.sampled_from([End.SUCCESS, End.SUCCESS, End.FATAL_FAILURE, End.TIMED_OUT, End.CANCELLED])
        )
        for label in labels
    }
    enders = {label: draw(st.integers(0, 2)) for label in labels}
    quota = draw(st.none() | st.integers(1, 3))
    return Case(waits, draw(some), draw(some), ends, enders, grows, quota)


@dataclass
class Run:
    """A case in the store."""

    store: Store
    case: Case
    graph: StoredGraph
    ended: dict[str, End] = field(default_factory=dict)
    claimed: dict[str, ClaimedTask] = field(default_factory=dict)

    def expected(self) -> dict[str, State]:
        """What the rules say of the nodes that have not ended."""
        return evaluate(self.graph.new.nodes, self.graph.new.edges, self.ended)

    async def to_the_end(self) -> None:
        """Run what may run until nothing does, and compare after each step."""
        while True:
            await self.check()
            self.claimed |= await self.graph.claim()
            runs = {label for label, state in self.expected().items() if state is State.RUNS}
            assert set(self.claimed) <= runs
            assert (
                set(self.claimed) == runs
                if self.case.quota is None
                else self.is_within(runs, self.case.quota)
            )
            if not self.claimed:
                return
            now = {label for label in self.claimed if self.case.enders[label] < 2} or set(self.claimed)
            first = {label for label in now if self.case.enders[label] == 0}
            await asyncio.gather(self.end_nodes(first), self.end_nodes(now - first), self.end_doomed())

    def is_within(self, runs: set[str], quota: int) -> bool:
        """Say whether some of what may run is claimed, and not too much."""
        return min(len(runs), 1) <= len(self.claimed) <= quota

    async def end_nodes(self, labels: set[str]) -> None:
        """Write how these end."""
        by_end: dict[End, list[ClaimedTask]] = {}
        added: dict[TaskId, list[NewNode]] = {}
        for label in sorted(labels):
            task = self.claimed.pop(label)
            by_end.setdefault(self.case.ends[label], []).append(task)
            self.ended[label] = self.case.ends[label]
            if self.ended[label] is End.SUCCESS and label in self.case.grows:
                added[task.task_id] = self.grow(self.case.grows[label])
        for how, tasks in by_end.items():
            kind = FailureKind.MAX_RUNTIME if how is End.TIMED_OUT else FailureKind.CALLBACK
            await end(self.store, tasks, ENDS[how], nodes=added, kind=kind)

    def grow(self, waits: Waits) -> list[NewNode]:
        """Add nodes to the graph as the rules see it; return what is to be written."""
        case, new = self.case, self.graph.new
        added = [
            NewNode(
                Node(label, label in case.any_of, label in case.ignoring, timeout_is_final=True),
                NewTask(new_task_id().bytes, LAMBDA, b"{}"),
                edges=tuple(edges_of({label: sources})),
            )
            for label, sources in waits.items()
        ]
        new.nodes.extend(each.node for each in added)
        new.tasks.extend(each.task for each in added)
        new.edges.extend(edge for each in added for edge in each.edges)
        return added

    async def end_doomed(self) -> None:
        """End what is skipped."""
        await polling.handle_timeouts(self.store, None, ENQUEUE_TIMEOUT, 1_000)

    async def check(self) -> None:
        """Compare the store with the rules."""
        await self.end_doomed()
        statuses = await self.graph.statuses()
        expected = self.expected()
        parked = await self.parked()
        assert all(expected.get(label) is State.RUNS for label in parked)
        for label, status in statuses.items():
            if label in self.ended:
                how = self.ended[label]
                assert status == (End.FATAL_FAILURE if how is End.TIMED_OUT else how)
            elif expected[label] is State.SKIPPED:
                assert status is Status.DROPPED
            else:
                waits = expected[label] is State.WAITS or label in parked
                assert status in ({Status.WAITING} if waits else {Status.NEW, Status.CLAIMED}), label
        await self.check_edges({label for label, state in expected.items() if state is State.WAITS})
        await self.check_counts(list(statuses.values()))

    async def parked(self) -> set[str]:
        """Return the nodes that may run and wait for the quota."""
        async with self.store.connection() as connection:
            cursor = await connection.execute("select task_id from task_assoc where parked_on is not null")
            return {self.graph.labels[row[0].bytes] for row in await cursor.fetchall()}

    async def check_edges(self, waiting: set[str]) -> None:
        """Each edge was decided exactly once: those that are open are the others."""
        over = set(self.ended) | {label for label, state in self.expected().items() if state is State.SKIPPED}
        async with self.store.connection() as connection:
            cursor = await connection.execute(
                "select task_id, open_edges from task_assoc where status = 'waiting' and parked_on is null"
            )
            rows = {row[0].bytes: row[1] for row in await cursor.fetchall()}
        labels = self.graph.labels
        found = {labels[task_id]: number for task_id, number in rows.items() if task_id in labels}
        waits = self.case.waits | {
            label: sources for added in self.case.grows.values() for label, sources in added.items()
        }
        assert found == {label: len(set(waits[label]) - over) for label in waiting}

    def unhandled(self) -> int:
        """Failures that nothing handles: they are not ignored, and no node waits for them."""
        new = self.graph.new
        handled = handled_by(new.edges) | {node.label: FAILURES for node in new.nodes if node.ignore_failure}
        return sum(
            bool(OUTCOME_BITS[how] & FAILURES & ~handled.get(label, 0)) for label, how in self.ended.items()
        )

    async def check_counts(self, statuses: Sequence[Status]) -> None:
        """The graph's own counts are those of its nodes."""
        graph_id = self.graph.new.graph_id
        row = (await graph_reads.get_graphs(self.store, [graph_id]))[graph_id]
        counts = Counter(statuses)
        assert row["succeeded"] == counts[Status.SUCCESS]
        assert row["failed"] == counts[Status.FATAL_FAILURE]
        assert row["skipped"] == counts[Status.DROPPED]
        assert row["cancelled"] == counts[Status.CANCELLED]
        assert row["total"] == len(statuses)
        assert row["unhandled"] == self.unhandled()
        assert (row["finished_at"] is not None) == (row["open"] == 0)


async def drive(store: Store, case: Case) -> None:
    """Run a case."""
    capacity = UNLIMITED if case.quota is None else case.quota
    await whole.put_resource(store, ResourceLimit(f"lambda:{LAMBDA}", capacity))
    graph = await write_graph(
        store, case.waits, any_of=case.any_of, ignoring=case.ignoring, timeouts_final=case.waits
    )
    await Run(store, case, graph).to_the_end()
    assert await claim_work(store) == []


# long: the same, with more examples, which take more than a minute on a busy machine
@pytest.mark.parametrize(
    "examples", [15, pytest.param(150, marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_any_graph_runs_as_the_rules_say_and_decides_each_edge_once(dsn: str, examples: int) -> None:
    with asyncio.Runner() as runner:
        store = Store(StoreSettings(dsn=dsn))
        runner.run(store.__aenter__())
        runner.run(lambdas.register(store, [LambdaPolicy(LAMBDA)]))

        @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
        @given(cases())
        def every_case(case: Case) -> None:
            runner.run(drive(store, case))

        try:
            every_case()
        finally:
            runner.run(store.__aexit__(None, None, None))
