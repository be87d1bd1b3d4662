"""The rules of graphs, with RackHD's examples as a table: which node runs, waits or is skipped after which ends."""

from itertools import pairwise

import pytest

from duly_core.graphs.rules import (
    CANCELLED,
    FAILED,
    SKIPPED,
    SUCCEEDED,
    TIMED_OUT,
    Edge,
    End,
    GraphError,
    Node,
    State,
    check,
    evaluate,
    find_cycle,
    fires_on,
    in_order,
)
from duly_core.tasks.lifecycle import Status
from duly_wire.enums import EdgeCondition
from tests.fixtures.graph_states import edges_of

ON_SUCCESS, ON_FAILURE, ON_END = EdgeCondition.SUCCEEDED, EdgeCondition.FAILED, EdgeCondition.FINISHED
OK, NO, OFF, LATE = Status.SUCCESS, Status.FATAL_FAILURE, Status.CANCELLED, End.TIMED_OUT

NOOP = {"noop-1": {}, "noop-2": {"noop-1": ON_SUCCESS}}
DISCOVERY = {
    "set-boot-pxe": {},
    "reboot": {"set-boot-pxe": ON_END},
    "bootstrap": {"reboot": ON_SUCCESS},
    "catalog-bmc": {"bootstrap": ON_SUCCESS},
    "catalog-lldp": {"catalog-bmc": ON_END},
    "no-disk": {"bootstrap": ON_FAILURE},
    "shell-reboot": {"catalog-lldp": ON_END},
}
EITHER = {"a": {}, "b": {}, "any": {"a": ON_SUCCESS, "b": ON_SUCCESS}}


def states(waits, ended, any_of=(), ignoring=()):
    nodes = [Node(label, label in any_of, label in ignoring) for label in waits]
    edges = edges_of(waits)
    check(nodes, edges)
    found = evaluate(nodes, edges, ended)
    return {state: {label for label in found if found[label] is state} for state in State}


@pytest.mark.parametrize(
    ("waits", "ended", "runs", "skipped"),
    [
        (NOOP, {}, {"noop-1"}, set()),
        (NOOP, {"noop-1": OK}, {"noop-2"}, set()),
        (NOOP, {"noop-1": NO}, set(), {"noop-2"}),
        (NOOP, {"noop-1": OFF}, set(), {"noop-2"}),
        (DISCOVERY, {}, {"set-boot-pxe"}, set()),
        (DISCOVERY, {"set-boot-pxe": NO}, {"reboot"}, set()),
        (DISCOVERY, {"set-boot-pxe": OFF}, {"reboot"}, set()),
        (
            DISCOVERY,
            {"set-boot-pxe": OK, "reboot": OK, "bootstrap": OK},
            {"catalog-bmc"},
            {"no-disk"},
        ),
        (
            DISCOVERY,
            {"set-boot-pxe": OK, "reboot": OK, "bootstrap": NO},
            {"no-disk"},
            {"catalog-bmc", "catalog-lldp", "shell-reboot"},
        ),
        (
            DISCOVERY,
            {"set-boot-pxe": OK, "reboot": NO},
            set(),
            {"bootstrap", "catalog-bmc", "catalog-lldp", "shell-reboot", "no-disk"},
        ),
    ],
)
def test_a_graph_of_rackhd_runs_and_skips(waits, ended, runs, skipped):
    found = states(waits, ended)

    assert found[State.RUNS] == runs
    assert found[State.SKIPPED] == skipped


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        ({}, State.WAITS),
        ({"a": OK}, State.RUNS),
        ({"a": NO}, State.WAITS),
        ({"a": NO, "b": OK}, State.RUNS),
        ({"a": NO, "b": OFF}, State.SKIPPED),
    ],
)
def test_one_of_several_is_enough_for_any_of(ended, state):
    assert "any" in states(EITHER, ended, any_of={"any"})[state]


def test_all_are_needed_without_any_of():
    assert "any" in states(EITHER, {"a": OK})[State.WAITS]
    assert "any" in states(EITHER, {"a": NO})[State.SKIPPED]


def test_an_ignored_failure_counts_as_a_success_and_stays_a_failure():
    waits = {"a": {}, "b": {"a": ON_SUCCESS}, "c": {"a": ON_FAILURE}}

    assert states(waits, {"a": NO}, ignoring={"a"})[State.RUNS] == {"b", "c"}


@pytest.mark.parametrize(
    ("condition", "ignoring", "bits"),
    [
        (ON_SUCCESS, False, SUCCEEDED),
        (ON_SUCCESS, True, SUCCEEDED | FAILED | TIMED_OUT),
        (ON_FAILURE, False, FAILED),
        (ON_FAILURE, True, FAILED),
        (ON_END, False, SUCCEEDED | FAILED | CANCELLED | TIMED_OUT),
        (EdgeCondition.TIMED_OUT, False, TIMED_OUT),
        (EdgeCondition.CANCELLED, True, CANCELLED),
        (EdgeCondition.SKIPPED, False, SKIPPED),
    ],
)
def test_an_edge_fires_on_the_ends_of_its_condition(condition, ignoring, bits):
    assert fires_on(condition, ignore_failure=ignoring) == bits


@pytest.mark.parametrize(
    ("conditions", "ended", "state"),
    [
        (ON_FAILURE, LATE, State.SKIPPED),
        (EdgeCondition.TIMED_OUT, LATE, State.RUNS),
        (EdgeCondition.TIMED_OUT, NO, State.SKIPPED),
        (ON_END, LATE, State.RUNS),
        (EdgeCondition.CANCELLED, OFF, State.RUNS),
        (EdgeCondition.CANCELLED, OK, State.SKIPPED),
        ((ON_FAILURE, EdgeCondition.TIMED_OUT), NO, State.RUNS),
        ((ON_FAILURE, EdgeCondition.TIMED_OUT), LATE, State.RUNS),
        ((ON_FAILURE, EdgeCondition.TIMED_OUT), OFF, State.SKIPPED),
        ((ON_SUCCESS, EdgeCondition.SKIPPED), OK, State.RUNS),
    ],
)
def test_a_node_runs_after_each_of_the_ends_that_it_waits_for(conditions, ended, state):
    assert states({"a": {}, "b": {"a": conditions}}, {"a": ended})[state] == {"b"}


def test_a_skip_spreads_up_to_a_node_that_waits_for_it():
    waits = {"a": {}, "b": {"a": ON_FAILURE}, "c": {"b": ON_END}, "clean": {"c": EdgeCondition.SKIPPED}}

    found = states(waits, {"a": OK})

    assert (found[State.SKIPPED], found[State.RUNS]) == ({"b", "c"}, {"clean"})


def test_a_cycle_is_found_wherever_it_is_and_named_in_its_order():
    edges = [Edge("start", "a"), Edge("a", "b"), Edge("b", "c"), Edge("c", "a"), Edge("c", "end")]

    cycle = find_cycle(["start", "a", "b", "c", "end"], edges)

    assert cycle[0] == cycle[-1]
    assert set(cycle) == {"a", "b", "c"}
    pairs = {(edge.source, edge.target) for edge in edges}
    assert all(pair in pairs for pair in pairwise(cycle))


def test_a_graph_without_a_cycle_has_none_and_is_put_in_order():
    edges = [Edge("b", "c"), Edge("a", "c"), Edge("a", "b")]
    nodes = [Node("c"), Node("b"), Node("a")]

    assert find_cycle(["a", "b", "c"], edges) == []
    assert in_order([node.label for node in nodes], edges) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("labels", "edges", "message"),
    [
        ([], [], "no nodes"),
        (["a", "a", "b", "b"], [], "'a', 'b' are named more than once"),
        (["a"], [Edge("x", "a")], "'a' waits for 'x', but no node has the label 'x'"),
        (["a", "b"], [Edge("a", "b"), Edge("a", "b", ON_END)], "'b' waits for 'a' more than once"),
        (["a", "b"], [Edge("a", "b"), Edge("b", "a")], "nodes wait for each other"),
        (["x" * 129], [], "must be 1 to 128 bytes"),
        ([f"n{number}" for number in range(10_001)], [], "10,001 nodes"),
        (["a"], [Edge("a", "a")] * 100_001, "100,001 edges"),
    ],
)
def test_an_invalid_graph_is_refused_and_says_where(labels, edges, message):
    with pytest.raises(GraphError, match=message):
        check([Node(label) for label in labels], edges)
