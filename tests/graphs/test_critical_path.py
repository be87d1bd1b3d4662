"""When nodes of graphs were ready, and the chain that decided: the rules, without a store."""

import time
import tracemalloc
from datetime import UTC, datetime, timedelta

from duly_core.graphs.critical_path import Awaited, TimedNode, timeline_of
from duly_core.graphs.rules import FAILED, SKIPPED, SUCCEEDED, End
from duly_core.traffic.slices import finish

BEGAN = datetime(2026, 11, 27, 6, 0, tzinfo=UTC)


def at(seconds: float | None) -> datetime | None:
    return None if seconds is None else BEGAN + timedelta(seconds=seconds)


def node(label, *after, started=None, ended=None, end=None, any_of=False, created=0.0, due=None):
    """A node; `after` has labels, or labels with the ends that let it go on. Seconds count from the beginning of the graph."""
    awaited = [Awaited(each, SUCCEEDED) if isinstance(each, str) else Awaited(*each) for each in after]
    if ended is not None and end is None:
        end = End.SUCCESS
    return TimedNode(label, awaited, any_of, at(created), at(due), at(started), at(ended), end)


def timeline(*nodes, now=100.0):
    return finish(timeline_of(nodes, BEGAN, at(now)))


def ready(found):
    return {label: (moment - BEGAN).total_seconds() for label, moment in found.ready_at.items()}


def path(found):
    """Label, and seconds waited and run, of each step."""
    return [(step.label, step.waited.total_seconds(), step.ran.total_seconds()) for step in found.path]


def test_the_path_goes_by_the_predecessor_that_ended_last_and_its_steps_fill_the_time():
    found = timeline(
        node("a", started=1, ended=4),
        node("quick", "a", started=5, ended=6),
        node("slow", "a", started=6, ended=20),
        node("end", "quick", "slow", started=21, ended=25),
    )

    assert path(found) == [("a", 1, 3), ("slow", 2, 14), ("end", 1, 4)]
    assert ready(found) == {"a": 0, "quick": 4, "slow": 4, "end": 20}
    assert found.path[0].begins_at == BEGAN
    assert [step.begins_at for step in found.path[1:]] == [step.ends_at for step in found.path[:-1]]
    assert not any(step.is_open for step in found.path)


def test_a_node_after_any_of_goes_on_with_the_first_end_that_fires():
    found = timeline(
        node("fails", started=1, ended=2, end=End.FATAL_FAILURE),
        node("first", started=1, ended=5),
        node("second", started=1, ended=9),
        node("end", "fails", "first", "second", any_of=True, started=6, ended=30),
    )

    assert path(found) == [("first", 1, 4), ("end", 1, 24)]


def test_an_end_that_is_waited_for_as_a_failure_decides():
    found = timeline(
        node("a", started=0, ended=7, end=End.FATAL_FAILURE),
        node("alarm", ("a", FAILED), started=8, ended=9),
        node("b", "a", ended=11, end=End.DROPPED),
    )

    assert path(found) == [("a", 0, 7), ("alarm", 1, 1)]
    assert ready(found)["b"] == 7


def test_what_is_skipped_lies_on_the_path_if_something_ran_because_of_it():
    found = timeline(
        node("a", started=0, ended=3, end=End.FATAL_FAILURE),
        node("b", "a", ended=5, end=End.DROPPED),
        node("instead", ("b", SKIPPED), started=6, ended=10),
    )

    assert path(found) == [("a", 0, 3), ("b", 2, 0), ("instead", 1, 4)]


def test_retries_count_as_the_time_of_their_node():
    found = timeline(node("a", started=1, ended=90))  # its first run started at 1, its last one long after

    assert path(found) == [("a", 1, 89)]


def test_a_node_that_waits_for_an_event_waits_all_of_its_time():
    found = timeline(
        node("check", started=0, ended=1),
        node("approval", "check", ended=61),
        node("ship", "approval", started=62, ended=63),
    )

    assert path(found) == [("check", 0, 1), ("approval", 60, 0), ("ship", 1, 1)]


def test_its_own_time_holds_a_node_back_and_is_no_waiting_for_a_worker():
    found = timeline(node("a", started=0, ended=1), node("b", "a", due=50, started=52, ended=60))

    assert ready(found)["b"] == 50
    assert path(found) == [("a", 0, 1), ("b", 51, 8)]


def test_a_node_that_ran_before_its_time_was_ready_when_it_started():
    found = timeline(node("a", due=50, started=2, ended=3))

    assert ready(found) == {"a": 2}


def test_a_running_graph_waits_for_the_node_with_the_longest_chain_behind_it():
    found = timeline(
        node("a", started=0, ended=10),
        node("alone", "a", started=11),
        node("b", "a"),
        node("c", "b"),
        node("d", "c"),
        now=40,
    )

    assert path(found) == [("a", 0, 10), ("b", 30, 0)]
    assert found.path[-1].is_open
    assert ready(found) == {"a": 0, "alone": 10, "b": 10}


def test_of_equal_chains_the_node_that_was_ready_first_counts():
    found = timeline(
        node("late", "a", started=30),
        node("early", started=1),
        node("a", started=0, ended=20),
        node("end", "late", "early"),
        now=40,
    )

    assert path(found) == [("early", 1, 39)]


def test_a_node_that_a_callback_added_follows_the_one_that_succeeded_at_that_moment():
    found = timeline(
        node("other", started=1, ended=30),
        node("list", started=2, ended=12),
        node("check", created=12.003, started=14, ended=40),
        node("report", "check", "list", created=12.003, started=41, ended=44),
    )

    assert path(found) == [("list", 2, 10), ("check", 2, 26), ("report", 1, 3)]
    assert ready(found)["check"] == 12


def test_a_node_that_was_added_by_nobody_known_begins_the_path():
    found = timeline(node("list", started=2, ended=12), node("check", created=50, started=51, ended=60))

    assert path(found) == [("check", 51, 9)]
    assert ready(found)["check"] == 50


def test_a_predecessor_that_was_redriven_does_not_end_after_what_it_let_go_on():
    found = timeline(node("a", started=0, ended=500), node("b", "a", started=5, ended=9))

    assert [step.label for step in found.path] == ["a"]
    assert ready(found) == {"a": 0, "b": 0}


def test_a_start_by_a_clock_that_stands_apart_stays_within_its_step():
    found = timeline(node("a", started=-5, ended=4), node("b", "a", started=90, ended=8))

    assert path(found) == [("a", 0, 4), ("b", 4, 0)]


def test_nothing_is_told_of_tasks_that_were_removed():
    gone = TimedNode("gone", [], False, None, None, None, None, None)

    assert timeline(gone) == ({}, [])
    assert timeline() == ({}, [])


def test_a_cancelled_graph_ends_with_what_was_cancelled():
    found = timeline(
        node("a", started=0, ended=4),
        node("b", "a", started=5, ended=9, end=End.CANCELLED),
        node("c", "b", ended=8, end=End.CANCELLED),
    )

    assert path(found) == [("a", 0, 4), ("b", 1, 4)]


def test_ten_thousand_nodes_with_a_hundred_thousand_edges_take_bounded_time_and_memory():
    layer, layers = 1_000, 10
    nodes = [
        node(
            f"{x}.{y}",
            *(f"{x - 1}.{(y * 7 + k) % layer}" for k in range(11) if x),
            started=None if x == layers - 1 else 10 * x + 1,
            ended=None if x == layers - 1 else 10 * x + 9 + y / layer,
        )
        for x in range(layers)
        for y in range(layer)
    ]
    tracemalloc.start()
    started = time.process_time()

    found = timeline(*nodes, now=1_000)

    took = time.process_time() - started
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.path) == layers
    assert (
        took < 10
    )  # a tenth of a second without tracing; recursion or paths of each node would take minutes
    assert peak < 50 << 20


def test_a_chain_of_ten_thousand_nodes_is_no_recursion():
    chain = [node(str(n), *([str(n - 1)] if n else []), started=n + 0.25, ended=n + 1) for n in range(10_000)]

    found = timeline(*chain)

    assert len(found.path) == 10_000
    assert sum((step.waited + step.ran for step in found.path), timedelta()) == timedelta(seconds=10_000)


def test_its_steps_let_others_have_their_turn():
    nodes = [node(str(n), started=1, ended=2) for n in range(5_000)]

    steps = timeline_of(nodes, BEGAN, BEGAN)

    assert sum(1 for _ in steps) > 5_000 / 500
