"""Writes the body of a webhook: which tasks ended, and how. The same for each attempt. No I/O."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from duly.attachments.attachment import encoded_by, form_of
from duly.callbacks.payload import SentPayload, decode, encode
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from duly.callbacks.predecessors import Predecessor
    from duly.context import TaskContext

_TYPE = "task.ended"
_ELSEWHERE = (task_pb2.ENCODING_ENCRYPTED, task_pb2.ENCODING_ATTACHMENT)


def ended_event(payload: SentPayload, ctx: TaskContext) -> bytes:
    """Return what is posted for a webhook's node: the ends of the nodes that it waited for, and its own payload."""
    event = {
        "type": _TYPE,
        "data": {
            "graph_id": ctx.graph_id,
            "tasks": [_ended(each) for each in ctx.predecessors.values()],
            "tasks_truncated": ctx.predecessors.truncated,
            "payload": _value(payload.data, payload.encoding),
        },
    }
    with encoded_by(form_of):  # results and payload may name attachments
        return encode(event)[0]


def _ended(task: Predecessor) -> dict[str, Any]:
    said: dict[str, Any] = {
        "task_id": task.task_id,
        "label": task.label,
        "status": task.status_name,
    }
    if task.result_omitted or task.result_encoding in _ELSEWHERE:
        return said | {"result_omitted": True}  # read it with a client, which may have the key
    return said | {"result": _value(task.result_bytes, task.result_encoding)}


def _value(data: bytes, encoding: int) -> Any:
    """Return JSON as it is, and bytes as an object that says so."""
    value = decode(data, encoding)
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
