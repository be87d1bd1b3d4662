"""Makes rows of bars from the history of a task: how long each run was queued, claimed and ran, and what it waited for. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from duly_console.formatting import span
from duly_wire.time_conversion import to_datetime
from duly_wire.v1 import explain_pb2, task_pb2

WIDTH = 1_000
"""Units of a bar: a drawing is as wide as its place."""
_LEAST = 4
"""Of a part, so that it is seen."""


class Phase(StrEnum):
    """What a task does in a part of its time."""

    LATER = "later"
    """It is to run at a later time: scheduled so, put off, or a retry that backs off."""
    WAITS = "waits"
    """For units, a gate, its session, its graph, an event or a completion."""
    QUEUED = "queued"
    """It is due, and no worker has it."""
    CLAIMED = "claimed"
    """A worker has it, and its callback has not begun."""
    RUN = "run"


_BECOMES = {
    explain_pb2.HISTORY_KIND_PARKED: Phase.WAITS,
    explain_pb2.HISTORY_KIND_GATED: Phase.WAITS,
    explain_pb2.HISTORY_KIND_SESSION_OVERTAKEN: Phase.WAITS,
    explain_pb2.HISTORY_KIND_HANDED_OVER: Phase.WAITS,
    explain_pb2.HISTORY_KIND_EVENT_AWAITED: Phase.WAITS,
    explain_pb2.HISTORY_KIND_UNPARKED: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_UNGATED: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_SESSION_TURN: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_SESSION_UNBLOCKED: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_GRAPH_READY: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_EVENT_RECEIVED: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_EVENT_TIMED_OUT: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_ENQUEUED: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_PUT_BACK: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_DEQUEUED: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_RATE_LIFTED: Phase.QUEUED,
    explain_pb2.HISTORY_KIND_PUT_OFF: Phase.LATER,
    explain_pb2.HISTORY_KIND_DELAYED: Phase.LATER,
    explain_pb2.HISTORY_KIND_CLAIMED: Phase.CLAIMED,
    explain_pb2.HISTORY_KIND_STARTED: Phase.RUN,
}
_BETWEEN = frozenset((explain_pb2.HISTORY_KIND_HANDED_OVER, explain_pb2.HISTORY_KIND_EVENT_AWAITED))
"""The run ended with it, and its task goes on."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a row."""

    phase: Phase
    begins_at: datetime
    ends_at: datetime

    @property
    def length(self) -> timedelta:
        """How long it took."""
        return self.ends_at - self.begins_at


@dataclass(slots=True)
class Row:
    """A run, and what came before it since the run before."""

    fence: int = 0
    """Its number; 0: it has not been claimed."""
    attempt: int = 0
    holder: str = ""
    parts: list[Part] = field(default_factory=list)
    is_open: bool = False
    """It goes on."""
    status: int = 0
    """With which the task ended; unspecified: it went on."""
    outcome: int = 0
    """Of a run that did not end the task."""
    failure_kind: int = 0
    reason: str = ""

    def length(self, *phases: Phase) -> str:
        """Return how long these parts took together; empty: there were none."""
        found = [part.length for part in self.parts if part.phase in phases]
        return span(sum(found, timedelta())) if found else ""

    @property
    def before(self) -> str:
        """How long it was no turn of its."""
        return self.length(Phase.LATER, Phase.WAITS)


@dataclass(frozen=True, slots=True)
class Bar:
    """A part as it is drawn."""

    phase: Phase
    x: int
    width: int
    title: str


def waterfall(
    history: Sequence[explain_pb2.HistoryEvent], until: datetime, *, is_processing: bool = False
) -> list[Row]:
    """Return a row for each run, oldest first, and one for what goes on; `until` is now, by the store's clock.

    When a callback began is stored once its run is over. Until then the status says that it has begun.
    """
    maker = _Maker()
    for event in history:
        maker.take(event)
    maker.close(until, is_processing=is_processing)
    return [row for row in maker.rows if row.parts or row.fence or row.status]


def scale(rows: Sequence[Row]) -> tuple[datetime, datetime] | None:
    """Return what all bars together show: from when the task was first to run, or waited, until its last end; None: nothing."""
    parts = [part for row in rows for part in row.parts]
    drawn = [part for part in parts if part.phase is not Phase.LATER]
    if not drawn:
        return None
    return min(part.begins_at for part in drawn), max(part.ends_at for part in parts)


def bars(rows: Sequence[Row]) -> list[list[Bar]]:
    """Return the bars of each row, on one scale."""
    shown = scale(rows)
    if shown is None:
        return [[] for _ in rows]
    first, last = shown
    whole = max((last - first).total_seconds(), 0.001)
    return [
        [bar for part in row.parts if part.ends_at > first for bar in [_bar(part, first, whole)]]
        for row in rows
    ]


def _bar(part: Part, first: datetime, whole: float) -> Bar:
    x = max(0.0, (part.begins_at - first).total_seconds()) / whole * WIDTH
    end = (part.ends_at - first).total_seconds() / whole * WIDTH
    width = max(_LEAST, round(end - x))
    return Bar(part.phase, min(round(x), WIDTH - width), width, f"{part.phase} {span(part.length)}")


class _Maker:
    """Reads events in their order."""

    def __init__(self) -> None:
        self.rows = [Row()]
        self._phase: Phase | None = None
        self._since: datetime | None = None
        self._due_at: datetime | None = None

    def take(self, event: explain_pb2.HistoryEvent) -> None:
        """Read the next event."""
        if not event.HasField("happened_at"):
            return
        at = to_datetime(event.happened_at)
        due_at = to_datetime(event.next_trigger_at) if event.HasField("next_trigger_at") else None
        row = self.rows[-1]
        kind = event.kind
        if kind in (explain_pb2.HISTORY_KIND_CLAIMED, explain_pb2.HISTORY_KIND_STARTED):
            row.fence, row.attempt, row.holder = event.fence, event.attempt, event.holder
        if kind in (explain_pb2.HISTORY_KIND_SCHEDULED, explain_pb2.HISTORY_KIND_REDRIVEN):
            self._begin(
                Phase.WAITS if due_at is None and kind != explain_pb2.HISTORY_KIND_REDRIVEN else Phase.QUEUED,
                at,
                due_at,
            )
        elif kind == explain_pb2.HISTORY_KIND_RUN_ENDED:
            self._end(at)
            row.fence, row.attempt = event.fence, event.attempt
            row.holder = event.holder or row.holder
            row.outcome, row.failure_kind, row.reason = event.outcome, event.failure_kind, event.reason
            self.rows.append(Row())
            if due_at is not None:
                self._begin(Phase.QUEUED, at, due_at)
        elif kind == explain_pb2.HISTORY_KIND_ENDED:
            self._end(at)
            last = row if row.parts or row.fence or len(self.rows) == 1 else self.rows[-2]
            last.status = event.status
            last.failure_kind = event.failure_kind or last.failure_kind
            last.reason = event.reason or last.reason
            if last is row:
                self.rows.append(Row())
        elif kind in _BETWEEN and self._phase in (Phase.CLAIMED, Phase.RUN):
            self._end(at)
            row.reason = event.reason
            self.rows.append(Row())
            self._begin(Phase.WAITS, at, None)
        elif (kind in _BECOMES and self._phase is not None) or kind == explain_pb2.HISTORY_KIND_CLAIMED:
            self._begin(_BECOMES[kind], at, due_at)

    def close(self, until: datetime, *, is_processing: bool) -> None:
        """End what goes on."""
        if self._phase is Phase.CLAIMED and is_processing:
            self._phase = Phase.RUN
        if self._phase is not None:
            self.rows[-1].is_open = True
            self._end(until)

    def _begin(self, phase: Phase, at: datetime, due_at: datetime | None) -> None:
        self._end(at)
        self._phase, self._since, self._due_at = phase, at, due_at

    def _end(self, at: datetime) -> None:
        """Add the parts of the phase that is over: until its due time a task is to run later."""
        if self._phase is None or self._since is None:
            return
        since, phase = self._since, self._phase
        if self._due_at is not None and self._due_at > since:
            self._add(Phase.LATER, since, min(self._due_at, at))
            since = min(self._due_at, at)
            phase = Phase.QUEUED if phase is Phase.LATER else phase
        self._add(phase, since, at)
        self._phase = self._since = self._due_at = None

    def _add(self, phase: Phase, begins_at: datetime, ends_at: datetime) -> None:
        if ends_at > begins_at or phase is Phase.RUN:  # clocks of hosts may stand apart
            self.rows[-1].parts.append(Part(phase, begins_at, max(begins_at, ends_at)))


def is_success(row: Row) -> bool:
    """Return whether the task succeeded with this run."""
    return row.status == task_pb2.TASK_STATUS_SUCCESS
