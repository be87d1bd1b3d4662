"""Time tables: create, change, show, pause, resume, delete, backfill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Unpack

from google.protobuf.field_mask_pb2 import FieldMask

from duly.callbacks.codec import Codec, payload_of, reveal_if_possible, value_or_sign
from duly.callbacks.lambda_of import name_of
from duly.errors import DulyError
from duly.keep import KEEP, Keep
from duly.limits.resource import ResourceNeed
from duly.sessions.session import Session
from duly.tasks.attributes import AttributeValue, attributes_of
from duly.tasks.new_task import aware
from duly.time_tables.new_time_table import (
    TimeTableOptions,
    new_time_table,
    rebind_payload,
    write_options,
    write_payload,
)
from duly.transport import error_mapping
from duly.transport.client_part import ClientPart
from duly.transport.message_fields import view
from duly_wire.enums import CatchUp, OnClosed, Overlap, Priority
from duly_wire.time_conversion import to_timedelta, to_timestamp
from duly_wire.v1 import task_pb2, time_tables_pb2

_BACKFILL = timedelta(seconds=30)
_PAGE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTick:
    """A tick of a time table's rhythm, and what its calendar makes of it."""

    nominal_at: datetime
    # When it is; None: it is left out.
    tick_at: datetime | None
    # Why it is left out or moved; empty: it is neither.
    reason: str
    # It is moved to where another tick is: both have one task.
    merged: bool

    @classmethod
    def from_proto(cls, message: time_tables_pb2.PlannedTick) -> PlannedTick:
        """Return the view of a planned tick as it came over the wire."""
        return view(cls, message)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    """A time table as it stands."""

    name: str
    lambda_name: str
    # What each task is given; None where a list does not bring it; an EncryptedPayload if it cannot be decrypted here.
    payload: Any
    priority: Priority
    collection: str
    # Either of the two.
    cron: str | None
    every: timedelta | None
    offset: timedelta
    # Of a cron expression; empty for an interval.
    zone: str
    catch_up: CatchUp
    # With CatchUp.ALL.
    catch_up_window: timedelta | None
    overlap: Overlap
    jitter: timedelta
    # Of each of its tasks.
    resources: tuple[ResourceNeed, ...]
    session: Session | None
    # Empty: none.
    fair_key: str
    attributes: Mapping[str, AttributeValue]
    # How often its definition was changed, from 1.
    revision: int
    # An application declared it, and nobody changed it since.
    declared: bool
    paused_at: datetime | None
    pause_note: str
    # The next tick, and when it fires: they differ by the jitter. None: there is none.
    next_tick_at: datetime | None
    next_fire_at: datetime | None
    # The tick that waits for the end of the last task.
    buffered_tick_at: datetime | None
    # The last tick that fired, and its task; empty: none did yet.
    last_tick_at: datetime | None
    last_task_id: str
    # Why it cannot fire; empty: it can.
    problem: str
    created_at: datetime
    updated_at: datetime
    # The calendar of its working time; empty: none. What becomes of ticks in closed time; None without a calendar.
    calendar: str
    on_closed: OnClosed | None
    business_hours: bool
    # Only on this working day of a month; negative: from its end; 0: on any.
    working_day: int
    # The next ticks, as many as were asked for.
    next_ticks: tuple[datetime, ...]
    # What becomes of the ticks of the rhythm itself, as many as were asked for.
    planned: tuple[PlannedTick, ...]
    # After `change_table`: the fields that it changed. None otherwise.
    changed: tuple[str, ...] | None = None
    # The cell that it lives in; empty: the installation has no cells.
    cell: str = ""

    @classmethod
    def from_proto(
        cls,
        state: time_tables_pb2.TimeTableState,
        codec: Codec | None = None,
        changed: tuple[str, ...] | None = None,
    ) -> TimeTable:
        """Return the view of a time table as it came over the wire, decrypted as far as `codec` can."""
        table = state.table
        bound_to = payload_of(getattr(table, "lambda"))
        data, encoding = reveal_if_possible(codec, table.payload, table.payload_encoding, bound_to)
        return view(
            cls,
            table,
            state,
            payload=value_or_sign(data, encoding),
            cron=table.cron or None,
            offset=to_timedelta(table.offset),
            jitter=to_timedelta(table.jitter),
            resources=tuple(map(ResourceNeed.from_proto, table.resources)),
            attributes=attributes_of(table.attributes),
            session=view(Session, table.session) if table.HasField("session") else None,
            on_closed=OnClosed(table.on_closed) if table.on_closed else None,
            planned=tuple(map(PlannedTick.from_proto, state.planned)),
            changed=changed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """What a backfill did."""

    # Ticks in the range.
    ticks: int
    # Tasks that were written; the other ticks have theirs already. 0 after a dry run.
    created: int


class TimeTableCalls(ClientPart):
    """The part of AsyncClient that is about time tables."""

    async def create_table(
        self,
        name: str,
        lambda_name: str | Callable[..., Any],
        payload: Any = None,
        **options: Unpack[TimeTableOptions],
    ) -> TimeTable:
        """Create a time table: a task of a lambda at each of its ticks.

            await client.create_table("report.nightly", "report.build", {"of": "sales"}, cron="0 2 * * *", zone="Europe/Berlin")

        - `cron`: minute, hour, day of month, month, day of week, in `zone` (an IANA name; UTC if left out); or @daily.
        - `every`: the multiples of this time since 1970 UTC, plus `offset`. Give either `cron` or `every`.
        - `catch_up`: what becomes of ticks missed while Duly was down: SKIP, ONE (default), ALL within `catch_up_window`.
        - `overlap`: what becomes of a tick while the task before runs: ALLOW (default), SKIP, BUFFER_ONE, CANCEL_RUNNING.
        - `jitter`: each tick fires up to so much later.
        - `priority`, `collection`, `resources`, `session`, `fair_key`, `attributes`: of its tasks.
        - `calendar`: whose working days count in `zone`. `on_closed` says what becomes of a tick on a closed day: SKIP (default),
          NEXT, PREVIOUS. With `business_hours` the hours of the calendar count, too. `working_day=-1`: only on the last
          working day of a month.

        Creating the same one twice does no harm. Raises TimeTableConflictError for a name that is taken,
        UnknownLambdaError, CalendarNotFoundError, InvalidTaskError.
        """
        table = new_time_table(name, name_of(lambda_name), payload, self._caller.codec, **options)
        if not table.attributes:
            return await self._put(table, if_revision=0)
        # named, for a Frontend that does not know them to refuse them: it would leave out a field
        mask = FieldMask(paths=sorted({each.name for each, _ in table.ListFields()} - {"name"}))
        return replace(await self._put(table, 0, mask), changed=None)

    async def change_table(
        self,
        name: str,
        lambda_name: str | Callable[..., Any] | None = None,
        payload: Any = KEEP,
        **options: Unpack[TimeTableOptions],
    ) -> TimeTable:
        """Change what is given here of a time table, and leave the rest as it is. None removes an option.

            await client.change_table("report.nightly", jitter=timedelta(minutes=5), collection=None)

        A new `cron` removes `offset`, a new `every` removes `zone`, and a `catch_up` other than ALL removes
        `catch_up_window`, unless the call gives them. Its next tick is the first of the new rhythm from now on. One that
        an application declares is no longer changed by declarations. `changed` of the answer names what changed.

        Raises TimeTableNotFoundError, InvalidTaskError for what contradicts the rest, TimeTableConflictError if somebody else
        changed it meanwhile.
        """
        state = await self._state(name, 0)
        table, codec = time_tables_pb2.TimeTable(name=name), self._caller.codec
        setattr(
            table, "lambda", getattr(state.table, "lambda") if lambda_name is None else name_of(lambda_name)
        )
        named: set[str] = {*options} if lambda_name is None else {*options, "lambda"}
        if payload is not KEEP:
            write_payload(table, payload, codec)
            named.add("payload")
        elif lambda_name is not None and rebind_payload(state.table, table, codec):
            named.add("payload")
        if options.get("cron") is not None:
            named.add("offset")
        if options.get("every") is not None:
            named.add("zone")
        if options.get("calendar", "") is None:
            named |= {"on_closed", "business_hours", "working_day"}
        if options.get("catch_up", CatchUp.ALL) is not CatchUp.ALL:
            named.add("catch_up_window")
        write_options(table, options)
        return await self._put(table, state.revision, FieldMask(paths=sorted(named)))

    async def table(
        self, name: str, *, next_ticks: int = 0, planned: int = 0, planned_from: datetime | None = None
    ) -> TimeTable:
        """Return a time table with so many of its next ticks (at most 1,000). Raises TimeTableNotFoundError.

        `planned`: also so many ticks of the rhythm itself from `planned_from` (None: now) on, with those that the calendar
        leaves out or moves.
        """
        state = await self._state(name, next_ticks, planned, planned_from)
        return TimeTable.from_proto(state, self._caller.codec)

    async def tables(self, *, lambda_name: str = "", cell: str = "") -> list[TimeTable]:
        """Return the time tables, of a lambda, a cell or all, by name, without their payloads."""
        caller = self._caller
        request = time_tables_pb2.ListTimeTablesRequest(cell=cell, page_size=_PAGE)
        setattr(request, "lambda", lambda_name)
        pages = caller.pages(caller.time_tables.ListTimeTables, request)
        return [TimeTable.from_proto(each) async for page in pages for each in page.tables]

    async def pause_table(self, name: str, *, note: str | Keep | None = KEEP) -> TimeTable:
        """Pause a time table until it is resumed; nothing else ends that. Raises TimeTableNotFoundError.

        `note`: why, for people. One that is paused already keeps its note if none is given; None removes the note.
        """
        caller = self._caller
        request = time_tables_pb2.PauseTimeTablesRequest(names=[name])
        if not isinstance(note, Keep):
            request.note = note or ""
            request.update_mask.paths.append("note")
        return _one((await caller.call(caller.time_tables.PauseTimeTables, request)).results[0], caller.codec)

    async def resume_table(self, name: str) -> TimeTable:
        """Resume a time table with its first tick from now on. Raises TimeTableNotFoundError.

        What fell into the pause is left out: `backfill_table` schedules it.
        """
        caller = self._caller
        request = time_tables_pb2.ResumeTimeTablesRequest(names=[name])
        return _one(
            (await caller.call(caller.time_tables.ResumeTimeTables, request)).results[0], caller.codec
        )

    async def delete_table(self, name: str) -> TimeTable:
        """Delete a time table, and return it as it was; its tasks stay. Raises TimeTableNotFoundError.

        One that an application declares comes back when a worker attaches: pause it instead.
        """
        caller = self._caller
        before = TimeTable.from_proto(await self._state(name, 0), caller.codec)
        request = time_tables_pb2.DeleteTimeTablesRequest(names=[name])
        tries: list[int] = []
        response = await caller.call(caller.time_tables.DeleteTimeTables, request, tried=tries.append)
        result: time_tables_pb2.TimeTableResult = response.results[0]
        if len(tries) > 1 and result.error.code == task_pb2.ERROR_CODE_UNKNOWN_TIME_TABLE:
            return before  # an earlier try deleted it, and its reply was lost
        return _one(result, caller.codec)

    async def backfill_table(
        self, name: str, start: datetime, end: datetime | None = None, *, dry_run: bool = False
    ) -> Backfill:
        """Schedule the ticks from `start` to before `end` (None: now) at once; at most 10,000.

        A tick that has its task already is left out, so that a repeat does no harm. Overlap and catch-up policies do not
        count. `dry_run`: only count. Raises TimeTableNotFoundError, InvalidTaskError for an impossible range.
        """
        caller = self._caller
        request = time_tables_pb2.BackfillTimeTableRequest(name=name, dry_run=dry_run)
        getattr(request, "from").CopyFrom(to_timestamp(aware("start", start)))
        if end is not None:
            request.to.CopyFrom(to_timestamp(aware("end", end)))
        response = await caller.call(
            caller.time_tables.BackfillTimeTable, request, _BACKFILL, one_try=_BACKFILL
        )
        error_mapping.check(response)
        return Backfill(ticks=response.ticks, created=response.created)

    async def _put(
        self, table: time_tables_pb2.TimeTable, if_revision: int, mask: FieldMask | None = None
    ) -> TimeTable:
        caller = self._caller
        new = time_tables_pb2.NewTimeTable(table=table, if_revision=if_revision, update_mask=mask)
        request = time_tables_pb2.PutTimeTablesRequest(tables=[new])
        (result,) = (await caller.call(caller.time_tables.PutTimeTables, request)).results
        if mask is not None and "attributes" in mask.paths and result.error.field == "update_mask":
            raise DulyError(
                "the Frontend is of an older release, which knows no attributes of time tables: upgrade it first"
            )
        return _one(result, caller.codec, None if mask is None else tuple(result.changed_fields.paths))

    async def _state(
        self, name: str, next_ticks: int, planned: int = 0, planned_from: datetime | None = None
    ) -> time_tables_pb2.TimeTableState:
        caller = self._caller
        request = time_tables_pb2.GetTimeTablesRequest(names=[name], next=next_ticks, planned=planned)
        if planned_from is not None:
            request.planned_from.CopyFrom(to_timestamp(aware("planned_from", planned_from)))
        response = await caller.call(caller.time_tables.GetTimeTables, request)
        result: time_tables_pb2.TimeTableResult = response.results[0]
        error_mapping.check(result)
        return result.table


def _one(
    result: time_tables_pb2.TimeTableResult, codec: Codec | None, changed: tuple[str, ...] | None = None
) -> TimeTable:
    error_mapping.check(result)
    return TimeTable.from_proto(result.table, codec, changed)
