"""What the router sends to which cell, and what it makes of the answers: the servicers of the cells are scripted."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

import pytest

from duly_core.access.current import set_access
from duly_core.access.grants import UNRESTRICTED, Access, Grant
from duly_core.access.roles import Role
from duly_core.cells.directory import Cell, Directory
from duly_core.errors import CellFencedError, InvalidRequestError, NotInCellError, StoreUnavailableError
from duly_frontend import events
from duly_frontend.cells import merging
from duly_frontend.cells.cell_units import CellUnavailableError, CellUnit
from duly_frontend.cells.locations import Locations
from duly_frontend.cells.router import Router
from duly_wire.v1 import events_pb2, frontend_pb2, graphs_pb2, problems_pb2, task_pb2, watches_pb2
from tests.fixtures.waiting import until

FIRST = Directory(
    UUID(int=7),
    1,
    {name: Cell(name, f"host={name}", "public") for name in ("a", "b")},
    {"b": "b"},
    "a",
)
AWAY = task_pb2.ERROR_CODE_CELL_UNAVAILABLE
SCHEDULE = "/duly.v1.FrontendService/Schedule"


class Context:
    """What the router asks of a call."""

    def __init__(self) -> None:
        self.trailing: dict[str, str] = {}

    def time_remaining(self) -> float | None:
        return None

    def set_trailing_metadata(self, pairs: Any) -> None:
        self.trailing |= dict(pairs)


class Cells:
    """Two cells whose servicers do what a test says; `asked` has what each was asked."""

    def __init__(self, **serve: Callable[[Any], Awaitable[Any]]) -> None:
        self.directory = FIRST
        self.following: Directory | None = None
        self.looks = 0
        self.until = asyncio.Event()
        self.until.set()
        self.asked: dict[str, list[Any]] = {"a": [], "b": []}
        self.router = Router(lambda: self.directory, lambda: "a", merging, self._look)
        for name in ("a", "b"):
            unit = CellUnit(name, _Handlers(self._handler(name, serve[name])), None, self.router.look_soon)  # type: ignore[arg-type]
            unit.is_serving = True
            self.router.units[name] = unit

    def _handler(self, name: str, serve: Callable[[Any], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def handle(request: Any, _context: Any) -> Any:
            self.asked[name].append(request)
            return await serve(request)

        return handle

    async def _look(self) -> None:
        self.looks += 1
        await self.until.wait()
        if self.following is not None:
            self.directory = self.following

    async def call(self, path: str, request: Any) -> Any:
        return await self.router.handler(path)(request, Context())


class _Handlers(dict[str, Any]):
    def __init__(self, handler: Any) -> None:
        super().__init__()
        self._handler = handler

    def __missing__(self, _path: str) -> Any:
        return self._handler


def new_task(name: str, task_id: str = "") -> frontend_pb2.NewTask:
    task = frontend_pb2.NewTask(task_id=task_id)
    setattr(task, "lambda", name)
    return task


def schedule(*names: str) -> frontend_pb2.ScheduleRequest:
    return frontend_pb2.ScheduleRequest(tasks=[new_task(name) for name in names])


def written(prefix: str) -> Callable[[Any], Awaitable[Any]]:
    async def serve(request: Any) -> Any:
        names = [getattr(task, "lambda") for task in request.tasks]
        return frontend_pb2.ScheduleResponse(
            results=[frontend_pb2.ScheduleResult(task_id=f"{prefix}:{name}") for name in names]
        )

    return serve


def raises(error: Exception) -> Callable[[Any], Awaitable[Any]]:
    async def serve(_request: Any) -> Any:
        raise error

    return serve


async def never(_request: Any) -> Any:
    await asyncio.Event().wait()


def ids(answer: Any) -> list[str]:
    return [result.task_id for result in answer.results]


async def test_results_of_a_batch_of_several_cells_come_in_its_order() -> None:
    cells = Cells(a=written("a"), b=written("b"))

    answer = await cells.call(SCHEDULE, schedule("b/2", "x", "b/1", "y@v2", "b/3@~lab"))

    assert ids(answer) == ["b:b/2", "a:x", "b:b/1", "a:y@v2", "b:b/3@~lab"]


async def test_a_batch_notes_that_a_cell_of_it_is_away() -> None:
    cells = Cells(a=written("a"), b=raises(StoreUnavailableError("away")))

    await cells.call(SCHEDULE, schedule("x"))
    before = events.had_items_away()
    answer = await cells.call(SCHEDULE, schedule("x", "b/1"))

    assert [result.error.code for result in answer.results] == [0, AWAY]
    assert (before, events.had_items_away()) == (False, True)


async def test_a_batch_of_one_cell_is_passed_on_as_it_is() -> None:
    cells = Cells(a=written("a"), b=written("b"))
    request = schedule("b/1", "b/2")

    await cells.call(SCHEDULE, request)

    assert cells.asked == {"a": [], "b": [request]}
    assert cells.asked["b"][0] is request


async def test_a_part_has_all_other_fields_of_the_request() -> None:
    cells = Cells(a=never, b=never)
    router = cells.router
    request = frontend_pb2.CancelTaskRequest(task_ids=["1", "2"], kill=True)
    for task_id, cell in (("1", "a"), ("2", "b")):
        router._locations.note("", task_id, cell)
    call = asyncio.ensure_future(cells.call("/duly.v1.FrontendService/CancelTask", request))
    for _ in range(5):  # until both parts are under way
        await asyncio.sleep(0)
    call.cancel()

    assert [(list(each.task_ids), each.kill) for (each,) in cells.asked.values()] == [
        (["1"], True),
        (["2"], True),
    ]


async def test_items_of_a_cell_that_fails_have_an_error_and_the_others_are_done() -> None:
    cells = Cells(a=written("a"), b=raises(StoreUnavailableError("Postgres is gone")))

    answer = await cells.call(SCHEDULE, schedule("b/1", "x"))

    assert [result.error.code for result in answer.results] == [AWAY, 0]
    assert answer.results[0].error.message == "cell b: Postgres is gone"


async def test_a_call_of_which_every_cell_fails_fails() -> None:
    gone = raises(StoreUnavailableError("gone"))
    cells = Cells(a=gone, b=gone)

    with pytest.raises(CellUnavailableError):
        await cells.call(SCHEDULE, schedule("b/1", "x"))


async def test_a_call_that_one_cell_refuses_is_refused() -> None:
    cells = Cells(a=written("a"), b=raises(InvalidRequestError("tasks", "too many")))

    with pytest.raises(InvalidRequestError):
        await cells.call(SCHEDULE, schedule("b/1", "x"))


async def test_a_cell_that_is_known_to_be_away_is_not_asked() -> None:
    cells = Cells(a=written("a"), b=never)
    cells.router.units["b"].is_serving = False

    answer = await cells.call(SCHEDULE, schedule("b/1", "x"))

    assert [result.error.code for result in answer.results] == [AWAY, 0]
    with pytest.raises(CellUnavailableError):
        await cells.call(SCHEDULE, schedule("b/1"))
    assert not cells.asked["b"]


async def test_a_refused_namespace_is_sent_where_the_newer_directory_says_and_nothing_else_is_repeated() -> (
    None
):
    cells = Cells(a=written("a"), b=raises(NotInCellError("namespace b lives in cell a")))
    cells.following = Directory(FIRST.installation, 2, FIRST.cells, {}, "a")

    answer = await cells.call(SCHEDULE, schedule("b/1", "x"))

    assert ids(answer) == ["a:b/1", "a:x"]
    assert [[getattr(task, "lambda") for task in each.tasks] for each in cells.asked["a"]] == [["x"], ["b/1"]]


@pytest.mark.parametrize("names", [("b/1",), ("b/1", "x")])
async def test_a_namespace_that_is_refused_by_the_newest_directory_is_an_error_with_both_versions(
    names: tuple[str, ...],
) -> None:
    said = "namespace b lives in cell c, and not in cell b (version 9 of the directory)"
    cells = Cells(a=written("a"), b=raises(NotInCellError(said)))

    with pytest.raises(NotInCellError, match=r"version 9.*this Frontend goes by version 1"):
        await cells.call(SCHEDULE, schedule(*names))
    assert len(cells.asked["b"]) == 1


async def test_calls_that_are_refused_together_have_the_directory_read_twice_at_most_and_wait_no_longer_than_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cells = Cells(a=written("a"), b=raises(NotInCellError("not here")))
    cells.until = asyncio.Event()
    calls = [asyncio.ensure_future(cells.call(SCHEDULE, schedule("b/1"))) for _ in range(5)]
    await until(lambda: cells.looks == 1)
    cells.until.set()
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in errors] == [NotInCellError] * 5
    assert cells.looks == 2

    cells.until.clear()
    monkeypatch.setattr("duly_frontend.cells.router._LOOK_WITHIN", 0.0)
    with pytest.raises(NotInCellError, match="not here"):
        await cells.call(SCHEDULE, schedule("b/1"))
    cells.until.set()


async def test_a_namespace_that_is_refused_twice_is_an_error() -> None:
    refuses = raises(NotInCellError("not here"))
    cells = Cells(a=refuses, b=refuses)
    cells.following = Directory(FIRST.installation, 2, FIRST.cells, {}, "a")

    with pytest.raises(NotInCellError, match="version 2"):
        await cells.call(SCHEDULE, schedule("b/1"))
    assert [len(asked) for asked in cells.asked.values()] == [1, 1]


async def test_a_lambda_that_a_cell_does_not_know_has_the_directory_read_once_a_second_at_most() -> None:
    async def unknown(_request: Any) -> Any:
        error = task_pb2.ItemError(code=task_pb2.ERROR_CODE_UNKNOWN_LAMBDA)
        return frontend_pb2.ScheduleResponse(results=[frontend_pb2.ScheduleResult(error=error)])

    cells = Cells(a=unknown, b=unknown)

    for _ in range(3):
        await cells.call(SCHEDULE, schedule("x"))

    assert cells.looks == 1


async def test_a_cell_that_moves_has_the_directory_read() -> None:
    cells = Cells(a=written("a"), b=raises(CellFencedError("cell b moves")))

    with pytest.raises(CellUnavailableError, match="moves"):
        await cells.call(SCHEDULE, schedule("b/1"))
    await asyncio.sleep(0)

    assert cells.looks == 1


async def test_events_go_by_their_namespace() -> None:
    async def sent(request: Any) -> Any:
        return events_pb2.SendEventsResponse(
            results=[events_pb2.SendEventResult(event_id=event.key) for event in request.events]
        )

    cells = Cells(a=sent, b=sent)
    wanted = [("b", "1"), ("", "2"), ("b", "3")]
    request = events_pb2.SendEventsRequest(
        events=[events_pb2.NewEvent(namespace=namespace, key=key) for namespace, key in wanted]
    )

    answer = await cells.call("/duly.v1.EventService/SendEvents", request)

    assert [result.event_id for result in answer.results] == ["1", "2", "3"]
    assert [event.key for event in cells.asked["b"][0].events] == ["1", "3"]


async def test_a_graph_of_several_cells_reaches_none() -> None:
    cells = Cells(a=never, b=never)
    nodes = [graphs_pb2.GraphNode(label=name, task=new_task(name)) for name in ("x", "b/1", "b/2", "y")]

    answer = await cells.call(
        "/duly.v1.GraphService/ScheduleGraph", graphs_pb2.ScheduleGraphRequest(nodes=nodes)
    )

    assert answer.error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT
    assert "cell a (x, y) and cell b (b/1, b/2)" in answer.error.message
    assert cells.asked == {"a": [], "b": []}


async def test_a_definition_is_that_of_the_cell_that_has_it() -> None:
    async def absent(_request: Any) -> Any:
        error = task_pb2.ItemError(code=task_pb2.ERROR_CODE_NOT_FOUND)
        return graphs_pb2.GetGraphDefinitionResponse(error=error)

    async def there(_request: Any) -> Any:
        return graphs_pb2.GetGraphDefinitionResponse(definition=graphs_pb2.GraphDefinition(name="nightly"))

    path, request = "/duly.v1.GraphService/GetGraphDefinition", graphs_pb2.GetGraphDefinitionRequest()

    found = await Cells(a=absent, b=there).call(path, request)
    nowhere = await Cells(a=absent, b=absent).call(path, request)

    assert found.definition.name == "nightly"
    assert nowhere.error.code == task_pb2.ERROR_CODE_NOT_FOUND
    with pytest.raises(CellUnavailableError, match="b: it may have"):
        await Cells(a=absent, b=raises(StoreUnavailableError("gone"))).call(path, request)


def _events(cell: str, seconds: Mapping[str, int]) -> watches_pb2.WatchResponse:
    answer = watches_pb2.WatchResponse(position=f"{cell}-end")
    for name, moment in seconds.items():
        event = answer.events.add(task_id=name, position=f"{cell}-{name}")
        event.at.seconds = moment
    return answer


async def test_a_watch_ends_when_one_cell_has_events_and_goes_on_in_the_other_where_it_was() -> None:
    async def some(_request: Any) -> Any:
        return _events("a", {"x": 1})

    cells = Cells(a=some, b=never)
    answer = await cells.call("/duly.v1.WatchService/Watch", watches_pb2.WatchRequest(lambdas=["*"]))

    assert [event.task_id for event in answer.events] == ["x"]
    again = Cells(a=some, b=some)
    await again.call(
        "/duly.v1.WatchService/Watch", watches_pb2.WatchRequest(lambdas=["*"], after=answer.position)
    )
    assert [asked.after for (asked,) in again.asked.values()] == ["a-end", ""]


async def test_events_of_several_cells_come_by_time_and_each_has_the_places_in_all_cells() -> None:
    async def of_a(_request: Any) -> Any:
        return _events("a", {"a1": 1, "a3": 3})

    async def of_b(_request: Any) -> Any:
        return _events("b", {"b2": 2})

    answer = await Cells(a=of_a, b=of_b).call(
        "/duly.v1.WatchService/Watch", watches_pb2.WatchRequest(lambdas=["*"])
    )
    behind_b2 = Cells(a=of_a, b=of_b)
    await behind_b2.call(
        "/duly.v1.WatchService/Watch",
        watches_pb2.WatchRequest(lambdas=["*"], after=answer.events[1].position),
    )

    assert [event.task_id for event in answer.events] == ["a1", "b2", "a3"]
    assert [asked.after for (asked,) in behind_b2.asked.values()] == ["a-a1", "b-b2"]


@pytest.mark.parametrize("after", ["cells:!", "cells:e30", "cells:WzFd", "cells:" + "A" * 100_000])
async def test_a_position_that_is_none_is_refused(after: str) -> None:
    answer = await Cells(a=never, b=never).call(
        "/duly.v1.WatchService/Watch", watches_pb2.WatchRequest(lambdas=["*"], after=after)
    )

    assert answer.error.field == "after"


async def test_a_watch_of_lambdas_of_one_cell_is_of_that_cell_alone() -> None:
    async def none(_request: Any) -> Any:
        return watches_pb2.WatchResponse(position="p")

    cells = Cells(a=never, b=none)
    answer = await cells.call(
        "/duly.v1.WatchService/Watch", watches_pb2.WatchRequest(lambdas=["b/x", "b/y*"])
    )

    assert answer.position == "p"


def test_of_many_ids_the_latest_are_remembered_for_each_caller() -> None:
    locations = Locations(most=2)
    for number in range(5):
        locations.note("ann", str(number), "b")
    locations.note("bob", "4", "a")

    assert [locations.find("ann", str(number)) for number in (4, 3, 1)] == ["b", "b", None]
    assert locations.find("bob", "4") == "a"
    assert locations.find("eve", "4") is None


@pytest.mark.parametrize(
    ("pattern", "is_serving", "told"),
    [
        ("*", False, [problems_pb2.PROBLEM_SEVERITY_CRITICAL]),
        ("*", True, [problems_pb2.PROBLEM_SEVERITY_WARNING]),
        ("shop/*", False, []),
    ],
)
async def test_a_cell_that_does_not_answer_is_no_problem_of_those_who_may_not_read_all_lambdas(
    pattern: str, is_serving: bool, told: list[int]
) -> None:
    healthy = problems_pb2.ListProblemsResponse()
    healthy.as_of.FromSeconds(1_000)
    healthy.age.FromSeconds(3)

    async def answers(_request: Any) -> Any:
        return healthy

    cells = Cells(a=answers, b=raises(CellUnavailableError("b", "gone")))
    cells.router.units["b"].is_serving = is_serving
    set_access(Access("ann", [Grant("ann", Role.OPERATOR, pattern)]))
    try:
        board = await cells.call("/duly.v1.ProblemService/ListProblems", problems_pb2.ListProblemsRequest())
    finally:
        set_access(UNRESTRICTED)

    assert [each.severity for each in board.problems] == told
    assert [(each.name, each.is_answering) for each in board.cells] == [("a", True), ("b", False)]
