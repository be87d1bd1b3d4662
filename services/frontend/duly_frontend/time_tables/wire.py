"""Time tables from the store's rows to the wire."""

from datetime import datetime
from itertools import islice
from uuid import UUID

from duly_core.access.roles import Action
from duly_core.rpc.requests.attributes import attribute_to_wire
from duly_core.rpc.requests.names import unknown_lambda
from duly_core.rpc.requests.problem import Problem
from duly_core.tasks.attribute_rules import read as read_attributes
from duly_core.time_tables.rhythm import ticks_from
from duly_core.time_tables.rows import TableRow
from duly_core.time_tables.store import PutAnswer, PutVerdict
from duly_core.time_tables.time_table import Rhythm
from duly_core.traffic.slices import Steps
from duly_frontend.access.reach import refused
from duly_frontend.time_tables.definitions import unknown_calendar
from duly_wire.time_conversion import to_duration, to_timestamp
from duly_wire.v1 import task_pb2, time_tables_pb2

_TIMES = (
    "paused_at",
    "next_tick_at",
    "next_fire_at",
    "buffered_tick_at",
    "last_tick_at",
    "created_at",
    "updated_at",
)


def state_to_wire(row: TableRow) -> time_tables_pb2.TimeTableState:
    """Return a time table, without its next ticks."""
    table = time_tables_pb2.TimeTable(
        name=row.name,
        payload=row.payload,
        payload_encoding=task_pb2.Encoding.ValueType(row.payload_encoding),
        priority=task_pb2.Priority.ValueType(row.priority),
        collection=row.collection,
        zone=row.zone if row.cron or row.zone != "UTC" else "",
        catch_up=time_tables_pb2.CatchUp.ValueType(row.catch_up),
        overlap=time_tables_pb2.Overlap.ValueType(row.overlap),
        calendar=row.calendar or "",
        on_closed=time_tables_pb2.OnClosed.ValueType(row.on_closed or 0),
        business_hours=row.business_hours or False,
        working_day=row.working_day or 0,
        fair_key=row.fair_key or "",
    )
    setattr(table, "lambda", row.lambda_name)
    if row.every is not None:
        table.every.CopyFrom(to_duration(row.every))
        if row.every_offset:
            table.offset.CopyFrom(to_duration(row.every_offset))
    else:
        table.cron = row.cron or ""
    if row.catch_up == time_tables_pb2.CATCH_UP_ALL:
        table.catch_up_window.CopyFrom(to_duration(row.catch_up_window))
    if row.jitter:
        table.jitter.CopyFrom(to_duration(row.jitter))
    for name, value in read_attributes(row.attributes):
        table.attributes.append(attribute_to_wire(name, value))
    for need in row.needs:
        table.resources.add(name=need.name, key=need.key, weight=need.weight)
    if (session := row.session) is not None:
        table.session.key = session.key
        table.session.order = task_pb2.SessionOrder.ValueType(session.order)
        table.session.on_failure = task_pb2.SessionPolicy.ValueType(session.policy)
    state = time_tables_pb2.TimeTableState(
        table=table,
        revision=row.revision,
        declared=row.declared,
        pause_note=row.pause_note or "",
        problem=row.problem or "",
        last_task_id=str(UUID(bytes=row.last_task_id)) if row.last_task_id else "",
    )
    for name in _TIMES:
        instant = getattr(row, name)
        if instant is not None:
            getattr(state, name).CopyFrom(to_timestamp(instant))
    return state


def adding_ticks(
    state: time_tables_pb2.TimeTableState, row: TableRow, rhythm: Rhythm, following: int
) -> Steps[None]:
    """Add in steps so many of its next ticks: a thousand rare ones, such as leap days, take seconds."""
    if not following or row.next_tick_at is None:
        return
    # of a paused one: those that it would have if it were resumed now
    start = row.next_tick_at if row.paused_at is None else max(row.next_tick_at, row.read_at)
    for instant in islice(ticks_from(rhythm, start), following):
        state.next_ticks.append(to_timestamp(instant))
        yield


def adding_planned(
    state: time_tables_pb2.TimeTableState, rhythm: Rhythm, start: datetime, most: int
) -> Steps[None]:
    """Add in steps what becomes of so many ticks of the rhythm itself."""
    if rhythm.rule is None:
        for instant in islice(ticks_from(rhythm, start), most):
            at = to_timestamp(instant)
            state.planned.append(time_tables_pb2.PlannedTick(nominal_at=at, tick_at=at))
            yield
        return
    from duly_core.time_tables.working_time import planned  # only who has calendars loads it

    for each in islice(planned(rhythm, start), most):
        message = time_tables_pb2.PlannedTick(
            nominal_at=to_timestamp(each.nominal_at), reason=each.why, merged=each.is_merged
        )
        if each.tick_at is not None:
            message.tick_at.CopyFrom(to_timestamp(each.tick_at))
        state.planned.append(message)
        yield


def unknown_table(name: str) -> Problem:
    """Return what to say about a time table that does not exist."""
    return Problem(
        "name",
        f"there is no time table {name!r}: `duly tables` lists those that there are",
        task_pb2.ERROR_CODE_UNKNOWN_TIME_TABLE,
    )


def put_problem(answer: PutAnswer, name: str) -> Problem | None:
    """Return why a definition was not taken; None: it was."""
    lambda_name = answer.lambda_name
    if answer.verdict is PutVerdict.UNKNOWN_LAMBDA:
        return Problem("lambda", unknown_lambda(lambda_name), task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)
    if answer.verdict is PutVerdict.PAYLOAD_TOO_LARGE:
        return Problem(
            "payload",
            f"{lambda_name} takes at most {answer.payload_limit:,} bytes: put large data elsewhere and send its "
            "address, or raise the lambda's payload_limit",
            task_pb2.ERROR_CODE_PAYLOAD_TOO_LARGE,
        )
    if answer.verdict is PutVerdict.UNKNOWN_CALENDAR:
        return unknown_calendar(answer.calendar, "calendar")
    if answer.verdict is PutVerdict.NEVER_FIRES:
        return Problem(
            "calendar",
            f"it never fires: no tick of the next 20 years falls on working time of {answer.calendar}: change the rhythm, or "
            "on_closed to NEXT or PREVIOUS",
        )
    if answer.verdict is PutVerdict.OUT_OF_REACH:
        return refused(Action.REGISTER, name, "name")
    if answer.verdict is PutVerdict.UNKNOWN:
        return unknown_table(name)
    if answer.verdict is PutVerdict.CONFLICT:
        revision = f"is at revision {answer.row.revision}" if answer.row else "is being changed"
        return Problem(
            "name",
            f"{name!r} exists, and {revision}: read it again, then change it",
            task_pb2.ERROR_CODE_TIME_TABLE_CONFLICT,
        )
    return None
