"""Writes what a claimed node knows of its graph: its label, and those that it waits for with their results."""

from duly_core.attachments.rules import read_uses
from duly_core.graphs.predecessors import GraphPlace
from duly_core.rpc.requests.attachment_uses import use_to_wire
from duly_core.tasks.task import ClaimedTask
from duly_wire.v1 import hsc_pb2, task_pb2


def write_place(task: ClaimedTask, place: GraphPlace | None, message: hsc_pb2.ClaimedTask) -> None:
    """Write the place of a node; None: its graph was removed."""
    message.graph.graph_id = task.graph_id or b""
    if place is None:
        return
    message.graph.label = place.label
    message.graph.truncated = place.truncated
    add = message.graph.predecessors.add
    for before in place.predecessors:
        add(
            label=before.label,
            task_id=before.task_id,
            status=task_pb2.TaskStatus.Value(f"TASK_STATUS_{before.status.name}") if before.status else None,
            result=before.result or b"",
            result_encoding=task_pb2.Encoding.ValueType(before.encoding),
            result_omitted=before.omitted,
            attachments=map(use_to_wire, read_uses(before.uses)) if before.uses else None,
        )
