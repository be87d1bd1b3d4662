"""Makes one answer of those of several cells, for every method that concerns more than one. No I/O.

`requests` says what to ask of each cell, `merge` makes one answer of what they say.
"""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from google.protobuf.message_factory import GetMessageClass

from duly_core.errors import StoreUnavailableError
from duly_core.lambdas.session_names import SessionId
from duly_core.rpc.requests.checks import page_size
from duly_frontend.cells import joining, sums
from duly_frontend.cells.places import Places
from duly_frontend.cells.services import METHODS
from duly_frontend.fleet.queue_request import place_of_row, write_token
from duly_frontend.lists import page_token
from duly_frontend.slo import wire as service_levels
from duly_wire.v1 import fleet_pb2, frontend_pb2

_MOST_WITH_LAMBDAS = 20


def requests(method: str, request: Any, cells: Iterable[str]) -> dict[str, Any]:
    """Return what to ask of each cell. A cell that has no more, or whose turn has not come, is not asked.

    Args:
        method: the path, such as `/duly.v1.FrontendService/ListTasks`.
        request: of the caller.
        cells: the names of all cells.

    Raises:
        Problem: the page token is not one of ours.
    """
    asked = RULES[method].requests(request, sorted(cells))
    return {cell: _without_cell(each) for cell, each in asked.items()}


def merge(method: str, request: Any, answers: Mapping[str, Any], cells: Collection[str] | None = None) -> Any:
    """Return one answer of those of the cells.

    Args:
        method: the path.
        request: of the caller, as it came.
        answers: by the name of the cell.
        cells: the names of all cells, as they were given to `requests`; None: those that answered are all.

    Raises:
        StoreUnavailableError: no cell answered.
    """
    names = sorted(answers if cells is None else cells)
    if not answers and not isinstance(RULES[method], _Bulk):
        asked = requests(method, request, names)
        if names and not asked:  # by its page token no cell has more: one that had is gone, or nobody gave it
            return GetMessageClass(METHODS[method].output_type)()
        raise _no_answer(asked)
    return RULES[method].merge(request, dict(sorted(answers.items())), names)


def _without_cell(request: Any) -> Any:
    """Return the request of one cell as that cell gets it."""
    if not getattr(request, "cell", ""):
        return request
    asked = deepcopy(request)
    asked.ClearField("cell")
    return asked


def _nothing_of_cells(
    _request: Any, _answer: Any, _answers: Mapping[str, Any], _cells: Sequence[str]
) -> None:
    """Say nothing of the cells themselves."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """Every cell is asked the same, and answers all that it has."""

    make: Callable[[Any, Mapping[str, Any]], Any]
    finish: Callable[[Any, Any, Mapping[str, Any], Sequence[str]], None] = _nothing_of_cells
    """Says how the cells stand, of the request, the answer, those of the cells, and the names of all."""

    def requests(self, request: Any, cells: Sequence[str]) -> dict[str, Any]:
        return dict.fromkeys(cells, request)

    def merge(self, request: Any, answers: Mapping[str, Any], cells: Sequence[str]) -> Any:
        whole = self.make(request, answers)
        self.finish(request, whole, answers, cells)
        return whole


def _no_more(_page: Any, _answers: Collection[Any]) -> None:
    """Fill in nothing: a page has its rows only."""


def _places(request: Any) -> Places:
    """Return where the page of a request begins in each cell."""
    return Places.read("page_token", request.page_token, getattr(request, "cell", ""))


def _size(request: Any) -> int | None:
    return page_size(request.page_size)


@dataclass(frozen=True, slots=True)
class _List:
    """Pages: each row once, in the order of its cell, and in that of the keys as far as all cells sort alike."""

    rows: str
    """The field."""
    key: Callable[[Any, Any], Any]
    """Returns the place of a row in the order, of a request and a row."""
    token: Callable[[Any, Any], str]
    """Returns a cell's own token of the page behind a row, of a request and a row."""
    join: Callable[[Sequence[Any]], Any] | None = None
    """Makes one row of those of one key. None: they are different things."""
    finish: Callable[[Any, Collection[Any]], None] = _no_more
    """Fills in the other fields of a page, of those of the cells."""
    size: Callable[[Any], int | None] = _size
    """Returns how many rows a page has; None: all."""

    def requests(self, request: Any, cells: Sequence[str]) -> dict[str, Any]:
        places = _places(request)
        asked = {}
        for cell in cells:
            token = places.of(cell)
            if token is not None:
                asked[cell] = deepcopy(request)
                asked[cell].page_token = token
        return asked

    def merge(self, request: Any, answers: Mapping[str, Any], cells: Sequence[str]) -> Any:
        page = _like(answers)
        found = getattr(page, self.rows)
        size = self.size(request)
        waiting = {cell: deque(getattr(answer, self.rows)) for cell, answer in answers.items()}
        heads = [(self.key(request, rows[0]), cell) for cell, rows in waiting.items() if rows]
        heapq.heapify(heads)
        taken: dict[str, Any] = {}
        last = None
        # of a cell that has more, and whose rows are used up, the next row is not known: it may come before all others
        unknown = any(not rows and answers[cell].next_page_token for cell, rows in waiting.items())
        while heads and not unknown and (size is None or len(found) < size):
            key = heads[0][0]
            group: list[Any] = []
            while heads and heads[0][0] == key and (self.join or not group):
                _, cell = heapq.heappop(heads)
                last = taken[cell] = waiting[cell].popleft()
                group.append(last)
                if waiting[cell]:
                    heapq.heappush(heads, (self.key(request, waiting[cell][0]), cell))
                elif answers[cell].next_page_token:
                    unknown = True
            found.append(self.join(group) if self.join and len(group) > 1 else group[0])
        if any(waiting[cell] or answer.next_page_token for cell, answer in answers.items()):
            places, own = (
                _places(request),
                _without_cell(request),
            )  # a cell's token is bound to what the cell is asked
            by_cell, ended = {}, set(places.ended)
            for cell, answer in answers.items():
                if not waiting[cell]:
                    if answer.next_page_token:
                        by_cell[cell] = answer.next_page_token
                    else:
                        ended.add(cell)
                elif cell in taken:
                    by_cell[cell] = self.token(own, taken[cell])
                else:
                    by_cell[cell] = places.of(cell) or ""
            for cell in cells:
                if cell not in answers and cell not in ended:
                    # what is before this page is not shown later, out of order: the caller was told that the cell is missing
                    by_cell[cell] = self.token(own, last) if last is not None else places.of(cell) or ""
            page.next_page_token = Places(by_cell, frozenset(ended), only=places.only).write()
        self.finish(page, answers.values())
        return page


@dataclass(frozen=True, slots=True)
class _Bulk:
    """Changes by a filter, a page at a time: one cell after the other, so that limit and rate hold for all together."""

    response: Callable[[], Any]

    def requests(self, request: Any, cells: Sequence[str]) -> dict[str, Any]:
        if _counts_all(request):
            return dict.fromkeys(cells, request)
        places = Places.read("after", request.after)
        for cell in cells:
            token = places.of(cell)
            if token is not None:
                asked = deepcopy(request)
                asked.after = token
                return {cell: asked}
        return {}

    def merge(self, request: Any, answers: Mapping[str, Any], cells: Sequence[str]) -> Any:
        if _counts_all(request):
            if not answers:
                raise _no_answer(cells)
            total = self.response()
            total.count = sum(answer.count for answer in answers.values())
            sums.oldest(answers.values(), "as_of", total)
            return total
        places = Places.read("after", request.after)
        by_cell, ended = dict(places.by_cell), set(places.ended)
        asked = next((cell for cell in cells if cell not in ended), "")
        answer = answers.get(asked)
        total = self.response()
        if answer is not None:
            total.CopyFrom(answer)
            total.ClearField("next_after")
        else:  # the caller is told that it is missing; the others are not left out for that
            for field, same in (("as_of", "as_of"), ("offset", "next_offset")):
                if field in request.DESCRIPTOR.fields_by_name and request.HasField(field):
                    getattr(total, same).CopyFrom(getattr(request, field))
            if hasattr(total, "cause"):
                total.cause = request.cause
        if answer is not None and answer.more:
            by_cell[asked] = answer.next_after
        else:
            ended.add(asked)
            by_cell.pop(asked, None)
        total.more = any(cell not in ended for cell in cells)
        if total.more:
            total.next_after = Places(by_cell, frozenset(ended), places.otherwise).write()
        return total


def _no_answer(cells: Iterable[str]) -> StoreUnavailableError:
    return StoreUnavailableError(f"these cells do not answer: {', '.join(sorted(cells))}")


def _counts_all(request: Any) -> bool:
    """Whether a call counts all that match at once. With attributes or a cause a cell counts page by page."""
    return bool(
        request.dry_run and not getattr(request, "attributes", ()) and not getattr(request, "cause", "")
    )


def _like(answers: Mapping[str, Any]) -> Any:
    """Return an empty answer."""
    return type(next(iter(answers.values())))()


def _by_name(rows: str, name: Callable[[Any], str], **more: Any) -> _List:
    """Return the rule of a list by name."""
    return _List(rows, lambda _, row: name(row), lambda _, row: page_token.write_name(name(row)), **more)


def _by_id(rows: str, id_of: Callable[[Any], str]) -> _List:
    """Return the rule of a list by id, the newest first; ids of all cells are of one order."""
    return _List(
        rows,
        lambda _, row: -UUID(id_of(row)).int,
        lambda request, row: page_token.write(request, UUID(id_of(row)).bytes),
    )


def _size_of_lambdas(request: Any) -> int | None:
    if not (request.page_size or request.page_token or request.name_part):
        return None
    return page_size(request.page_size)


def _size_of_hosts(request: Any) -> int:
    size = page_size(request.page_size)
    return min(size, _MOST_WITH_LAMBDAS) if request.include_lambdas else size


def _finish_queues(page: Any, answers: Collection[Any]) -> None:
    sums.oldest(answers, "counted_at", page)
    page.total_queues = sum(answer.total_queues for answer in answers)


def _finish_pools(page: Any, answers: Collection[Any]) -> None:
    leaders = [answer.leader for answer in answers if answer.HasField("leader")]
    if leaders:
        page.leader.CopyFrom(max(leaders, key=lambda each: (each.leads, joining.instant(each.until_at))))


def _queue_order(request: Any, row: Any) -> tuple[int, str, int]:
    return place_of_row(request.order, row)


def _when(_request: Any, event: Any) -> tuple[int, int]:
    seconds, nanos = joining.instant(event.at)
    return -seconds, -nanos


def _report_host(_request: Any, answers: Mapping[str, Any]) -> fleet_pb2.ReportHostResponse:
    """Return what all cells tell a host: it drains if the autoscaler of one says so."""
    found = [*answers.values()]
    told = fleet_pb2.ReportHostResponse(
        lambdas_wanted=any(each.lambdas_wanted for each in found),
        store_at=found[0].store_at,
        label_queues=sorted({queue for each in found for queue in each.label_queues}),
        drain=any(each.drain for each in found),
    )
    settings = [each.settings for each in found if each.HasField("settings")]
    if settings:
        told.settings.CopyFrom(settings[0])
    return told


Rule = _List | _Whole | _Bulk

RULES: Mapping[str, Rule] = {
    "/duly.v1.FrontendService/ListTasks": _by_id("tasks", lambda row: row.task_id),
    "/duly.v1.FrontendService/CancelTasks": _Bulk(frontend_pb2.CancelTasksResponse),
    "/duly.v1.FrontendService/PurgeTasks": _Bulk(frontend_pb2.PurgeTasksResponse),
    "/duly.v1.FrontendService/RedriveTasks": _Bulk(frontend_pb2.RedriveTasksResponse),
    "/duly.v1.GraphService/ListGraphs": _by_id("graphs", lambda row: row.graph_id),
    "/duly.v1.GraphService/ListGraphDefinitions": _by_name("definitions", lambda row: row.name),
    "/duly.v1.InspectionService/GetActivity": _Whole(sums.get_activity),
    "/duly.v1.InspectionService/GetTrends": _Whole(sums.get_trends),
    "/duly.v1.InspectionService/GetServiceLevels": _Whole(lambda _, answers: service_levels.merged(answers)),
    "/duly.v1.InspectionService/Search": _Whole(sums.search),
    "/duly.v1.GateService/ListGates": _Whole(sums.list_gates),
    "/duly.v1.GateService/ListBreakers": _Whole(sums.list_breakers),
    "/duly.v1.ObjectiveService/ListObjectives": _Whole(sums.list_objectives),
    "/duly.v1.LimitService/ListResources": _by_name(
        "resources", lambda row: row.limit.name, join=joining.resources
    ),
    "/duly.v1.LimitService/GetBacklog": _Whole(sums.get_backlog),
    "/duly.v1.PoolService/ListPools": _by_name(
        "pools", lambda row: row.pool.name, join=joining.pools, finish=_finish_pools
    ),
    "/duly.v1.ProblemService/ListProblems": _Whole(sums.list_problems, sums.note_cells),
    "/duly.v1.RegistryService/ListLambdas": _by_name(
        "lambdas", lambda row: getattr(row, "lambda").name, size=_size_of_lambdas
    ),
    "/duly.v1.SessionService/ListSessions": _by_name(
        "sessions", lambda row: str(SessionId(row.namespace, row.key))
    ),
    "/duly.v1.TimeTableService/ListTimeTables": _by_name("tables", lambda row: row.table.name),
    "/duly.v1.TimeTableService/ListCalendars": _by_name(
        "calendars", lambda row: row.calendar.name, join=joining.calendars
    ),
    "/duly.v1.FleetService/ReportHost": _Whole(_report_host),
    "/duly.v1.FleetService/ListHosts": _by_name(
        "hosts", lambda row: row.host_id, join=joining.hosts, size=_size_of_hosts
    ),
    "/duly.v1.FleetService/ListServices": _Whole(sums.list_services),
    "/duly.v1.FleetService/ListQueues": _List(
        "queues",
        _queue_order,
        lambda request, row: write_token(_queue_order(request, row)),
        finish=_finish_queues,
    ),
    "/duly.v1.AccessService/ListAuditEvents": _List("events", _when, lambda _, row: str(row.event_id)),
}
"""By the path of the method."""
