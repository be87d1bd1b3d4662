"""What the page of a graph says of times: of each node, and of the steps of the critical path. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from google.protobuf.message import Message

from duly_console.formatting import span
from duly_wire.time_conversion import to_datetime
from duly_wire.v1 import graphs_pb2

WIDTH = 1_000
"""Units of a bar."""
_LEAST = 4
"""Of a part, so that it is seen."""


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """Of a node, in words; empty: there is none."""

    waited: str
    """From when it was ready to its first run, to its end without one, or until now."""
    took: str
    """From its first run to its end, or until now."""
    goes_on: bool
    """It runs, or waits to run."""


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step of the critical path as it is listed, with its place on the time of the whole path."""

    label: str
    task_id: str
    status: int
    share: str
    waited: str
    ran: str
    is_open: bool
    awaited_events: str
    wait_x: int
    wait_width: int
    run_x: int
    run_width: int


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """The path, and how long it is."""

    lines: Sequence[StepLine]
    left_out: int
    """Steps in the middle that are not listed."""
    left_out_share: str
    length: str
    is_open: bool


def times_of(node: graphs_pb2.GraphNodeState, now: datetime) -> NodeTimes:
    """Return the times of a node; `now` is when it was read."""
    ready, started, ended = (_instant(node, name) for name in ("ready_at", "started_at", "ended_at"))
    if ready is None:
        return NodeTimes("", "", goes_on=False)
    goes_on = ended is None
    until = started or ended or now
    waited = span(max(until - ready, timedelta())) if until >= ready or not goes_on else ""
    took = span(max((ended or now) - started, timedelta())) if started else ""
    return NodeTimes(waited, took, goes_on)


def path_of(answer: graphs_pb2.GetGraphResponse, most: int) -> CriticalPath | None:
    """Return the critical path, of which `most` steps are listed: the longest ones; None: there is none."""
    steps = answer.critical_path
    if not steps:
        return None
    first, last = to_datetime(steps[0].begins_at), to_datetime(steps[-1].ends_at)
    whole = max((last - first).total_seconds(), 0.000_001)
    nodes = {node.label: node for node in answer.nodes}
    listed = set(range(len(steps)))
    if len(steps) > most:
        by_length = sorted(range(len(steps) - 1), key=lambda place: -_length(steps[place]))
        listed = {*by_length[: most - 1], len(steps) - 1}  # the last one says what ended it, or what goes on
    left_out = sum(_length(step) for place, step in enumerate(steps) if place not in listed)
    return CriticalPath(
        [_line(steps[place], nodes.get(steps[place].label), first, whole) for place in sorted(listed)],
        len(steps) - len(listed),
        _share(left_out / whole),
        span(last - first),
        steps[-1].open,
    )


def _length(step: graphs_pb2.CriticalStep) -> float:
    return (to_datetime(step.ends_at) - to_datetime(step.begins_at)).total_seconds()


def _line(
    step: graphs_pb2.CriticalStep, node: graphs_pb2.GraphNodeState | None, first: datetime, whole: float
) -> StepLine:
    begins_at, ends_at = to_datetime(step.begins_at), to_datetime(step.ends_at)
    runs_at = _instant(step, "started_at") or ends_at

    def place(moment: datetime) -> int:
        return round((moment - first).total_seconds() / whole * WIDTH)

    wait_width = max(_LEAST if runs_at > begins_at else 0, place(runs_at) - place(begins_at))
    run_width = max(_LEAST if ends_at > runs_at else 0, place(ends_at) - place(runs_at))
    return StepLine(
        step.label,
        node.task_id if node else "",
        node.status if node else 0,
        _share((ends_at - begins_at).total_seconds() / whole),
        span(runs_at - begins_at),
        span(ends_at - runs_at) if step.HasField("started_at") else "",
        step.open,
        node.awaited_events if node else "",
        min(place(begins_at), WIDTH - wait_width),
        wait_width,
        min(place(runs_at), WIDTH - run_width),
        run_width,
    )


def _share(part: float) -> str:
    return "under 1 %" if 0 < part < 0.01 else f"{part:.0%}".replace("%", " %")


def _instant(message: Message, name: str) -> datetime | None:
    return to_datetime(getattr(message, name)) if message.HasField(name) else None
