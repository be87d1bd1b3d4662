"""Says when a clock that differs from Postgres's matters for a task: Postgres's alone decides when it runs."""

from collections.abc import Sequence
from datetime import timedelta

from duly_core.fleet.host_reads import clock_of
from duly_core.postgres.pool import Store
from duly_core.process.wall_clock import LARGEST_SKEW
from duly_core.tasks.store import TaskRow
from duly_frontend.explain.text import command, reason, span
from duly_wire.time_conversion import EPOCH
from duly_wire.v1 import explain_pb2

_BY_ITS_TIME = {explain_pb2.REASON_KIND_DUE_LATER, explain_pb2.REASON_KIND_ENDS_SOON}


def skew_of_client(row: TaskRow, found: Sequence[explain_pb2.Reason]) -> list[explain_pb2.Reason]:
    """Say that the clock which made the task's id was off, if the task waits for, or ended by, a time that its client gave."""
    if row["time_table"] or row["graph"] or not any(each.kind in _BY_ITS_TIME for each in found):
        return []
    made_at = EPOCH + timedelta(milliseconds=row["task_id"].int >> 80)
    ahead = made_at - row["created_at"]
    if abs(ahead) <= LARGEST_SKEW:
        return []
    repeated = "" if ahead > timedelta() else ", or the call was repeated for so long"
    return [
        _skew(
            f"the clock that made its id (its client's, or the Frontend's if it has a key) was {_off(ahead)}{repeated}: "
            "a time that the client took from that clock is off by as much",
            "give delay= in place of at=, or repair NTP on that machine",
            ahead,
        )
    ]


async def skew_of_holder(store: Store, holder: str | None) -> list[explain_pb2.Reason]:
    """Say that the clock of the host that has, or had, the task is off.

    Raises:
        StoreUnavailableError: the store does not answer.
    """
    clock = await clock_of(store, holder) if holder else None
    if clock is None or abs(clock.ahead) <= LARGEST_SKEW:
        return []
    return [
        _skew(
            f"the clock of {clock.name} is {_off(clock.ahead)}: times in its log, and of started in the history, are off "
            "by as much",
            f"repair NTP on that machine: {command('hosts', clock.host_id)}",
            clock.ahead,
            clock.name,
        )
    ]


def _off(ahead: timedelta) -> str:
    return f"{span(abs(ahead))} {'ahead of' if ahead > timedelta() else 'behind'} Postgres's"


def _skew(text: str, action: str, ahead: timedelta, holder: str = "") -> explain_pb2.Reason:
    message = reason(explain_pb2.REASON_KIND_CLOCK_SKEW, text, action, holder=holder)
    message.clock_ahead.FromTimedelta(ahead)
    return message
