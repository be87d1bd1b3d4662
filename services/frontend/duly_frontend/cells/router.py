"""Sends each call to the cells that it concerns, and puts their answers together."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any, Protocol

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from duly_core.access.current import are_roles_known, current_access, restriction
from duly_core.access.methods import ANSWERED_WITHOUT_ROLES
from duly_core.access.roles import Action
from duly_core.cells.directory import Directory
from duly_core.errors import DulyError, InvalidRequestError, NotInCellError, TooMuchError
from duly_core.lambdas.names import NAMESPACE_MARK
from duly_core.rpc.requests.problem import Problem
from duly_frontend import events
from duly_frontend.cells import gates, operators, watching
from duly_frontend.cells.cell_units import CellUnavailableError, CellUnit, Handler, note_missing
from duly_frontend.cells.locations import Locations
from duly_frontend.cells.locator import CELL_WITHIN, READERS, Locator
from duly_frontend.cells.named import UnknownCellError, may_name_a_cell, note_cell, note_limits, note_names
from duly_frontend.cells.routes import (
    LOCATED,
    ROUTES,
    AllCells,
    ByField,
    ByItems,
    Form,
    Gates,
    InOneCell,
    Operators,
    Place,
    Route,
    Streamed,
    Watching,
    WhereFound,
)
from duly_frontend.cells.services import METHODS
from duly_frontend.cells.sums import note_away
from duly_wire.v1 import task_pb2, watches_pb2

_FEW = 20
"""Tasks of a call whose cell is remembered when they are scheduled: who schedules many seldom reads each."""
_BETWEEN_LOOKS = 1.0
"""Seconds, at least, from one look at the directory for a lambda that a cell does not know to the next."""
_LOOK_WITHIN = 3.0
"""Seconds that a call waits for the directory: a cell that hangs must not hold up calls for others."""
_TOGETHER = 0.02
"""Seconds that a watch waits for events of other cells, once one has some: a busy cell must not hide the others."""
_LIST_PROBLEMS = "/duly.v1.ProblemService/ListProblems"
_EXPLAIN = "/duly.v1.ExplainService/ExplainTask"
_NOTHING_RUNS = "No task of a cell starts while it is away; `duly cells check` says more"
_SCHEDULE = "/duly.v1.FrontendService/Schedule"


class Merging(Protocol):
    """Makes one answer of those of several cells."""

    def requests(self, method: str, request: Any, cells: Collection[str]) -> Mapping[str, Any]:
        """Return what to ask of each cell."""
        ...

    def merge(
        self, method: str, request: Any, answers: Mapping[str, Any], cells: Collection[str] | None = None
    ) -> Any:
        """Return one answer of those of the cells."""
        ...


class Router:
    """`handler` returns what serves a method. `units` has a unit for each cell that is served here."""

    def __init__(
        self,
        directory: Callable[[], Directory],
        own: Callable[[], str],
        merging: Merging,
        look_again: Callable[[], Awaitable[object]],
        most_bytes: int = -1,
    ) -> None:
        """Make one.

        Args:
            directory: returns the newest one.
            own: returns the name of the process's own cell.
            merging: makes one answer of those of several cells.
            look_again: reads the directory again, after a cell has refused a namespace.
            most_bytes: how large an answer may be; negative: as large as it gets.
        """
        self.units: dict[str, CellUnit] = {}
        self._directory = directory
        self._own = own
        self._merging = merging
        self._look_again = look_again
        self._most_bytes = most_bytes
        self._locations = Locations()
        self._locator = Locator()
        self._looked_at = float("-inf")
        self._looking: asyncio.Task[None] | None = None

    def handler(self, path: str) -> Handler:
        """Return what serves the calls of a method."""
        kinds: Mapping[type, Callable[..., Awaitable[Any]]] = {
            ByItems: self._by_items,
            ByField: self._by_field,
            InOneCell: self._in_one_cell,
            WhereFound: self._where_found,
            AllCells: self._of_all_cells,
            Operators: self._of_operators,
            Gates: self._of_gates,
            Watching: self._watch,
        }
        route: Route = ROUTES[path]
        if isinstance(route, Streamed):
            raise TypeError(path)  # its calls are routed one by one
        kind = kinds[type(route)]
        if may_name_a_cell(METHODS[path].input_type):
            kind = partial(self._of_named_cell, kind)
        return partial(self._serve, kind, path, route)

    async def _serve(
        self, kind: Callable[..., Awaitable[Any]], path: str, route: Route, request: Any, context: Any
    ) -> Any:
        known = self._directory().version
        try:
            return await kind(path, route, request, context)
        except NotInCellError as error:
            await self._learn_again(known, error)
            try:
                return await kind(path, route, request, context)
            except NotInCellError as again:
                raise self._contradicted(again) from again

    def look_soon(self) -> None:
        """Read the directory again, once a second at most, and wait for nothing."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._looked_at >= _BETWEEN_LOOKS:
            self._looked_at = loop.time()
            self._begin_look()

    def _begin_look(self) -> asyncio.Task[None]:
        """Return the look at the directory that runs, or begin one."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(_quietly(self._look_again))
        return self._looking

    async def _look(self) -> None:
        """Read the directory again, together with all calls that want it now, or give up after a while.

        One that runs already may have passed the cell before it changed. So another one follows.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_LOOK_WITHIN):
                if self._looking is not None and not self._looking.done():
                    known = self._directory().version
                    await asyncio.wait({self._looking})
                    if self._directory().version != known:
                        return
                await asyncio.wait({self._begin_look()})

    async def _learn_again(self, known: int, error: NotInCellError) -> None:
        """Read the directory again, after a cell has refused a namespace.

        Raises:
            NotInCellError: it is as before, so that the call would be refused again.
        """
        if self._directory().version == known:
            await self._look()
        if self._directory().version == known:
            raise self._contradicted(error) from error

    def _contradicted(self, error: NotInCellError) -> NotInCellError:
        return NotInCellError(
            f"{error}; this Frontend goes by version {self._directory().version}: try again, or see `duly cells check`"
        )

    # items

    async def _by_items(self, path: str, route: ByItems, request: Any, context: Any) -> Any:
        items = getattr(request, route.items)
        if route.instead is not None and attrgetter(route.instead.field)(request):
            instead = _by_claim(route.instead, request)
            found, away = await self._cells_of(path, instead, [_reader(instead)(request)], context)
            return await self._unit_of(found[0], away).call(path, request, context)
        if route.place.form not in LOCATED and route.otherwise is None:
            # one place of each name: the rest is looked at if that says more
            named = dict(zip(map(_reader(route.place), items), range(len(items)), strict=True))
            cells = self._cells_by_name(route.place, items, named)
            if not isinstance(cells, str):
                return await self._split(path, route, request, cells, (), context)
            answer = await self._unit(cells).call(path, request, context)
            if path == _SCHEDULE:
                if len(items) <= _FEW:
                    self._note_scheduled(answer, cells)
                if any(_is_unknown_lambda(answer.results[place]) for place in named.values()):
                    return await self._schedule_again(path, route, request, answer, context)
            return answer
        if route.otherwise is not None:
            return await self._by_two_places(path, route, route.otherwise, request, context)
        read = _reader(route.place)
        placed, away = await self._cells_of(path, route.place, [read(item) for item in items], context)
        return await self._split(path, route, request, placed, away, context)

    async def _by_two_places(
        self, path: str, route: ByItems, otherwise: Place, request: Any, context: Any
    ) -> Any:
        items = getattr(request, route.items)
        read, read_other = _reader(route.place), _reader(otherwise)
        there, away = await self._cells_of(path, otherwise, [read_other(item) for item in items], context)
        cells: list[str | None] = []
        refused: dict[int, task_pb2.ItemError] = {}
        for place, item in enumerate(items):
            named = read(item)
            cell = self._cell_by_name(route.place.form, named) if named else there[place]
            if named and there[place] not in (None, cell):
                refused[place] = task_pb2.ItemError(
                    code=task_pb2.ERROR_CODE_TIME_TABLE_CONFLICT,
                    field=route.place.field,
                    message=f"{read_other(item)!r} is in cell {there[place]}, and {named!r} lives in cell {cell}: "
                    "delete it first, or use another name",
                )
            cells.append(cell)
        return await self._split(path, route, request, cells, away, context, refused)

    async def _split(
        self,
        path: str,
        route: ByItems,
        request: Any,
        cells: Sequence[str | None],
        away: Sequence[str],
        context: Any,
        refused: Mapping[int, task_pb2.ItemError] | None = None,
    ) -> Any:
        """Send each item to its cell; None: that of an item is not known, and `away` says which may have it."""
        errors: dict[int, task_pb2.ItemError] = dict(refused or {})
        parts: defaultdict[str, list[int]] = defaultdict(list)
        anywhere = "" if None not in cells or away else self._anywhere().name
        for place, cell in enumerate(cells):
            if place in errors:
                continue
            if cell is not None:
                parts[cell].append(place)
            elif anywhere:
                parts[anywhere].append(place)
            else:
                errors[place] = _not_known(route.place, away)
        if not parts and not refused and cells:
            raise CellUnavailableError(
                ", ".join(away), "it may have what the call names, and does not answer"
            )
        if not parts and not cells:
            return await self._anywhere().call(path, request, context)
        if len(parts) == 1 and not errors:
            return await self._unit(next(iter(parts))).call(path, request, context)
        asked = {cell: _part(request, route.items, places) for cell, places in parts.items()}
        known = self._directory().version
        answers, failed = await self._call_each(path, asked, context, waits=route.waits)
        for cell, error in list(failed.items()):
            if isinstance(error, NotInCellError):
                await self._learn_again(known, error)
                # this part alone: a task without an id must not be written twice
                answers[cell] = await self._by_items(path, route, asked[cell], context)
                del failed[cell]
        if failed and not answers and not errors:
            raise next(iter(failed.values()))
        for cell, error in failed.items():
            errors |= dict.fromkeys(parts[cell], _item_error(error))
        if _are_away(errors):
            events.items_away()
        answer = _together(path, route, len(cells), parts, answers, errors)
        for name in route.all_of:
            holds = all(getattr(each, name) for each in answers.values())
            setattr(answer, name, holds and not failed and not _are_away(errors))
        self._check_size(route.items, answer)
        return answer

    async def _schedule_again(
        self, path: str, route: ByItems, request: Any, answer: Any, context: Any
    ) -> Any:
        """Send tasks whose lambda a cell does not know to another one, if the directory says so now."""
        known = self._directory().version
        now = asyncio.get_running_loop().time()
        if now - self._looked_at < _BETWEEN_LOOKS:
            return answer
        self._looked_at = now
        await self._look()
        if self._directory().version == known:
            return answer
        unknown = [place for place, each in enumerate(answer.results) if _is_unknown_lambda(each)]
        part = _part(request, route.items, unknown)
        again = await self._by_items(path, route, part, context)
        parts = {"before": [*range(len(answer.results))], "again": unknown}
        return _together(path, route, len(answer.results), parts, {"before": answer, "again": again}, {})

    def _note_scheduled(self, answer: Any, cell: str) -> None:
        caller = current_access().principal
        for result in answer.results:
            if result.task_id:
                self._locations.note(caller, result.task_id, cell)

    # one cell

    async def _by_field(self, path: str, route: ByField, request: Any, context: Any) -> Any:
        place = _by_claim(route.place, request)
        if route.empty_is_all and _is_absent(request, place.field):
            return await self._of_all_cells(path, AllCells(), request, context)
        value = _reader(place)(request)
        try:
            if place.form in LOCATED:
                found, away = await self._cells_of(path, place, [value], context)
                unit = self._unit_of(found[0], away)
            else:
                unit = self._unit(self._cell_by_name(place.form, value))
            return await unit.call(path, request, context)
        except CellUnavailableError as error:
            if path == _EXPLAIN:
                raise CellUnavailableError(error.cell, f"{error.reason}. {_NOTHING_RUNS}") from error
            raise

    async def _in_one_cell(self, path: str, route: InOneCell, request: Any, context: Any) -> Any:
        items, read = getattr(request, route.items), _reader(route.place)
        cells = self._cells_by_name(route.place, items, set(map(read, items)))
        if isinstance(cells, str):
            return await self._unit(cells).call(path, request, context)
        named: defaultdict[str, list[str]] = defaultdict(list)
        for cell, item in zip(cells, items, strict=True):
            if cell is not None:
                named[cell].append(read(item))
        said = " and ".join(f"cell {cell} ({_some(names)})" for cell, names in sorted(named.items()))
        answer = _answer_class(path)()
        answer.error.CopyFrom(
            task_pb2.ItemError(
                code=task_pb2.ERROR_CODE_INVALID_ARGUMENT,
                field=route.items,
                message=f"the lambdas live in {said}: a graph lives in one cell; use lambdas of namespaces of one",
            )
        )
        return answer

    async def _where_found(self, path: str, route: WhereFound, request: Any, context: Any) -> Any:
        answers, failed = await self._call_each(path, dict.fromkeys(self._cells(), request), context)
        _raise_refusal(failed)
        found = [each for each in answers.values() if not _holds(each, route.absent)]
        if found:
            return found[0]
        if failed:
            raise CellUnavailableError(
                ", ".join(failed), "it may have what the call names, and does not answer"
            )
        return next(iter(answers.values()))

    # all cells

    async def _of_named_cell(
        self, otherwise: Callable[..., Awaitable[Any]], path: str, route: Route, request: Any, context: Any
    ) -> Any:
        """Serve what may be of the one cell that its caller names; `otherwise` serves what names none."""
        if not are_roles_known():
            return await self._away_to_unknown(path, request, context)
        if not request.cell:
            answer = await otherwise(path, route, request, context)
        elif request.cell not in self._directory().cells:
            raise UnknownCellError(request.cell, self._cells())
        else:
            cells = [request.cell]
            answers, failed = await self._call_each(path, self._asked(path, request, cells), context)
            if failed:
                raise failed[request.cell]
            answer = self._merging.merge(path, request, answers, cells)
        note_names(answer, self._cells())
        return answer

    async def _away_to_unknown(self, path: str, request: Any, context: Any) -> Any:
        """Serve a caller whose roles cannot be read: it learns neither which cells there are nor how they stand."""
        asked = type(request)()
        asked.CopyFrom(request)
        asked.cell = ""
        answer = await self._anywhere().call(path, asked, context)
        note_cell(answer, "")
        return answer

    def _asked(self, path: str, request: Any, cells: Collection[str]) -> Mapping[str, Any]:
        """Return what to ask of each cell.

        Raises:
            InvalidRequestError: the page token is not one of ours.
        """
        try:
            return self._merging.requests(path, request, cells)
        except Problem as problem:
            raise InvalidRequestError(problem.field, str(problem)) from problem

    async def _of_all_cells(self, path: str, _route: Route, request: Any, context: Any) -> Any:
        cells = self._cells()
        if path in ANSWERED_WITHOUT_ROLES and not any(unit.is_serving for unit in self.units.values()):
            return await self._anywhere().call(path, request, context)  # it says so
        answers, failed = await self._call_each(path, self._asked(path, request, cells), context)
        _raise_refusal(failed)
        answer = self._merging.merge(path, request, answers, cells)
        if failed:
            note_missing(context, failed)
        note_limits(answer, self._directory())
        if failed and path == _LIST_PROBLEMS and restriction(Action.READ) is None:
            late = [cell for cell in failed if cell in self.units and self.units[cell].is_serving]
            note_away(request, answer, self._directory(), late)
        self._check_size("page_size", answer)
        return answer

    async def _of_operators(self, path: str, route: Operators, request: Any, context: Any) -> Any:
        if route.writes:
            units = self.units
            closed = [cell for cell in self._cells() if cell not in units]
            there = [units[cell] for cell in self._cells() if cell in units]
            answer = await operators.write(path, request, there, context, closed)
            note_limits(answer, self._directory())
            return answer
        error: DulyError | None = None
        own = self._own()
        for cell in sorted(self._cells(), key=lambda name: (name != own, name)):
            try:
                return await self._unit(cell).call(path, request, context)
            except CellUnavailableError as away:
                error = error or away
        raise error or CellUnavailableError(own, "no cell is served here")

    async def _of_gates(self, path: str, _route: Route, request: Any, context: Any) -> Any:
        change = gates.put if path == gates.PUT else gates.delete
        units = gates.AllUnits(
            self._directory(), self._all_units(), self._unit, self._anywhere, self._call_each
        )
        return await change(request, units, context)

    async def _watch(self, path: str, _route: Watching, request: Any, context: Any) -> Any:
        try:
            cells = await self._watched(path, request, context)
            if len(cells) == 1 and not watching.is_of_several(request.after):
                return await self._unit(cells[0]).call(path, request, context)
            before = watching.read_positions(request.after, self._directory().default_cell)
        except Problem as problem:
            return watches_pb2.WatchResponse(error=problem.to_wire())
        asked = {}
        for cell in cells:  # in one that was away, or was added, a watch begins now
            asked[cell] = watches_pb2.WatchRequest()
            asked[cell].CopyFrom(request)
            asked[cell].after = before.get(cell, "")
            if cell not in before and request.after:
                asked[cell].watch_id = watching.watch_id_of(next(iter(before.values()), ""))
        answers, failed = await self._first_of_each(path, asked, context)
        for answer in answers.values():
            if answer.HasField("error"):
                return answer
        if failed and not answers:
            raise next(iter(failed.values()))
        if failed:
            note_missing(context, failed)
        return watching.merge(before, answers)

    async def _watched(self, path: str, request: Any, context: Any) -> Sequence[str]:
        """Return the cells in which what a watch is of can be."""
        if request.session:
            return [self._cell_by_name(Form.NAMESPACE, request.session_namespace)]
        if request.graph_id:
            graph = Place(Form.GRAPH, "graph_id")
            found, away = await self._cells_of(path, graph, [request.graph_id], context)
            return [self._unit_of(found[0], away).name]
        cells: set[str] = set()
        for pattern in request.lambdas:
            if pattern.endswith("*") and NAMESPACE_MARK not in pattern:
                return self._cells()  # it may cover lambdas of any namespace
            cells.add(self._cell_by_name(Form.LAMBDA, pattern))
        return sorted(cells) or self._cells()

    async def _first_of_each(
        self, path: str, asked: Mapping[str, Any], context: Any
    ) -> tuple[dict[str, Any], dict[str, CellUnavailableError]]:
        """Call cells at once; return when one has events, or refuses, or all have answered."""
        failed: dict[str, CellUnavailableError] = {}
        calls: dict[asyncio.Task[Any], str] = {}
        for cell, request in asked.items():
            try:
                called = asyncio.get_running_loop().create_task(self._unit(cell).call(path, request, context))
                called.add_done_callback(_ended)  # several may refuse the call, and one of them is raised
                calls[called] = cell
            except CellUnavailableError as error:
                failed[cell] = error
        answers: dict[str, Any] = {}
        pending = set(calls)
        longest: float | None = None
        try:
            while pending:
                done, pending = await asyncio.wait(
                    pending, timeout=longest, return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                for call in done:
                    try:
                        answers[calls[call]] = call.result()
                    except CellUnavailableError as error:
                        failed[calls[call]] = error
                if any(each.events or each.HasField("error") for each in answers.values()):
                    longest = _TOGETHER
        finally:
            for call in pending:
                call.cancel()
        return answers, failed

    # cells

    async def _call_each(
        self, path: str, asked: Mapping[str, Any], context: Any, *, waits: bool = False
    ) -> tuple[dict[str, Any], dict[str, DulyError]]:
        """Call cells at once; return the answers, and the errors of cells that do not answer or refuse a namespace.

        Raises:
            DulyError: a cell refuses the call.
        """
        failed: dict[str, DulyError] = {}
        calls: dict[str, asyncio.Task[Any]] = {}
        loop = asyncio.get_running_loop()
        for cell, request in asked.items():
            try:
                unit = self._unit(cell)
            except CellUnavailableError as error:
                failed[cell] = error
                continue
            calls[cell] = loop.create_task(unit.call(path, request, context))
            calls[cell].add_done_callback(_ended)  # several may refuse the call, and one of them is raised
        if calls:
            longest = None if waits or len(calls) == 1 else _left(context).total_seconds()
            try:
                await asyncio.wait(calls.values(), timeout=longest)
            finally:
                for call in calls.values():
                    if not call.done():
                        call.cancel()
        answers: dict[str, Any] = {}
        for cell, call in calls.items():
            if not call.done() or call.cancelled():
                failed[cell] = CellUnavailableError(cell, "it did not answer in time")
                continue
            try:
                answers[cell] = call.result()
            except (CellUnavailableError, NotInCellError) as error:
                failed[cell] = error
        return answers, failed

    async def _cells_of(
        self, path: str, place: Place, values: Sequence[Any], context: Any
    ) -> tuple[list[str | None], Sequence[str]]:
        """Return the cell of each of these, None: it was not found; and the cells that did not answer."""
        caller = current_access().principal
        remembers = place.form is not Form.TIME_TABLE
        found: dict[Any, str | None] = {}
        wanted: dict[Hashable, Any] = {}
        for value in values:
            cell = self._locations.find(caller, value) if remembers else None
            if cell is not None and cell in self.units:
                found[value] = cell
            elif (key := READERS[place.form](value)) is not None:
                wanted[key] = value
        away: Sequence[str] = ()
        if wanted:
            located = await self._locator.locate(
                place.form, path, wanted.keys(), self._all_units(), _left(context)
            )
            away = located.away
            for key, cell in located.cells.items():
                found[wanted[key]] = cell
                if remembers and key in located.sure:
                    self._locations.note(caller, wanted[key], cell)
        return [found.get(value) for value in values], away

    def _cells_by_name(
        self, place: Place, items: Sequence[Any], names: Collection[str]
    ) -> str | list[str | None]:
        """Return the cell of all items, or those of each if they are of several; `names` are those of all items."""
        read = _reader(place)
        cells = {name: self._cell_by_name(place.form, name) for name in names}
        of_all = set(cells.values())
        if len(of_all) > 1:
            return [cells[read(item)] for item in items]
        return of_all.pop() if of_all else self._anywhere().name

    def _cell_by_name(self, form: Form, name: str) -> str:
        directory = self._directory()
        return directory.cell_of_lambda(name) if form is Form.LAMBDA else directory.cell_of(name)

    def _cells(self) -> list[str]:
        """Return the names of all cells, the default cell first."""
        directory = self._directory()
        return sorted(directory.cells, key=lambda name: (name != directory.default_cell, name))

    def _all_units(self) -> dict[str, CellUnit | None]:
        return {cell: self.units.get(cell) for cell in self._cells()}

    def _unit(self, cell: str) -> CellUnit:
        """Return the unit of a cell that answers: calls that wait for one that is away would use up their caller's turns."""
        unit = self.units.get(cell)
        if unit is None:
            raise CellUnavailableError(cell, "it is not served here yet: try again")
        if not unit.is_serving:
            raise CellUnavailableError(cell, "its Postgres does not answer: try again")
        return unit

    def _unit_of(self, cell: str | None, away: Sequence[str]) -> CellUnit:
        """Return the unit of what was located. What is nowhere is of any cell, which says so."""
        if cell is not None:
            return self._unit(cell)
        if away:
            raise CellUnavailableError(
                ", ".join(away), "it may have what the call names, and does not answer"
            )
        return self._anywhere()

    def _anywhere(self) -> CellUnit:
        """Return a unit for what is in no cell: the default cell's before others, if it answers."""
        cells = self._cells()
        served = (self.units.get(cell) for cell in cells)
        unit = next((each for each in served if each is not None and each.is_serving), None)
        return unit or self._unit(cells[0])

    def _check_size(self, field: str, answer: Message) -> None:
        if 0 <= self._most_bytes < answer.ByteSize():
            raise TooMuchError(
                f"{field}: the answer would have more than {self._most_bytes:,} bytes (rpc.max_message_bytes): "
                "ask for less in one call"
            )


async def _quietly(look: Callable[[], Awaitable[object]]) -> None:
    with suppress(DulyError):  # its own loop reports that
        await look()


def _raise_refusal(failed: Mapping[str, DulyError]) -> None:
    for error in failed.values():
        if isinstance(error, NotInCellError):
            raise error


def _is_unknown_lambda(result: Any) -> bool:
    return not result.task_id and bool(result.error.code == task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)


def _ended(call: asyncio.Task[Any]) -> None:
    """Let a call end that nobody waits for any more."""
    if not call.cancelled():
        call.exception()


def _left(context: Any) -> timedelta:
    """Return how long cells may take."""
    left = context.time_remaining()
    return CELL_WITHIN if left is None else min(CELL_WITHIN, timedelta(seconds=max(0.0, left)))


def _by_claim(place: Place, request: Any) -> Place:
    """Return the place by which a request is located: with the token of a claim, that decides."""
    is_claimed = place.claim_token and getattr(request, place.claim_token)
    return replace(place, form=Form.CLAIM) if is_claimed else place


def _reader(place: Place) -> Callable[[Any], Any]:
    if place.form is Form.CLAIM:
        return attrgetter(place.field, place.claim_token)
    return attrgetter(place.field) if place.field else _itself


def _itself(item: Any) -> Any:
    return item


def _is_absent(request: Any, name: str) -> bool:
    if request.DESCRIPTOR.fields_by_name[name].has_presence:
        return not request.HasField(name)
    return not getattr(request, name)


def _holds(answer: Any, said: Mapping[str, int]) -> bool:
    return all(attrgetter(name)(answer) == value for name, value in said.items())


def _answer_class(path: str) -> type[Any]:
    return GetMessageClass(METHODS[path].output_type)


def _part(request: Any, items: str, places: Sequence[int]) -> Any:
    """Return the request with some of its items."""
    part = type(request)()
    for each, value in request.ListFields():
        if each.name == items:
            continue
        if each.is_repeated:
            getattr(part, each.name).MergeFrom(value)
        elif each.message_type is not None:
            getattr(part, each.name).CopyFrom(value)
        else:
            setattr(part, each.name, value)
    every = getattr(request, items)
    getattr(part, items).extend(every[place] for place in places)
    return part


def _together(
    path: str,
    route: ByItems,
    count: int,
    parts: Mapping[str, Sequence[int]],
    answers: Mapping[str, Any],
    errors: Mapping[int, task_pb2.ItemError],
) -> Any:
    """Return an answer with the results of all items in their order."""
    results: dict[int, Any] = {}
    for cell, answer in answers.items():
        results |= zip(parts[cell], getattr(answer, route.results), strict=True)
    whole = _answer_class(path)()
    added = getattr(whole, route.results)
    for place in range(count):
        if place in results:
            added.append(results[place])
        else:
            added.add(error=errors[place])
    return whole


def _item_error(error: DulyError) -> task_pb2.ItemError:
    return task_pb2.ItemError(code=task_pb2.ERROR_CODE_CELL_UNAVAILABLE, message=str(error))


def _not_known(place: Place, away: Sequence[str]) -> task_pb2.ItemError:
    return task_pb2.ItemError(
        code=task_pb2.ERROR_CODE_CELL_UNAVAILABLE,
        field=place.field,
        message=f"no cell that answers has it; cell {', '.join(away)} does not answer: try again",
    )


def _are_away(errors: Mapping[int, task_pb2.ItemError]) -> bool:
    return any(error.code == task_pb2.ERROR_CODE_CELL_UNAVAILABLE for error in errors.values())


def _some(names: Sequence[str]) -> str:
    different = sorted(set(names))
    more = len(different) - 3
    return ", ".join(different[:3]) + (f" and {more} more" if more > 0 else "")
