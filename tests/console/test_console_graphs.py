"""How the console draws graphs."""

import time
from datetime import UTC, datetime, timedelta

from duly_console.graphs.layout import Edge, Node, draw, layers_of
from duly_console.graphs.summary import MOST_DRAWN, picture
from duly_console.graphs.times import WIDTH, path_of, times_of
from duly_wire.v1 import graphs_pb2, task_pb2


def node(label: str, *waits_for: str, status: int = task_pb2.TASK_STATUS_SUCCESS, name: str = "a"):
    edges = [graphs_pb2.GraphEdge(label=each) for each in waits_for]
    return graphs_pb2.GraphNodeState(
        label=label, task_id=f"task-{label}", status=status, waits_for=edges, **{"lambda": name}
    )


def test_a_node_stands_right_of_all_that_it_waits_for():
    edges = [("a", "b"), ("b", "c"), ("a", "c"), ("x", "c"), ("gone", "a")]

    assert layers_of(["c", "b", "a", "x"], edges) == {"a": 0, "x": 0, "b": 1, "c": 2}


def test_boxes_do_not_overlap_and_lie_within_the_drawing():
    nodes = [Node(str(n), "t", "l", "new") for n in range(30)]
    edges = [Edge(str(n // 3), str(n), "succeeded") for n in range(1, 30)]

    drawing = draw(nodes, edges)

    places = {(box.x, box.y) for box in drawing.boxes}
    assert len(places) == len(drawing.boxes) == 30
    for box in drawing.boxes:
        assert box.x + box.width < drawing.width
        assert box.y + box.height < drawing.height
    assert len(drawing.lines) == 29


def test_nodes_are_put_near_those_that_they_are_joined_with():
    nodes = [Node(key, key, "", "new") for key in ("a", "b", "b2", "a2")]
    drawing = draw(nodes, [Edge("a", "a2", "succeeded"), Edge("b", "b2", "succeeded")])

    rows = {box.node.key: box.y for box in drawing.boxes}
    assert (rows["a"], rows["b"]) == (rows["a2"], rows["b2"])


def test_an_empty_graph_is_drawn_as_nothing():
    assert draw([], []).boxes == []


def test_a_small_graph_has_a_box_for_each_node_that_leads_to_its_task():
    found = picture([node("a"), node("b", "a", status=task_pb2.TASK_STATUS_WAITING)])

    assert not found.is_summary
    assert {box.node.href: box.node.status for box in found.drawing.boxes} == {
        "/tasks/task-a": "success",
        "/tasks/task-b": "waiting",
    }


def test_ten_thousand_nodes_are_drawn_as_a_few_groups_with_their_worst_status():
    failed = task_pb2.TASK_STATUS_FATAL_FAILURE
    middle = [
        node(f"m{n}", f"f{n % 100}", name=f"l{n % 3}", status=failed if n == 77 else 6) for n in range(9_899)
    ]
    nodes = [*(node(f"f{n}") for n in range(100)), *middle, node("end", *(each.label for each in middle))]

    started = time.process_time()
    found = picture(nodes)

    assert time.process_time() - started < 5
    assert found.is_summary
    assert [box.node.status for box in found.drawing.boxes].count("fatal failure") == 1
    assert len(found.drawing.boxes) == 5


def test_a_chain_of_many_layers_is_not_drawn():
    chain = [node("0"), *(node(str(n), str(n - 1)) for n in range(1, MOST_DRAWN * 3))]

    found = picture(chain)

    assert found.is_summary
    assert found.drawing.boxes == []


BEGAN = datetime(2026, 11, 27, 6, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def timed(label: str, *, ready=None, started=None, ended=None):
    found = node(label)
    for name, seconds in (("ready_at", ready), ("started_at", started), ("ended_at", ended)):
        if seconds is not None:
            getattr(found, name).FromDatetime(at(seconds))
    return found


def answer_of(*steps):
    """An answer with a critical path; a step has its label, its start and its end, the last one without an end is open."""
    answer = graphs_pb2.GetGraphResponse()
    begins_at = 0
    for label, started, ended in steps:
        step = answer.critical_path.add(label=label, open=ended is None)
        step.begins_at.FromDatetime(at(begins_at))
        if started is not None:
            step.started_at.FromDatetime(at(started))
        begins_at = 100 if ended is None else ended
        step.ends_at.FromDatetime(at(begins_at))
        answer.nodes.append(node(label))
    return answer


def test_a_node_waits_from_when_it_was_ready_and_takes_time_from_its_first_run():
    now = at(60)
    ended = times_of(timed("a", ready=1, started=3, ended=45), now)
    running = times_of(timed("a", ready=1, started=20), now)
    queued = times_of(timed("a", ready=50), now)
    skipped = times_of(timed("a", ready=5, ended=6), now)

    assert (ended.waited, ended.took, ended.goes_on) == ("2 s", "42 s", False)
    assert (running.waited, running.took, running.goes_on) == ("19 s", "40 s", True)
    assert (queued.waited, queued.took) == ("10 s", "")
    assert (skipped.waited, skipped.took) == ("1 s", "")
    assert times_of(timed("a"), now).waited == ""


def test_steps_of_the_critical_path_have_shares_and_bars_on_one_scale():
    found = path_of(answer_of(("a", 10, 50), ("b", None, None)), 50)

    assert (found.length, found.is_open, found.left_out) == ("1 min 40 s", True, 0)
    assert [(line.label, line.share, line.waited, line.ran) for line in found.lines] == [
        ("a", "50 %", "10 s", "40 s"),
        ("b", "50 %", "50 s", ""),
    ]
    assert (found.lines[0].run_x, found.lines[0].run_width) == (100, 400)
    assert (found.lines[1].wait_x, found.lines[1].wait_width, found.lines[1].run_width) == (500, 500, 0)


def test_of_a_long_path_the_longest_steps_and_the_last_one_are_listed():
    steps = [(str(n), n + 0.5, n + 1) for n in range(99)]
    found = path_of(answer_of(*steps, ("slow", 99, 900), ("last", 900, 900.1)), 10)

    labels = [line.label for line in found.lines]
    assert len(labels) == 10
    assert labels[-2:] == ["slow", "last"]
    assert found.left_out == 91
    assert found.lines[-1].share == "under 1 %"
    for line in found.lines:
        assert line.run_x + line.run_width <= WIDTH
        assert line.run_width >= 4


def test_a_graph_without_times_has_no_path():
    assert path_of(graphs_pb2.GetGraphResponse(), 10) is None


def test_the_drawing_marks_the_critical_path_and_its_edges_only():
    nodes = [node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")]

    drawing = picture(nodes, ["a", "c", "d"]).drawing

    assert {box.node.key for box in drawing.boxes if box.node.is_critical} == {"a", "c", "d"}
    assert [is_critical for _, _, is_critical in drawing.lines].count(True) == 2


def test_groups_of_nodes_are_marked_if_one_of_theirs_is_critical():
    nodes = [
        *(node(f"f{n}") for n in range(MOST_DRAWN)),
        *(node(f"g{n}", f"f{n}", name="b" if n % 2 else "c") for n in range(MOST_DRAWN)),
    ]

    boxes = picture(nodes, ["f3", "g3"]).drawing.boxes

    assert {box.node.title: box.node.is_critical for box in boxes} == {"a": True, "b": True, "c": False}
