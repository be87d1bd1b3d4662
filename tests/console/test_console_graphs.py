"""How the console draws graphs."""

import time

from duly_console.graphs.layout import Edge, Node, draw, layers_of
from duly_console.graphs.summary import MOST_DRAWN, picture
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
