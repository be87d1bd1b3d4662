"""How pages write what the wire says: times, durations, names of enums, payloads."""

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from markupsafe import Markup, escape

from duly_wire.time_conversion import to_datetime, to_timedelta
from duly_wire.v1 import (
    access_pb2,
    explain_pb2,
    fleet_pb2,
    gates_pb2,
    graphs_pb2,
    problems_pb2,
    settings_pb2,
    task_pb2,
    time_tables_pb2,
)

_ENUMS: dict[str, tuple[Any, str]] = {
    "status": (task_pb2.TaskStatus, "TASK_STATUS_"),
    "priority": (task_pb2.Priority, "PRIORITY_"),
    "failure": (task_pb2.FailureKind, "FAILURE_KIND_"),
    "outcome": (task_pb2.AttemptOutcome, "ATTEMPT_OUTCOME_"),
    "order": (task_pb2.SessionOrder, "SESSION_ORDER_"),
    "on_failure": (task_pb2.SessionPolicy, "SESSION_POLICY_"),
    "graph": (graphs_pb2.GraphStatus, "GRAPH_STATUS_"),
    "edge": (graphs_pb2.EdgeCondition, "EDGE_CONDITION_"),
    "source": (settings_pb2.SettingSource, "SETTING_SOURCE_"),
    "catch_up": (time_tables_pb2.CatchUp, "CATCH_UP_"),
    "overlap": (time_tables_pb2.Overlap, "OVERLAP_"),
    "on_closed": (time_tables_pb2.OnClosed, "ON_CLOSED_"),
    "role": (access_pb2.Role, "ROLE_"),
    "gate_kind": (gates_pb2.GateKind, "GATE_KIND_"),
    "host_state": (fleet_pb2.HostState, "HOST_STATE_"),
    "history": (explain_pb2.HistoryKind, "HISTORY_KIND_"),
    "attachment_role": (task_pb2.AttachmentRole, "ATTACHMENT_ROLE_"),
    "breaker": (gates_pb2.BreakerState, "BREAKER_STATE_"),
    "problem": (problems_pb2.ProblemKind, "PROBLEM_KIND_"),
    "severity": (problems_pb2.ProblemSeverity, "PROBLEM_SEVERITY_"),
}
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))
_NO_DIFFERENCE = timedelta(seconds=2)
_CODE = re.compile(r"`([^`\n]{1,400})`")
_MOST_SHOWN = 64 * 1024
"""Bytes of a payload or a result on a page."""
_MOST_INDENTED = 4 * _MOST_SHOWN
"""Characters of the same with line breaks: spaces grow with the depth, so 64 KiB could become 45 MB."""


def word(number: int, kind: str) -> str:
    """Return an enum's value in words: `retriable failure`."""
    enum, prefix = _ENUMS[kind]
    try:
        name: str = enum.Name(number)
    except ValueError:
        return f"unknown ({number})"
    return name.removeprefix(prefix).lower().replace("_", " ")


def words(kind: str) -> list[tuple[str, str]]:
    """Return the values of an enum for a form: what is sent, and what is shown."""
    enum, prefix = _ENUMS[kind]
    return [
        (name.removeprefix(prefix).lower(), name.removeprefix(prefix).lower().replace("_", " "))
        for name, number in enum.items()
        if number
    ]


def number(text: str, kind: str) -> Any:
    """Return the number of what a form sent; 0: it is unknown."""
    enum, prefix = _ENUMS[kind]
    known: dict[str, int] = dict(enum.items())
    return known.get(f"{prefix}{text.upper()}", 0)


def moment(stamp: Timestamp) -> str:
    """Return an instant in UTC, to the second."""
    return to_datetime(stamp).strftime("%Y-%m-%d %H:%M:%S")


def time_of_day(stamp: Timestamp) -> str:
    """Return an instant in UTC, to the millisecond; with its day if that is not today."""
    at = to_datetime(stamp)
    if at.date() != datetime.now(UTC).date():
        return at.strftime("%m-%d %H:%M:%S")
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


def iso(stamp: Timestamp) -> str:
    """Return an instant as machines read it."""
    return to_datetime(stamp).isoformat()


def ago(stamp: Timestamp, now: datetime | None = None) -> str:
    """Return how long ago an instant was, or in how long it will be."""
    delta = (now or datetime.now(UTC)) - to_datetime(stamp)
    if abs(delta) < timedelta(seconds=1):
        return "now"
    return f"{span(delta)} ago" if delta > timedelta() else f"in {span(-delta)}"


def next_step(event: explain_pb2.HistoryEvent) -> str:
    """Return how long after an event of a task's history Duly was to look at the task again."""
    if not event.HasField("next_trigger_at"):
        return "\N{EN DASH}"
    delta = to_datetime(event.next_trigger_at) - to_datetime(event.happened_at)
    return f"after {span(delta)}" if delta > timedelta() else "at once"


def times(value: int) -> str:
    """Return how often something happened.

    >>> times(0), times(1), times(3)
    ('never', 'once', '3 times')
    """
    return {0: "never", 1: "once"}.get(value) or f"{count(value)} times"


def span(delta: timedelta) -> str:
    """Return a duration in its two largest units."""
    seconds = delta.total_seconds()
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{_short(seconds)} s"
    if seconds < 60:
        return f"{seconds:.0f} s"
    left = int(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
    if len(parts) < 2 and left and seconds < 3_600:
        parts.append(f"{left} s")
    return " ".join(parts)


def duration(value: Duration) -> str:
    """Return a duration of the wire in words."""
    return span(to_timedelta(value))


def clock(message: Message) -> str:
    """Return how the clock of a host or a service stands to Postgres's; up to 2 s are no difference."""
    if not has(message, "clock_ahead"):
        return "unknown"
    ahead = to_timedelta(field(message, "clock_ahead"))
    if abs(ahead) <= _NO_DIFFERENCE:
        return "ok"
    return f"{span(abs(ahead))} {'behind' if ahead < timedelta() else 'ahead'}"


def count(value: float) -> str:
    """Return a number with separators of thousands."""
    return f"{value:,.0f}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def counted(value: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun.

    >>> counted(1, "task"), counted(2, "task was", "tasks were")
    ('1 task', '2 tasks were')
    """
    return f"{count(value)} {noun if value == 1 else plural or f'{noun}s'}"


def size(value: int) -> str:
    """Return a number of bytes in words."""
    if value < 1024:
        return f"{value} B"
    return f"{_short(value / 1024)} KiB" if value < 1024 * 1024 else f"{_short(value / 1024 / 1024)} MiB"


def _short(value: float) -> str:
    """Return a number with one digit after the point, unless that is 0."""
    return f"{value:,.1f}".removesuffix(".0")


def codes(text: str) -> Markup:
    """Return a text whose parts in backticks are drawn as what is typed. All of it is escaped.

    >>> codes("fix it, then `duly redrive <TASK>`")
    Markup('fix it, then <code>duly redrive &lt;TASK&gt;</code>')
    """
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704 (what is not markup is escaped)


def has(message: Message, name: str) -> bool:
    """Whether a message has a field."""
    return message.HasField(name)


def field(message: Message, name: str) -> Any:
    """Return a field whose name Python or a template keeps for itself, such as `lambda`."""
    return getattr(message, name)


def body(data: bytes, encoding: int) -> str:
    """Return a payload or a result as people read it."""
    if not data:
        return "empty"
    if encoding == task_pb2.ENCODING_ENCRYPTED:
        return f"encrypted, {size(len(data))}: only clients and workers with the key read it"
    if encoding == task_pb2.ENCODING_ATTACHMENT:
        return "too large to be shown here: it is one of the attachments below"
    cut = data[:_MOST_SHOWN]
    more = f"\n... and {size(len(data) - len(cut))} more" if len(data) > len(cut) else ""
    if encoding == task_pb2.ENCODING_RAW:
        try:
            return cut.decode() + more
        except UnicodeDecodeError:
            return cut[:4096].hex(" ", 2) + f"\n({size(len(data))} of binary data)"
    text = cut.decode(errors="replace")
    if more:
        return text + more
    try:
        return _indented(json.loads(text)) or text
    except (ValueError, RecursionError):
        return text


def _indented(value: object) -> str:
    """Return JSON with line breaks; empty: that would be too long, or take too long."""
    parts: list[str] = []
    left = _MOST_INDENTED
    for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
        left -= len(part)
        if left < 0:
            return ""
        parts.append(part)
    # JSON may have half a character (`\ud800`), which no page can carry: it is written as it was sent
    return "".join(parts).encode(errors="backslashreplace").decode()


def total_slots(executors: Iterable[fleet_pb2.Executor]) -> int:
    """Return how many callbacks Executors may run at a time."""
    return sum(each.processes * each.slots for each in executors)


def attribute(made: task_pb2.Attribute) -> str:
    """Return the value of an attribute, as searches have it."""
    kind = made.WhichOneof("value")
    if kind == "number":
        return str(made.number)
    return str(made.flag).lower() if kind == "flag" else made.text


def as_filter(made: task_pb2.Attribute) -> str:
    """Return an attribute as the filter of a list has it: with its value in quotes, if it would not be read otherwise.

    >>> as_filter(task_pb2.Attribute(name="city", text="Rome, Italy"))
    'city="Rome, Italy"'
    """
    value = attribute(made)
    is_plain = value == value.strip() and "," not in value and not value.startswith('"')
    return f"{made.name}={value if is_plain else json.dumps(value, ensure_ascii=False)}"
