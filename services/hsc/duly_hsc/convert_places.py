"""Writes what a claimed node knows of its graph: its label, and those that it waits for with their results."""

from duly_core.attachments.rules import read_uses
from duly_core.graphs.predecessors import GraphPlace
from duly_core.rpc.requests.attachment_uses import use_to_wire
from duly_core.tasks.lifecycle import Status
from duly_core.tasks.task import ClaimedTask
from duly_wire.v1 import hsc_pb2, task_pb2

_STATUSES = {status: task_pb2.TaskStatus.Value(f"TASK_STATUS_{status.name}") for status in Status}


def write_place(task: ClaimedTask, place: GraphPlace | None, message: hsc_pb2.ClaimedTask) -> None:
    """Write the place of a node; None: its graph was removed."""
    graph = message.graph
    graph.graph_id = task.graph_id or b""
    if place is None:
        return
    graph.label = place.label
    if place.truncated:
        graph.truncated = True
    add = graph.predecessors.add
    for before in place.predecessors:
        # each argument of a message costs, and most have none of the last ones
        predecessor = add(
            label=before.label,
            task_id=before.task_id,
            result=before.result or b"",
            result_encoding=before.encoding,
        )
        if before.status is not None:
            predecessor.status = _STATUSES[before.status]
        if before.omitted:
            predecessor.result_omitted = True
        if before.uses:
            predecessor.attachments.extend(map(use_to_wire, read_uses(before.uses)))
