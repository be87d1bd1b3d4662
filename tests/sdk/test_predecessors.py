"""What a callback sees of the nodes before its own."""

import pytest

import duly
from duly import testing
from duly.callbacks.predecessors import Predecessors
from duly_wire.ids import new_task_id
from duly_wire.v1 import hsc_pb2, task_pb2

app = duly.App(owner="test", version="1")


@app.callback("sum.up")
def sum_up(_payload: object, ctx: duly.TaskContext) -> dict[str, object]:
    return {
        "sum": sum(ctx.result_of(label) for label in ctx.predecessors),
        "statuses": [before.status.name for before in ctx.predecessors.values()],
        "in_graph": bool(ctx.graph_id),
    }


def test_a_callback_reads_the_results_of_the_nodes_before_it():
    run = testing.run(app, "sum.up", {}, results={"a": 1, "b": 2})

    assert run.result == {"sum": 3, "statuses": ["SUCCESS", "SUCCESS"], "in_graph": True}


def test_a_task_alone_has_no_nodes_before_it():
    run = testing.run(app, "sum.up", {})

    assert run.result == {"sum": 0, "statuses": [], "in_graph": False}


def test_a_node_that_failed_has_no_result_and_one_that_was_removed_no_status():
    place = hsc_pb2.GraphPlace(truncated=True)
    failed = task_pb2.TASK_STATUS_FATAL_FAILURE
    place.predecessors.add(label="failed", task_id=new_task_id().bytes, status=failed)
    place.predecessors.add(label="gone", task_id=new_task_id().bytes)

    found = Predecessors.from_proto(place)

    assert found["failed"].result is None
    assert found["failed"].status is duly.TaskStatus.FATAL_FAILURE
    assert found["gone"].status is None
    assert found.truncated


def test_a_result_that_did_not_come_along_says_where_to_read_it():
    place = hsc_pb2.GraphPlace()
    task_id = new_task_id()
    place.predecessors.add(
        label="a", task_id=task_id.bytes, status=task_pb2.TASK_STATUS_SUCCESS, result_omitted=True
    )

    with pytest.raises(duly.ResultOmittedError, match=str(task_id)):
        _ = Predecessors.from_proto(place)["a"].result
