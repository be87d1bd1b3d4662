"""Puts the history of a task together: its schedule, its runs, the rare events, and its end."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duly_core.lambdas.names import base_name
from duly_core.lambdas.session_names import SessionId
from duly_core.tasks.history import Event, events_of
from duly_core.tasks.lifecycle import FINAL, HELD, Status
from duly_core.tasks.store import TaskRow
from duly_core.tasks.task import AttemptOutcome
from duly_core.time_tables.time_table import nominal_of_key
from duly_frontend.explain.event_kinds import FRONTEND, HSC, KINDS, OF_CALLBACKS, OF_TASKS, STORE_CONSUMER
from duly_frontend.explain.ramps import is_ramped
from duly_frontend.explain.text import one_line
from duly_frontend.tasks.wire import ATTEMPT_OUTCOME_TO_WIRE, STATUS_TO_WIRE
from duly_wire.v1 import explain_pb2, task_pb2

_SAME_STATEMENT = timedelta(seconds=1)
"""An end and the event that tells of it are not at the same microsecond."""

_Line = tuple[datetime, explain_pb2.HistoryEvent]
"""An event, and its place: a host's clock does not put a start before its claim."""


def named_tasks(row: TaskRow) -> set[UUID]:
    """Return the other tasks that the history of a task names."""
    events = events_of(row["events"], row["live_events"])
    return {UUID(event.about) for event in events if event.kind in OF_TASKS and event.about}


def history_of(
    row: TaskRow, runs: Sequence[TaskRow], *, withheld: bool, hidden: Collection[UUID] = ()
) -> list[explain_pb2.HistoryEvent]:
    """Return the history of a task, oldest first.

    Args:
        row: the task.
        runs: its runs that did not succeed, oldest first.
        withheld: leave out what callbacks said.
        hidden: other tasks, which the caller may not read.
    """
    unnamed = {str(task_id) for task_id in hidden}
    lines = [_scheduled(row)]
    sent = {each["enqueued_at"] for each in runs} | {row["sent_at"], row["run_enqueued_at"]}
    for run in runs:
        lines += _run(run, sent, withheld=withheld)
    lines += [
        _event(replace(event, about="") if event.about in unnamed else event, withheld=withheld)
        for event in events_of(row["events"], row["live_events"])
    ]
    lines += _current(row, runs)
    if Status(row["status"]) in FINAL:
        lines += _end(row, lines, runs, withheld=withheld)
    lines.sort(key=lambda line: line[0])
    return [line[1] for place, line in enumerate(lines) if line not in lines[max(0, place - 3) : place]]


def _line(
    kind: "explain_pb2.HistoryKind.ValueType",
    happened_at: datetime,
    *,
    place: datetime | None = None,
    status: Status | None = None,
    next_trigger_at: datetime | None = None,
    reason: str = "",
    **fields: Any,
) -> _Line:
    message = explain_pb2.HistoryEvent(
        kind=kind,
        status=STATUS_TO_WIRE[status] if status else task_pb2.TASK_STATUS_UNSPECIFIED,
        reason=one_line(reason),
        **fields,
    )
    message.happened_at.FromDatetime(happened_at)
    if next_trigger_at is not None:
        message.next_trigger_at.FromDatetime(next_trigger_at)
    return place or happened_at, message


def _moved_from(row: TaskRow) -> str:
    """Return where a calendar moved a tick from: its key names the tick of the rhythm itself."""
    nominal_at = nominal_of_key(row["tick_key"], row["time_table"])
    if nominal_at is None or nominal_at == row["scheduled_at"]:
        return ""
    return f", which its calendar moved from {nominal_at:%Y-%m-%d %H:%M:%S}Z"


def _scheduled(row: TaskRow) -> _Line:
    is_tick = row["time_table"] is not None
    why = f"a tick of the time table {row['time_table']}{_moved_from(row)}" if is_tick else ""
    if row["graph"] is not None:
        why = f"a node of the graph {row['graph']}"
    elif row["session"] is not None:
        why = f"in the session {SessionId.parse(row['session']).key}"
    if is_ramped(row):
        sent = f"the ramp of {base_name(row['lambda'])} sent it to version {row['ramp_version']}"
        why = f"{why}; {sent}" if why else sent
    return _line(
        explain_pb2.HISTORY_KIND_SCHEDULED,
        row["created_at"],
        service=STORE_CONSUMER if is_tick else FRONTEND,
        principal=row["scheduled_by"] or "",
        next_trigger_at=None if row["graph"] or row["session"] else row["scheduled_at"],
        reason=why,
    )


def _run(run: TaskRow, sent: Collection[datetime | None], *, withheld: bool) -> Iterator[_Line]:
    """Yield the lines of a run that did not succeed; `sent` has the instants at which references were sent."""
    yield from _begin(run, run["enqueued_at"], run["claimed_at"], run["started_at"])
    outcome = AttemptOutcome(run["outcome"])
    if outcome in (AttemptOutcome.HANDED_OVER, AttemptOutcome.WAITED):
        return  # an event of its own tells of that
    is_end = run["next_trigger_at"] is None
    message = "" if withheld else run["failure_message"] or ""
    yield _line(
        explain_pb2.HISTORY_KIND_RUN_ENDED,
        run["ended_at"],
        status=None if is_end else _after(outcome, is_sent=run["ended_at"] in sent),
        service=STORE_CONSUMER if outcome is AttemptOutcome.SILENT else HSC,
        holder=run["holder"],
        attempt=run["attempt"],
        fence=run["fence"],
        outcome=ATTEMPT_OUTCOME_TO_WIRE[outcome],
        failure_kind=run["failure_kind"] or 0,
        next_trigger_at=run["next_trigger_at"],
        reason=message,
    )


def _after(outcome: AttemptOutcome, *, is_sent: bool) -> Status:
    if outcome in (AttemptOutcome.SNOOZED, AttemptOutcome.RELEASED):
        return Status.NEW
    return Status.ENQUEUED if is_sent else Status.RETRIABLE_FAILURE


def _begin(
    run: TaskRow, enqueued_at: datetime | None, claimed_at: datetime | None, started_at: datetime | None
) -> Iterator[_Line]:
    """Yield what came before the end of a run; `run` has holder, attempt and fence."""
    if enqueued_at is not None:
        yield _line(
            explain_pb2.HISTORY_KIND_ENQUEUED, enqueued_at, status=Status.ENQUEUED, service=STORE_CONSUMER
        )
    who = {"holder": run["holder"], "attempt": run["attempt"], "fence": run["fence"]}
    if claimed_at is not None:
        yield _line(explain_pb2.HISTORY_KIND_CLAIMED, claimed_at, status=Status.CLAIMED, service=HSC, **who)
    if started_at is not None:
        place = started_at if claimed_at is None else max(started_at, claimed_at)
        ended_at = run.get("ended_at")
        yield _line(
            explain_pb2.HISTORY_KIND_STARTED,
            started_at,
            place=place if ended_at is None else min(place, ended_at),
            status=Status.PROCESSING,
            **who,
        )


def _current(row: TaskRow, runs: Sequence[TaskRow]) -> Iterator[_Line]:
    """Yield what is known of the run that goes on, or that succeeded."""
    run = {
        "holder": row["holder"] or row["run_holder"],
        "attempt": (row["failures"] or 0) + (row["crashes"] or 0) + 1,
        "fence": row["fence"],
        "ended_at": row["finished_at"],
    }
    status = Status(row["status"])
    if status is Status.SUCCESS and runs and runs[-1]["fence"] == row["fence"]:
        return  # it was handed over, and then completed: the run has told how it began
    if status is Status.SUCCESS:
        yield from _begin(run, row["run_enqueued_at"], row["run_claimed_at"], row["run_started_at"])
    elif status in HELD:
        yield from _begin(run, row["sent_at"], row["claimed_at"], None)
    elif status is Status.ENQUEUED and row["sent_at"] is not None:
        yield from _begin(run, row["sent_at"], None, None)


def _event(event: Event, *, withheld: bool) -> _Line:
    kind, service, status, text = KINDS.get(
        event.kind, (explain_pb2.HISTORY_KIND_UNSPECIFIED, "", None, event.kind)
    )
    about = "" if withheld and event.kind in OF_CALLBACKS else event.about
    return _line(
        kind,
        event.happened_at,
        status=status,
        service=service,
        principal=event.principal,
        next_trigger_at=event.next_trigger_at,
        reason=text.format(about=about or ("another task" if event.kind in OF_TASKS else "")),
    )


def _end(row: TaskRow, lines: Sequence[_Line], runs: Sequence[TaskRow], *, withheld: bool) -> Iterator[_Line]:
    """Yield the end of a task, unless an event of its own tells of it."""
    finished_at = row["finished_at"]
    if any(
        line.kind == explain_pb2.HISTORY_KIND_ENDED
        and line.status in (task_pb2.TASK_STATUS_CANCELLED, task_pb2.TASK_STATUS_SUCCESS)
        and abs(happened_at - finished_at) < _SAME_STATEMENT
        for happened_at, line in lines
    ):
        return
    status = Status(row["status"])
    is_by_run = bool(runs) and runs[-1]["ended_at"] == finished_at and runs[-1]["outcome"] != "silent"
    message = "" if withheld or status is Status.SUCCESS else row["failure_message"] or ""
    yield _line(
        explain_pb2.HISTORY_KIND_ENDED,
        finished_at,
        status=status,
        service=HSC if status is Status.SUCCESS or is_by_run else STORE_CONSUMER,
        holder=row["run_holder"] or (runs[-1]["holder"] if is_by_run else ""),
        fence=row["fence"],
        failure_kind=0 if status in (Status.SUCCESS, Status.CANCELLED) else row["failure_kind"] or 0,
        reason=message,
    )
