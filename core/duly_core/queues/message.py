"""Packing of task ids: how many go into one message, and how a message is written and read.

A body is a mark and the ids, 16 bytes each, in base64: queues take text. The mark names the format, so that a body
which is not ours, or comes from a later release, is told apart before anybody asks the store for what it seems to name.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence

from duly_core.lambdas.names import QueueKey
from duly_core.queues.port import MAX_REFERENCES, Outgoing, TaskId

MARK = "duly1:"
"""What every body begins with."""
_ID_BYTES = 16
SPREAD = 8
"""How many messages the references of one queue are divided into, unless more are needed."""


class ForeignBodyError(ValueError):
    """A message's body is not one that Duly wrote; the text never repeats the body."""


def pack(task_ids: Sequence[TaskId]) -> str:
    """Write the body of a message of 1 to MAX_REFERENCES ids.

    Raises:
        ValueError: too few or too many ids, or one that has not 16 bytes.
    """
    if not 1 <= len(task_ids) <= MAX_REFERENCES:
        message = f"a message carries 1 to {MAX_REFERENCES} references, not {len(task_ids)}"
        raise ValueError(message)
    if any(len(task_id) != _ID_BYTES for task_id in task_ids):
        message = f"a task id has {_ID_BYTES} bytes"
        raise ValueError(message)
    return MARK + base64.b64encode(b"".join(task_ids)).decode("ascii")


def unpack(body: str) -> tuple[TaskId, ...]:
    """Read what `pack` wrote.

    Raises:
        ForeignBodyError: the body is not ours.
    """
    if not body.startswith(MARK):
        message = "the body does not begin as ours do"
        raise ForeignBodyError(message)
    try:
        ids = base64.b64decode(body.removeprefix(MARK), validate=True)
    except (binascii.Error, ValueError):
        message = "the body is not base64"
        raise ForeignBodyError(message) from None
    count, rest = divmod(len(ids), _ID_BYTES)
    if rest or not 1 <= count <= MAX_REFERENCES:
        message = f"the body does not hold 1 to {MAX_REFERENCES} ids of {_ID_BYTES} bytes"
        raise ForeignBodyError(message)
    return tuple(ids[start : start + _ID_BYTES] for start in range(0, len(ids), _ID_BYTES))


def batches(task_ids_by_queue: Mapping[QueueKey, Sequence[TaskId]]) -> list[Outgoing]:
    """Divide the references of each queue into messages, in their order.

    Few references go one to a message, so that several hosts share them; with a deep backlog a
    message is full, because there is enough for every host and each message costs a call.
    """
    outgoing = []
    for queue, task_ids in task_ids_by_queue.items():
        size = min(MAX_REFERENCES, -(-len(task_ids) // SPREAD))
        outgoing += [
            Outgoing(queue, tuple(task_ids[start : start + size]))
            for start in range(0, len(task_ids), size or 1)
        ]
    return outgoing
