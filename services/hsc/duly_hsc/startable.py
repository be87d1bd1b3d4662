"""Says when a task could start: when it was due, or when what held it back let it go. No I/O."""

from datetime import datetime, timedelta

from duly_core.gates.ends import GateEnds
from duly_core.lambdas.names import QueueKey
from duly_core.tasks.task import ClaimedTask
from duly_wire.enums import Priority
from duly_wire.time_conversion import EPOCH

_MICROSECOND = timedelta(microseconds=1)


def could_start_at(task: ClaimedTask, ends: GateEnds | None = None) -> int:
    """Return the instant in microseconds since 1970. `ends`: of gates that held whole queues; None: there were none."""
    due_at_us = task.due_at_us
    startable_at_us = task.startable_at_us or due_at_us
    if ends is not None and ends.newest is not None and due_at_us < _microseconds(ends.newest):
        released_at = ends.released_at(QueueKey(task.lambda_name, Priority(task.priority)))
        if released_at is not None:
            startable_at_us = max(startable_at_us, _microseconds(released_at))
    return max(due_at_us, startable_at_us)


def _microseconds(moment: datetime) -> int:
    return (moment - EPOCH) // _MICROSECOND
