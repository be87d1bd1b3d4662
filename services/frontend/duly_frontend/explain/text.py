"""Makes the reasons of ExplainTask, and writes durations and instants as people read them."""

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from duly_core.access.grants import Scope
from duly_core.tasks.lifecycle import Status
from duly_frontend.tasks.wire import STATUS_TO_WIRE
from duly_wire.v1 import explain_pb2, task_pb2

_UNITS = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "min"),
    (timedelta(seconds=1), "s"),
)
_LONGEST_TEXT = 400


def span(duration: timedelta) -> str:
    """Return a duration in at most two units.

    >>> span(timedelta(hours=2, minutes=10, seconds=4)), span(timedelta(milliseconds=200))
    ('2 h 10 min', '1 s')
    """
    left = max(timedelta(seconds=1), duration)
    parts = []
    for unit, name in _UNITS:
        number, left = divmod(left, unit)
        parts.append((number, name))
    first = next(place for place, (number, _) in enumerate(parts) if number)
    return " ".join(f"{number} {name}" for number, name in parts[first : first + 2] if number)


def ago(row: Mapping[str, Any], moment: datetime) -> str:
    """Return how long ago an instant was.

    >>> from datetime import UTC
    >>> ago({"now": datetime(2026, 1, 1, 0, 1, tzinfo=UTC)}, datetime(2026, 1, 1, tzinfo=UTC))
    '1 min ago'
    """
    return f"{span(row['now'] - moment)} ago"


def number(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun.

    >>> number(1, "task"), number(10400, "task")
    ('1 task', '10,400 tasks')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def command(*words: str) -> str:
    """Return a command of `duly` that an advice names, as it is typed: a test runs each of them.

    >>> command("sessions", "unblock", "ann smith")
    "`duly sessions unblock 'ann smith'`"
    """
    return f"`{shlex.join(['duly', *words])}`"


def reason(
    kind: "explain_pb2.ReasonKind.ValueType",
    text: str,
    action: str = "",
    *,
    since_at: datetime | None = None,
    until_at: datetime | None = None,
    predicted_wait: timedelta | None = None,
    tasks: Iterable[explain_pb2.RelatedTask] = (),
    **fields: Any,
) -> explain_pb2.Reason:
    """Return a reason with its text on one line."""
    message = explain_pb2.Reason(kind=kind, text=one_line(text), action=action, tasks=tasks, **fields)
    if since_at is not None:
        message.since_at.FromDatetime(since_at)
    if until_at is not None:
        message.until_at.FromDatetime(until_at)
    if predicted_wait is not None:
        message.predicted_wait.FromTimedelta(predicted_wait)
    return message


def one_line(text: str) -> str:
    """Return a text on one line, and not longer than people read."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST_TEXT else f"{line[: _LONGEST_TEXT - 1]}…"


def related(row: Mapping[str, Any], label: str = "") -> explain_pb2.RelatedTask:
    """Return another task that has to do with a reason; `row` has task_id, lambda and status.

    That of a holder of units has held_since_at and units, too.
    """
    status = row["status"]
    message = explain_pb2.RelatedTask(
        task_id=str(row["task_id"]),
        label=label,
        status=STATUS_TO_WIRE[Status(status)] if status else task_pb2.TASK_STATUS_UNSPECIFIED,
    )
    setattr(message, "lambda", row["lambda"])
    if row.get("units"):
        message.units = row["units"]
    if row.get("held_since_at") is not None:
        message.held_since_at.FromDatetime(row["held_since_at"])
    return message


def may_be_named(row: Mapping[str, Any], scope: Scope | None) -> bool:
    """Whether the caller may read a task; `row` has its lambda and scheduled_by."""
    return scope is None or scope.reaches(row["lambda"], row["scheduled_by"])
