"""The store and the rules of graphs say the same of any graph, whatever its nodes end with and whoever ends them at once."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from duly.enums import EdgeCondition, Outcome
from duly_core.graph_rules import State, evaluate
from duly_core.lifecycle import Status
from duly_core.store import graph_reads, lambdas, polling
from duly_core.store.lambda_policy import LambdaPolicy
from duly_core.store.pool import Store
from duly_core.store.settings import StoreSettings
from duly_core.task import ClaimedTask
from tests.fixtures.graph_states import StoredGraph, claim_work, end, write_graph
from tests.fixtures.task_states import ENQUEUE_TIMEOUT, LAMBDA

ENDS = {
    Status.SUCCESS: Outcome.SUCCESS,
    Status.FATAL_FAILURE: Outcome.FATAL_FAILURE,
    Status.CANCELLED: Outcome.CANCELLED,
}


@dataclass(frozen=True)
class Case:
    """A graph, how each of its nodes will end, and who ends what is claimed together."""

    waits: dict[str, dict[str, EdgeCondition]]
    any_of: frozenset[str]
    ignoring: frozenset[str]
    ends: dict[str, Status]
    enders: dict[str, int]
    """Of three callers that write at the same time; the third writes later."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Graphs of up to nine nodes."""
    labels = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    waits = {
        label: {
            source: draw(st.sampled_from(EdgeCondition))
            for source in draw(st.lists(st.sampled_from(labels[:place]), unique=True, max_size=4))
        }
        if place
        else {}
        for place, label in enumerate(labels)
    }
    some = st.frozensets(st.sampled_from(labels))
    ends = {
        label: draw(st.sampled_from([Status.SUCCESS, Status.SUCCESS, Status.FATAL_FAILURE, Status.CANCELLED]))
        for label in labels
    }
    return Case(waits, draw(some), draw(some), ends, {label: draw(st.integers(0, 2)) for label in labels})


@dataclass
class Run:
    """A case in the store."""

    store: Store
    case: Case
    graph: StoredGraph
    ended: dict[str, Status] = field(default_factory=dict)
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
            assert set(self.claimed) == runs
            if not self.claimed:
                return
            now = {label for label in self.claimed if self.case.enders[label] < 2} or set(self.claimed)
            first = {label for label in now if self.case.enders[label] == 0}
            await asyncio.gather(self.end_nodes(first), self.end_nodes(now - first), self.end_doomed())

    async def end_nodes(self, labels: set[str]) -> None:
        """Write how these end."""
        by_end: dict[Status, list[ClaimedTask]] = {}
        for label in sorted(labels):
            by_end.setdefault(self.case.ends[label], []).append(self.claimed.pop(label))
            self.ended[label] = self.case.ends[label]
        for status, tasks in by_end.items():
            await end(self.store, tasks, ENDS[status])

    async def end_doomed(self) -> None:
        """End what is skipped."""
        await polling.handle_timeouts(self.store, None, ENQUEUE_TIMEOUT, 1_000)

    async def check(self) -> None:
        """Compare the store with the rules."""
        await self.end_doomed()
        statuses = await self.graph.statuses()
        expected = self.expected()
        for label, status in statuses.items():
            if label in self.ended:
                assert status is self.ended[label]
            elif expected[label] is State.SKIPPED:
                assert status is Status.DROPPED
            else:
                waits = expected[label] is State.WAITS
                assert status in ({Status.WAITING} if waits else {Status.NEW, Status.CLAIMED}), label
        await self.check_edges({label for label, state in expected.items() if state is State.WAITS})
        await self.check_counts(list(statuses.values()))

    async def check_edges(self, waiting: set[str]) -> None:
        """Each edge was decided exactly once: those that are open are the others."""
        over = set(self.ended) | {label for label, state in self.expected().items() if state is State.SKIPPED}
        async with self.store.connection() as connection:
            cursor = await connection.execute(
                "select task_id, open_edges from task_assoc where status = 'waiting'"
            )
            rows = {row[0].bytes: row[1] for row in await cursor.fetchall()}
        labels = self.graph.labels
        found = {labels[task_id]: number for task_id, number in rows.items() if task_id in labels}
        assert found == {label: len(set(self.case.waits[label]) - over) for label in waiting}

    async def check_counts(self, statuses: Sequence[Status]) -> None:
        """The graph's own counts are those of its nodes."""
        graph_id = self.graph.new.graph_id
        row = (await graph_reads.get_graphs(self.store, [graph_id]))[graph_id]
        counts = Counter(statuses)
        assert row["succeeded"] == counts[Status.SUCCESS]
        assert row["failed"] == counts[Status.FATAL_FAILURE]
        assert row["skipped"] == counts[Status.DROPPED]
        assert row["cancelled"] == counts[Status.CANCELLED]
        assert (row["finished_at"] is not None) == (row["open"] == 0)


async def drive(store: Store, case: Case) -> None:
    """Run a case."""
    graph = await write_graph(store, case.waits, any_of=case.any_of, ignoring=case.ignoring)
    await Run(store, case, graph).to_the_end()
    assert await claim_work(store) == []


# long: the same, with more examples
@pytest.mark.parametrize("examples", [15, pytest.param(150, marks=pytest.mark.long)])
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
