"""What is to be different about a task that nobody runs yet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from duly.callbacks.codec import payload_of, protect
from duly.callbacks.payload import encode
from duly.keep import KEEP
from duly.tasks.new_task import check_size, when_fields
from duly.transport.enum_members import member
from duly_wire.enums import Priority
from duly_wire.v1 import frontend_pb2

if TYPE_CHECKING:
    from duly.callbacks.codec import Codec
    from duly.tasks.reads import TaskRef


@dataclass(frozen=True, slots=True)
class TaskUpdate:
    """One update for `update_many`; what is left out stays as it is."""

    task: TaskRef
    at: datetime | None = None
    delay: timedelta | None = None
    priority: Priority | None = None
    payload: Any = KEEP

    def to_proto(self, codec: Codec | None = None, lambda_name: str = "") -> frontend_pb2.TaskUpdate:
        """Return the update as it is sent. Raises InvalidTaskError, EncodingError, PayloadTooLargeError.

        `codec` encrypts the payload for the lambda of this name.
        """
        task_id = str(getattr(self.task, "task_id", self.task))
        update = frontend_pb2.TaskUpdate(task_id=task_id, **when_fields(self.at, self.delay))
        if self.priority is not None:
            update.priority = member("priority", self.priority, Priority)  # type: ignore[assignment]
        if self.payload is not KEEP:
            update.payload, update.payload_encoding = protect(
                codec, encode(self.payload), payload_of(lambda_name), task_id
            )
            check_size(update.payload)
        return update
