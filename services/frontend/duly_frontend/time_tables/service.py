"""TimeTableService: periodic tasks, created, changed, shown, paused, deleted and backfilled while Duly runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

from duly_core.access.current import current_caller, restriction
from duly_core.access.roles import Action
from duly_core.errors import InvalidRequestError, TooMuchError
from duly_core.postgres.notifications import Notifier
from duly_core.rpc.requests.checks import check_count, page_size, read_instant
from duly_core.rpc.requests.field_masks import changed_fields, named_fields
from duly_core.rpc.requests.names import check_name
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.requests.resource_needs import ResourceCache
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import Context
from duly_core.time_tables import store as store_time_tables
from duly_core.time_tables import ticks as store_ticks
from duly_core.time_tables.calendar import Calendar
from duly_core.time_tables.calendars import calendars_of
from duly_core.time_tables.rhythm import nominal_at, ticks_from
from duly_core.time_tables.rows import TableRow, with_calendar
from duly_core.time_tables.time_table import MOST_TICKS, Rhythm, TimeTable
from duly_core.traffic.slices import Steps
from duly_frontend.access.reach import check_lambda, refused, scope_of
from duly_frontend.events import log
from duly_frontend.lists.restricted import read_page
from duly_frontend.stores import FrontendStores
from duly_frontend.time_tables.calendars import Calendars
from duly_frontend.time_tables.definitions import TABLE_FIELDS, changed_table, read_named, time_table
from duly_frontend.time_tables.wire import (
    adding_planned,
    adding_ticks,
    put_problem,
    state_to_wire,
    unknown_table,
)
from duly_wire.ids import new_task_id
from duly_wire.time_conversion import EPOCH
from duly_wire.v1 import time_tables_pb2, time_tables_pb2_grpc

Result = TypeVar("Result")

_MOST = 100
_LOOKED_AT = 1_000
"""Time tables that one call looks at for a caller who may see some of them."""
_MOST_NEXT = 1_000
_LONGEST_NOTE = 256
_FRAMING_BYTES = 16
PAUSE_FIELDS = ("note",)
"""What a mask may name of a pause."""
_MOST_BYTES = 64 << 20
"""Payloads of one backfill: it is one transaction."""


class TimeTableServicer(time_tables_pb2_grpc.TimeTableServiceServicer):
    """Answers each time table for itself; one with an error has changed nothing. Calendars: `calendars.py`."""

    def __init__(
        self,
        stores: FrontendStores,
        notifier: Notifier,
        rpc: RpcSettings | None = None,
        resources: ResourceCache | None = None,
    ) -> None:
        """Make one; `notifier` reports the tasks of a backfill, `rpc` has the limits of answers. None: the defaults."""
        self._resources = resources or ResourceCache(stores.reads)
        self._store = stores.writes
        self._calendars = Calendars(stores.writes, self._sliced)
        self._large = stores.load.calls.large
        self._notifier = notifier
        self._most_bytes = (rpc or RpcSettings()).max_message_bytes

    async def _sliced(self, steps: Steps[Result]) -> Result:
        return await self._large.run(current_caller(), steps)

    async def PutTimeTables(  # noqa: N802 (the wire's name)
        self, request: time_tables_pb2.PutTimeTablesRequest, _context: Context
    ) -> time_tables_pb2.PutTimeTablesResponse:
        check_count("tables", len(request.tables), _MOST)
        results = [await self._put(asked) for asked in request.tables]
        return time_tables_pb2.PutTimeTablesResponse(results=self._fitting(results))

    async def _put(self, asked: time_tables_pb2.NewTimeTable) -> time_tables_pb2.TimeTableResult:
        if_revision = asked.if_revision if asked.HasField("if_revision") else None
        scope, name = restriction(Action.REGISTER), asked.table.name
        try:
            check_name("name", name)
            named = read_named(asked)
            kinds = await self._resources.kinds([asked.table.resources])

            def make(row: TableRow | None) -> TimeTable:
                if row is None or "lambda" in named:
                    check_lambda(scope, Action.REGISTER, getattr(asked.table, "lambda"))
                if row is not None and scope is not None and not scope.covers_all_of(row.lambda_name):
                    raise refused(Action.REGISTER, name, "name")
                # what must be new is compared as a whole: a repeat finds the same
                current = None if row is None or if_revision == 0 else state_to_wire(row).table
                is_new = row is None or "resources" in named
                return time_table(changed_table(current, asked.table, named), kinds if is_new else None)

            answer = await store_time_tables.put(
                self._store,
                name,
                make,
                if_revision=if_revision,
                names_calendar="calendar" in named and bool(asked.table.calendar),
            )
        except Problem as problem:
            return time_tables_pb2.TimeTableResult(error=problem.to_wire())
        why_not = put_problem(answer, name)
        if why_not is not None or answer.row is None:
            return time_tables_pb2.TimeTableResult(error=why_not.to_wire() if why_not else None)
        before = time_tables_pb2.TimeTable() if answer.before is None else state_to_wire(answer.before).table
        changed = changed_fields(before, state_to_wire(answer.row).table, TABLE_FIELDS)
        log.info(
            "time table defined", time_table=name, verdict=answer.verdict.value, changed=[*changed.paths]
        )
        return time_tables_pb2.TimeTableResult(
            table=_state(answer.row), created=answer.before is None, changed_fields=changed
        )

    async def GetTimeTables(  # noqa: N802
        self, request: time_tables_pb2.GetTimeTablesRequest, _context: Context
    ) -> time_tables_pb2.GetTimeTablesResponse:
        _check_names(request.names)
        if not 0 <= request.next * len(request.names) <= _MOST_NEXT:
            raise InvalidRequestError("next", f"must be from 0 to {_MOST_NEXT:,} for all tables together")
        if not 0 <= request.planned * len(request.names) <= _MOST_NEXT:
            raise InvalidRequestError("planned", f"must be from 0 to {_MOST_NEXT:,} for all tables together")
        planned_from = (
            read_instant("planned_from", request.planned_from) if request.HasField("planned_from") else None
        )
        found = await self._within(Action.READ, request.names)
        calendars = await calendars_of(self._store, found.values() if request.next or request.planned else ())
        results = await self._sliced(_results_with_ticks(request, found, calendars, planned_from))
        response = time_tables_pb2.GetTimeTablesResponse(results=results)
        if 0 <= self._most_bytes < response.ByteSize():
            raise TooMuchError(
                f"names: the answer would have more than {self._most_bytes:,} bytes (rpc.max_message_bytes): ask for fewer"
            )
        return response

    async def _within(self, action: Action, names: Sequence[str]) -> dict[str, TableRow]:
        """Return those of these time tables that the caller may reach."""
        found = await store_time_tables.get(self._store, names)
        scope = restriction(action)
        return {
            name: row for name, row in found.items() if scope is None or scope.covers_all_of(row.lambda_name)
        }

    async def _own(self, names: Sequence[str]) -> Sequence[str]:
        """Return those of these names whose time tables the caller may change."""
        if restriction(Action.REGISTER) is None:
            return names
        within = await self._within(Action.REGISTER, names)
        return [name for name in names if name in within]

    def _fitting(
        self, results: Sequence[time_tables_pb2.TimeTableResult]
    ) -> Sequence[time_tables_pb2.TimeTableResult]:
        """Leave the payloads out if all are too large for one answer: what was changed must be answered."""
        if 0 <= self._most_bytes < sum(result.ByteSize() + _FRAMING_BYTES for result in results):
            for result in results:
                if result.HasField("table"):
                    result.table.table.ClearField("payload")
        return results

    async def ListTimeTables(  # noqa: N802
        self, request: time_tables_pb2.ListTimeTablesRequest, _context: Context
    ) -> time_tables_pb2.ListTimeTablesResponse:
        size = page_size(request.page_size)
        name: str = getattr(request, "lambda")
        if "\x00" in name:
            raise InvalidRequestError("lambda", "must not contain NUL")
        scope = scope_of(Action.READ, name)
        rows, token = await read_page(
            request.page_token,
            size,
            size if scope is None else _LOOKED_AT,
            lambda after, skipped, limit: store_time_tables.page(self._store, after, skipped, name, limit),
            lambda row: row if scope is None or scope.covers_all_of(row.lambda_name) else None,
            lambda row: row.name,
        )
        return time_tables_pb2.ListTimeTablesResponse(tables=map(_state, rows), next_page_token=token)

    async def DeleteTimeTables(  # noqa: N802
        self, request: time_tables_pb2.DeleteTimeTablesRequest, _context: Context
    ) -> time_tables_pb2.DeleteTimeTablesResponse:
        _check_names(request.names)
        own = await self._own(request.names)
        found = await store_time_tables.delete(self._store, own)
        log.info("time tables changed", change="deleted", time_tables=sorted(found))
        return time_tables_pb2.DeleteTimeTablesResponse(results=self._fitting(_results(request.names, found)))

    async def PauseTimeTables(  # noqa: N802
        self, request: time_tables_pb2.PauseTimeTablesRequest, _context: Context
    ) -> time_tables_pb2.PauseTimeTablesResponse:
        _check_names(request.names)
        if len(request.note) > _LONGEST_NOTE or "\x00" in request.note:
            raise InvalidRequestError("note", f"must be at most {_LONGEST_NOTE} characters, without NUL")
        mask = request.update_mask if request.HasField("update_mask") else None
        named = named_fields("update_mask", mask, request, PAUSE_FIELDS)
        own = await self._own(request.names)
        found = await store_time_tables.pause(self._store, own, request.note if named else None)
        log.info("time tables changed", change="paused", time_tables=sorted(found))
        return time_tables_pb2.PauseTimeTablesResponse(results=self._fitting(_results(request.names, found)))

    async def ResumeTimeTables(  # noqa: N802
        self, request: time_tables_pb2.ResumeTimeTablesRequest, _context: Context
    ) -> time_tables_pb2.ResumeTimeTablesResponse:
        _check_names(request.names)
        own = await self._own(request.names)
        found = await store_time_tables.resume(self._store, own)
        log.info("time tables changed", change="resumed", time_tables=sorted(found))
        return time_tables_pb2.ResumeTimeTablesResponse(results=self._fitting(_results(request.names, found)))

    async def BackfillTimeTable(  # noqa: N802
        self, request: time_tables_pb2.BackfillTimeTableRequest, _context: Context
    ) -> time_tables_pb2.BackfillTimeTableResponse:
        _check_names([request.name])
        row = (await self._within(Action.REGISTER, [request.name])).get(request.name)
        if row is None:
            return time_tables_pb2.BackfillTimeTableResponse(error=unknown_table(request.name).to_wire())
        begin, end = _range(request, row.read_at)
        rhythm = with_calendar(row.rhythm, await calendars_of(self._store, [row]))
        nominal = await self._sliced(_ticks_within(rhythm, begin, end))
        instants = [*nominal]
        if len(instants) > MOST_TICKS or len(instants) * row.payload_bytes > _MOST_BYTES:
            raise InvalidRequestError(
                "from",
                f"more than {MOST_TICKS:,} ticks, or 64 MiB of payloads, lie between {begin.isoformat()} and "
                f"{end.isoformat()}: backfill in several shorter ranges",
            )
        if request.dry_run or not instants:
            return time_tables_pb2.BackfillTimeTableResponse(ticks=len(instants))
        created, lambdas = await store_ticks.backfill(
            self._store,
            row.name,
            instants,
            lambda: new_task_id().bytes,
            {tick_at: at for tick_at, at in nominal.items() if at is not None},
        )
        if created:
            self._notifier.due_in(timedelta(), lambdas, created)
        log.info("time table backfilled", time_table=row.name, created=created)
        return time_tables_pb2.BackfillTimeTableResponse(ticks=len(instants), created=created)

    async def PutCalendars(  # noqa: N802
        self, request: time_tables_pb2.PutCalendarsRequest, _context: Context
    ) -> time_tables_pb2.PutCalendarsResponse:
        return await self._calendars.put(request)

    async def GetCalendars(  # noqa: N802
        self, request: time_tables_pb2.GetCalendarsRequest, _context: Context
    ) -> time_tables_pb2.GetCalendarsResponse:
        return await self._calendars.get(request)

    async def ListCalendars(  # noqa: N802
        self, request: time_tables_pb2.ListCalendarsRequest, _context: Context
    ) -> time_tables_pb2.ListCalendarsResponse:
        return await self._calendars.list(request)

    async def DeleteCalendars(  # noqa: N802
        self, request: time_tables_pb2.DeleteCalendarsRequest, _context: Context
    ) -> time_tables_pb2.DeleteCalendarsResponse:
        return await self._calendars.delete(request)


def _state(row: TableRow) -> time_tables_pb2.TimeTableState:
    """Return a time table as the caller may see it."""
    state = state_to_wire(row)
    payloads = restriction(Action.READ_PAYLOAD)
    if payloads is not None and not payloads.covers_all_of(row.lambda_name):
        state.table.ClearField("payload")
        state.payload_withheld = True
    return state


def _results(names: Sequence[str], found: Mapping[str, TableRow]) -> list[time_tables_pb2.TimeTableResult]:
    return [_result(name, found) for name in names]


def _result(name: str, found: Mapping[str, TableRow]) -> time_tables_pb2.TimeTableResult:
    if name in found:
        return time_tables_pb2.TimeTableResult(table=_state(found[name]))
    return time_tables_pb2.TimeTableResult(error=unknown_table(name).to_wire())


def _results_with_ticks(
    request: time_tables_pb2.GetTimeTablesRequest,
    found: Mapping[str, TableRow],
    calendars: Mapping[str, Calendar],
    planned_from: datetime | None,
) -> Steps[list[time_tables_pb2.TimeTableResult]]:
    results = []
    for name in request.names:
        result = _result(name, found)
        if row := found.get(name):
            rhythm = with_calendar(row.rhythm, calendars)
            yield from adding_ticks(result.table, row, rhythm, request.next)
            yield from adding_planned(result.table, rhythm, planned_from or row.read_at, request.planned)
        results.append(result)
    return results


def _ticks_within(rhythm: Rhythm, begin: datetime, end: datetime) -> Steps[dict[datetime, datetime | None]]:
    """Compute in steps the ticks of a range, with those of the rhythm itself that a calendar moved.

    A rare one, such as a leap day, takes milliseconds.
    """
    ticks: dict[datetime, datetime | None] = {}
    for instant in ticks_from(rhythm, begin):
        if instant >= end or len(ticks) > MOST_TICKS:
            break
        ticks[instant] = nominal_at(rhythm, instant)
        yield
    return ticks


def _range(request: time_tables_pb2.BackfillTimeTableRequest, now: datetime) -> tuple[datetime, datetime]:
    if not request.HasField("from"):
        raise InvalidRequestError("from", "say where the range begins")
    ends = {"from": now, "to": now}
    for field in ends:
        if request.HasField(field):  # type: ignore[arg-type]  # they stand above
            ends[field] = read_instant(field, getattr(request, field))
    if ends["from"] < EPOCH:
        raise InvalidRequestError("from", "must be in 1970 or later")
    if ends["to"] > now:
        raise InvalidRequestError("to", "must not be in the future: those ticks are still to fire")
    if ends["from"] >= ends["to"]:
        raise InvalidRequestError("from", "must be earlier than `to`")
    return ends["from"], ends["to"]


def _check_names(names: Sequence[str]) -> None:
    check_count("names", len(names), _MOST)
    if any("\x00" in name for name in names):
        raise InvalidRequestError("names", "must not contain NUL")
