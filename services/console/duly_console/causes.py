"""Groups tasks that failed by their cause, as the incident board does. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from google.protobuf.timestamp_pb2 import Timestamp

from duly_core.lambdas.names import base_name
from duly_core.tasks import causes
from duly_core.tasks.causes import Cause
from duly_wire.v1 import task_pb2

PACE = 10
"""Tasks a second of one cause, if nobody says another: a fix is tried before all run again."""


@dataclass
class Group:
    """The tasks that failed by one cause."""

    cause: Cause
    tasks: list[task_pb2.Task] = field(default_factory=list)

    @property
    def last_failed_at(self) -> Timestamp:
        """When the last of them failed."""
        return max((task.last_failure.failed_at for task in self.tasks), key=_order)

    @property
    def first_failed_at(self) -> Timestamp:
        """When the first of them failed."""
        return min((task.last_failure.failed_at for task in self.tasks), key=_order)


def cause_of(task: task_pb2.Task) -> Cause:
    """Return the cause of the last failure of a task."""
    failure = task.last_failure
    return causes.cause_of(base_name(getattr(task, "lambda")), failure.kind, failure.message)


def grouped(tasks: Iterable[task_pb2.Task]) -> Sequence[Group]:
    """Group tasks that failed, the largest group first."""
    groups: dict[Cause, Group] = {}
    for task in tasks:
        cause = cause_of(task)
        groups.setdefault(cause, Group(cause)).tasks.append(task)
    return sorted(groups.values(), key=lambda group: (-len(group.tasks), group.cause))


def _order(stamp: Timestamp) -> tuple[int, int]:
    return stamp.seconds, stamp.nanos
