"""What may be added to a graph, and how it stands then."""

import pytest

from duly_core.graphs.growth_rules import NewNode, Placed, Source, check_request, place
from duly_core.graphs.rules import MOST_EDGES, MOST_NODES, Edge, GraphError, Node, State
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import NewTask
from duly_wire.enums import EdgeCondition
from duly_wire.ids import new_task_id


def added(label: str, *edges: Edge, any_of: bool = False) -> NewNode:
    return NewNode(Node(label, any_of), NewTask(new_task_id().bytes, "x", b""), edges=edges)


def source(status: Status | None, *, ignore_failure: bool = False) -> Source:
    return Source(new_task_id().bytes, ignore_failure, status)


@pytest.mark.parametrize(
    ("status", "condition", "placed"),
    [
        (None, EdgeCondition.SUCCEEDED, Placed(State.WAITS, 1)),
        (Status.SUCCESS, EdgeCondition.SUCCEEDED, Placed(State.RUNS, 0)),
        (Status.SUCCESS, EdgeCondition.FAILED, Placed(State.SKIPPED, 0)),
        (Status.FATAL_FAILURE, EdgeCondition.FAILED, Placed(State.RUNS, 0)),
        (Status.CANCELLED, EdgeCondition.FINISHED, Placed(State.RUNS, 0)),
        (Status.DROPPED, EdgeCondition.FINISHED, Placed(State.SKIPPED, 0)),
    ],
)
def test_a_node_stands_as_what_it_waits_for_does(
    status: Status | None, condition: EdgeCondition, placed: Placed
) -> None:
    new = [added("b", Edge("a", "b", condition))]

    assert place(new, {"a": source(status)}, 1) == [placed]


def test_an_ignored_failure_counts_as_a_success() -> None:
    sources = {"a": source(Status.FATAL_FAILURE, ignore_failure=True)}

    assert place([added("b", Edge("a", "b"))], sources, 1) == [Placed(State.RUNS, 0)]


def test_a_skip_spreads_among_the_nodes_that_are_added() -> None:
    new = [added("b", Edge("a", "b")), added("c", Edge("b", "c")), added("d", Edge("c", "d"), any_of=True)]

    placed = place(new, {"a": source(Status.FATAL_FAILURE)}, 1)

    assert [each.state for each in placed] == [State.SKIPPED] * 3


def test_of_several_edges_those_that_are_decided_are_not_open() -> None:
    edges = [Edge("a", "c"), Edge("b", "c"), Edge("new", "c")]
    sources = {"a": source(Status.SUCCESS), "b": source(None)}

    placed = place([added("new"), added("c", *edges)], sources, 2)

    assert placed == [Placed(State.RUNS, 0), Placed(State.WAITS, 2)]


@pytest.mark.parametrize(
    ("nodes", "total", "said"),
    [
        ([added("a")], 1, "has a node 'a' already"),
        ([added("b"), added("b")], 1, "'b' is named more than once"),
        ([added("b", Edge("nobody", "b"))], 1, "no node has the label 'nobody'"),
        ([added("b", Edge("c", "b")), added("c", Edge("b", "c"))], 1, "wait for each other"),
        ([added("b", Edge("a", "b"), Edge("a", "b"))], 1, "more than once"),
        ([added("b" * 129)], 1, "must be 1 to 128 bytes"),
        ([added("b")], MOST_NODES, "1 more are too many: 10,000 at most"),
    ],
)
def test_nodes_that_no_graph_can_have_are_refused(nodes: list[NewNode], total: int, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        place(nodes, {"a": source(None)}, total)


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([added("b\0")], "must be 1 to 128 bytes without NUL"),
        ([added("b", Edge("a\0", "b"))], "must be 1 to 128 bytes without NUL"),
        ([added("")], "must be 1 to 128 bytes"),
        ([added("b", *[Edge("a", "b")] * (MOST_EDGES + 1))], "100,001 edges; at most 100,000"),
        ([added("b", *(Edge(f"n{number}", "b") for number in range(MOST_NODES)))], "name 10,001 labels"),
    ],
)
def test_nodes_that_no_graph_can_have_are_refused_before_the_graph_is_read(
    nodes: list[NewNode], said: str
) -> None:
    with pytest.raises(GraphError, match=said):
        check_request(nodes)
