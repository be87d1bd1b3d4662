"""Writes the body of a webhook: which tasks ended, and how. The same for each attempt. No I/O."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from duly.callbacks.payload import SentPayload, decode, encode
from duly_wire.v1 import task_pb2

if TYPE_CHECKING:
    from duly.callbacks.predecessors import Predecessor
    from duly.context import TaskContext

_TYPE = "task.ended"


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
    return encode(event)[0]


def _ended(task: Predecessor) -> dict[str, Any]:
    said: dict[str, Any] = {
        "task_id": task.task_id,
        "label": task.label,
        "status": "removed" if task.status is None else task.status.name.lower(),
    }
    if task.result_omitted or task.result_encoding == task_pb2.ENCODING_ENCRYPTED:
        return said | {"result_omitted": True}  # read it with a client, which may have the key
    return said | {"result": _value(task.result_bytes, task.result_encoding)}


def _value(data: bytes, encoding: int) -> Any:
    """Return JSON as it is, and bytes as an object that says so."""
    value = decode(data, encoding)
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value
