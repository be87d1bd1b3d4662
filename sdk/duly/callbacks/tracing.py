"""Where tracing hooks in. Nothing traces until `duly.otel.instrument` is called; then `active` is set."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from duly.context import TaskContext
    from duly_wire.v1 import hsc_pb2


class Tracing(Protocol):
    """What makes spans."""

    def scheduled(self, lambda_name: str, task_id: str, began_ns: int) -> None:
        """Note that a task is durable; the call began then (the wall clock, in ns)."""

    def running(
        self, lambda_name: str, context: TaskContext
    ) -> AbstractContextManager[Callable[[hsc_pb2.TaskResult], None]]:
        """Surround an attempt; what is yielded is told its result."""


active: Tracing | None = None
