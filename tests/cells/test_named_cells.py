"""In which cell something is: rows name it, and lists can be of one cell."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import grpc
import pytest

import duly
from duly_core.cells.directory import Cell, Directory
from duly_core.gates.rules import Gate, GateScope
from duly_core.gates.rules import Kind as GateKind
from duly_core.postgres.pool import Store
from duly_core.problems.holds import paused
from duly_core.rpc.channel import open_channel
from duly_core.rpc.requests.problem import Problem
from duly_core.rpc.settings import RpcSettings
from duly_frontend.cells.away import cells_away
from duly_frontend.cells.merging import merge
from duly_frontend.cells.named import note_cell
from duly_frontend.cells.places import Places
from duly_frontend.cells.services import METHODS
from duly_frontend.cells.sums import note_away
from duly_frontend.problems.wire import problem_to_wire
from duly_wire.v1 import (
    explain_pb2,
    explain_pb2_grpc,
    fleet_pb2,
    fleet_pb2_grpc,
    frontend_pb2,
    frontend_pb2_grpc,
    gates_pb2,
    gates_pb2_grpc,
    graphs_pb2,
    graphs_pb2_grpc,
    inspection_pb2,
    inspection_pb2_grpc,
    limits_pb2,
    limits_pb2_grpc,
    objectives_pb2,
    objectives_pb2_grpc,
    problems_pb2,
    problems_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
    sessions_pb2,
    sessions_pb2_grpc,
    time_tables_pb2,
    time_tables_pb2_grpc,
)
from tests.fixtures.routed_cells import RoutedCells, serves
from tests.fixtures.services import Frontend

NAMES = ("plain", "b/other")


async def _tasks(channel: grpc.aio.Channel, count: int = 1) -> list[str]:
    """Register a lambda in each cell, schedule tasks of both in turns, and return their ids."""
    registry = registry_pb2_grpc.RegistryServiceStub(channel)
    lambdas = [registry_pb2.Lambda(name=name, owner="us") for name in NAMES]
    await registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=lambdas))
    request = frontend_pb2.ScheduleRequest()
    for name in NAMES * count:
        setattr(request.tasks.add(payload=b"1"), "lambda", name)
    answer = await frontend_pb2_grpc.FrontendServiceStub(channel).Schedule(request)
    return [result.task_id for result in answer.results]


def _lists(channel: grpc.aio.Channel) -> dict[str, tuple[Any, type[Any]]]:
    """Return the methods whose callers may name a cell."""
    return {
        "ListTasks": (
            frontend_pb2_grpc.FrontendServiceStub(channel).ListTasks,
            frontend_pb2.ListTasksRequest,
        ),
        "ListLambdas": (
            registry_pb2_grpc.RegistryServiceStub(channel).ListLambdas,
            registry_pb2.ListLambdasRequest,
        ),
        "ListHosts": (fleet_pb2_grpc.FleetServiceStub(channel).ListHosts, fleet_pb2.ListHostsRequest),
        "ListQueues": (fleet_pb2_grpc.FleetServiceStub(channel).ListQueues, fleet_pb2.ListQueuesRequest),
        "ListProblems": (
            problems_pb2_grpc.ProblemServiceStub(channel).ListProblems,
            problems_pb2.ListProblemsRequest,
        ),
        "ListGates": (gates_pb2_grpc.GateServiceStub(channel).ListGates, gates_pb2.ListGatesRequest),
        "ListBreakers": (gates_pb2_grpc.GateServiceStub(channel).ListBreakers, gates_pb2.ListBreakersRequest),
        "ListObjectives": (
            objectives_pb2_grpc.ObjectiveServiceStub(channel).ListObjectives,
            objectives_pb2.ListObjectivesRequest,
        ),
        "GetServiceLevels": (
            inspection_pb2_grpc.InspectionServiceStub(channel).GetServiceLevels,
            inspection_pb2.GetServiceLevelsRequest,
        ),
        "ListSessions": (
            sessions_pb2_grpc.SessionServiceStub(channel).ListSessions,
            sessions_pb2.ListSessionsRequest,
        ),
        "ListGraphs": (graphs_pb2_grpc.GraphServiceStub(channel).ListGraphs, graphs_pb2.ListGraphsRequest),
        "ListTimeTables": (
            time_tables_pb2_grpc.TimeTableServiceStub(channel).ListTimeTables,
            time_tables_pb2.ListTimeTablesRequest,
        ),
    }


LISTS = {
    "ListTasks",
    "ListLambdas",
    "ListHosts",
    "ListQueues",
    "ListProblems",
    "ListGates",
    "ListBreakers",
    "ListObjectives",
    "GetServiceLevels",
    "ListSessions",
    "ListGraphs",
    "ListTimeTables",
}


def test_every_method_whose_request_has_a_cell_is_tested_here() -> None:
    with_cell = {
        path.rpartition("/")[2]
        for path, method in METHODS.items()
        if "cell" in method.input_type.fields_by_name
    }
    assert with_cell == LISTS


async def test_rows_of_every_list_say_their_cell_and_lists_say_which_cells_there_are(
    channel_of_cells: grpc.aio.Channel,
) -> None:
    ids = await _tasks(channel_of_cells)
    lists = _lists(channel_of_cells)

    async def listed(name: str, **asked: Any) -> Any:
        call, request = lists[name]
        return await call(request(**asked))

    tasks = await listed("ListTasks")
    lambdas = await listed("ListLambdas")
    queues = await listed("ListQueues")
    assert {getattr(each, "lambda"): each.cell for each in tasks.tasks} == {"plain": "a", "b/other": "b"}
    assert [(getattr(each, "lambda").name, each.cell) for each in lambdas.lambdas] == [
        ("b/other", "b"),
        ("plain", "a"),
    ]
    assert {getattr(each, "lambda"): each.cell for each in queues.queues} == {"plain": "a", "b/other": "b"}
    assert [list(each.cell_names) for each in (tasks, lambdas, queues)] == [["a", "b"]] * 3

    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)
    got = await stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=ids))
    explain = explain_pb2_grpc.ExplainServiceStub(channel_of_cells)
    explained = [await explain.ExplainTask(explain_pb2.ExplainTaskRequest(task_id=each)) for each in ids]
    assert [result.task.cell for result in got.results] == ["a", "b"]
    assert [each.cell for each in explained] == ["a", "b"]


async def test_a_list_of_a_cell_has_its_rows_only_on_every_page(channel_of_cells: grpc.aio.Channel) -> None:
    ids = await _tasks(channel_of_cells, count=3)
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)

    request = frontend_pb2.ListTasksRequest(cell="b", page_size=2)
    pages = [await stub.ListTasks(request)]
    request.page_token = pages[0].next_page_token
    pages.append(await stub.ListTasks(request))

    assert [[task.task_id for task in page.tasks] for page in pages] == [[ids[5], ids[3]], [ids[1]]]
    assert not pages[1].next_page_token

    for other in ("", "a"):
        request.cell = other
        with pytest.raises(grpc.aio.AioRpcError, match=r"page_token: .*of a list of cell b") as refused:
            await stub.ListTasks(request)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_list_of_a_lambda_in_another_cell_is_empty(channel_of_cells: grpc.aio.Channel) -> None:
    await _tasks(channel_of_cells)
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)

    there = await stub.ListTasks(frontend_pb2.ListTasksRequest(cell="b", **{"lambda": "b/other"}))
    elsewhere = await stub.ListTasks(frontend_pb2.ListTasksRequest(cell="a", **{"lambda": "b/other"}))

    assert [len(each.tasks) for each in (there, elsewhere)] == [1, 0]


async def test_a_cell_that_is_not_there_is_refused_and_one_that_is_away_is_named(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    lists = _lists(channel_of_cells)
    for call, request in lists.values():
        with pytest.raises(
            grpc.aio.AioRpcError, match="there is no cell 'c': this installation has a, b"
        ) as refused:
            await call(request(cell="c"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND

    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)

    for call, request in lists.values():
        with pytest.raises(grpc.aio.AioRpcError, match="cell b: ") as away:
            await call(request(cell="b"))
        assert away.value.code() is grpc.StatusCode.UNAVAILABLE
        await call(request(cell="a"))


async def test_a_sole_store_refuses_a_cell_and_names_none(frontend: Frontend) -> None:
    async with open_channel(frontend.address, RpcSettings()) as channel:
        await _tasks(channel)
        for call, request in _lists(channel).values():
            with pytest.raises(grpc.aio.AioRpcError, match="this installation has no cells") as refused:
                await call(request(cell="b"))
            assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "cell" not in str(await call(request()))


async def test_problems_say_how_each_cell_stands(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    stub = problems_pb2_grpc.ProblemServiceStub(channel_of_cells)

    async def stands() -> Sequence[tuple[str, bool]]:
        board = await stub.ListProblems(problems_pb2.ListProblemsRequest())
        return [(each.name, each.is_answering) for each in board.cells]

    assert await stands() == [("a", True), ("b", True)]
    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)
    assert await stands() == [("a", True), ("b", False)]


def test_problems_say_how_old_the_answer_of_each_cell_is_and_as_a_whole_the_oldest() -> None:
    answers = {cell: problems_pb2.ListProblemsResponse() for cell in ("a", "b", "c")}
    answers["a"].age.FromSeconds(24)
    answers["b"].age.FromSeconds(3)

    board = merge("/duly.v1.ProblemService/ListProblems", problems_pb2.ListProblemsRequest(), answers)

    assert board.age.seconds == 24
    assert [(each.name, each.HasField("age"), each.age.seconds) for each in board.cells] == [
        ("a", True, 24),
        ("b", True, 3),
        ("c", False, 0),
    ]


async def test_a_gate_on_all_lambdas_is_one_problem_of_all_cells_and_gates_of_one_name_are_two(
    store: Store,
) -> None:
    now = datetime(2026, 11, 27, tzinfo=UTC)
    ends_at = now + timedelta(minutes=9, milliseconds=100)

    async def board(gate_id: int, pattern: str, now: datetime) -> problems_pb2.ListProblemsResponse:
        """Return what a cell says by its own clock."""
        gate = Gate(gate_id, "stop", GateKind.PAUSE, GateScope(pattern), None, "", "", now, ends_at)
        return problems_pb2.ListProblemsResponse(
            problems=[problem_to_wire(each, now) for each in await paused(store, [gate], {})]
        )

    ahead = now + timedelta(milliseconds=200)
    answers = {
        "a": await board(1, "*", now),
        "b": await board(2, "*", ahead),
        "c": await board(1, "c/*", now),
    }
    for cell, answer in answers.items():
        note_cell(answer, cell)
    whole = merge("/duly.v1.ProblemService/ListProblems", problems_pb2.ListProblemsRequest(), answers)

    texts = [answer.problems[0].text for answer in answers.values()]
    assert texts[0] != texts[1]
    assert sorted(list(each.cells) for each in whole.problems) == [["a", "b"], ["c"]]


DIRECTORY = Directory(
    UUID(int=1), 1, {name: Cell(name, f"host={name}", "public") for name in "abc"}, {"mail": "b"}, "a"
)


def _without(cell: str, asked: Mapping[str, Any], *problems: Any, late: Sequence[str] = ()) -> Any:
    """Return what is told while a cell does not answer, 24 s after the boards of the others found problems."""
    found = problems_pb2.ListProblemsResponse(
        status=problems_pb2.PROBLEM_STATUS_HEALTHY, problems=problems, problem_count=len(problems)
    )
    found.as_of.FromSeconds(1_000)
    found.age.FromSeconds(24)
    request = problems_pb2.ListProblemsRequest(**asked)
    answers = {name: found for name in DIRECTORY.cells if name != cell}
    board = merge("/duly.v1.ProblemService/ListProblems", request, answers, [*DIRECTORY.cells])
    note_away(request, board, DIRECTORY, late)
    return board


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({}, True),
        ({"kinds": [20]}, True),
        ({"kinds": [1]}, False),
        ({"lambda": "plain"}, False),
        ({"host": "h"}, False),
    ],
)
def test_a_cell_that_does_not_answer_is_a_problem_before_a_board_has_found_it(
    asked: dict[str, Any], told: bool
) -> None:
    board = _without("b", asked)

    assert [(each.subject, each.kind, each.since_at.seconds) for each in board.problems] == (
        [("b", problems_pb2.PROBLEM_KIND_CELL_AWAY, 1_024)] if told else []
    )
    assert board.problem_count == told
    assert board.status == (
        problems_pb2.PROBLEM_STATUS_PROBLEMS if told else problems_pb2.PROBLEM_STATUS_HEALTHY
    )


@pytest.mark.parametrize("cell", ["b", "c"])
def test_a_cell_that_does_not_answer_is_as_bad_before_a_board_has_found_it_as_after_that(cell: str) -> None:
    (before,) = _without(cell, {}).problems
    (found,) = cells_away(DIRECTORY, {}, [cell], before.since_at.ToDatetime(UTC))
    found_later = problem_to_wire(found, before.since_at.ToDatetime(UTC))
    found_later.cells[:] = [cell]

    assert before == found_later


def test_a_cell_that_may_be_slow_only_is_a_warning_below_what_is_critical() -> None:
    worse = problems_pb2.Problem(fingerprint="f", severity=problems_pb2.PROBLEM_SEVERITY_CRITICAL)

    _, late = _without("b", {}, worse, late=["b"]).problems

    assert (late.subject, late.severity) == ("b", problems_pb2.PROBLEM_SEVERITY_WARNING)
    assert late.text == "cell b did not answer this time: if it is away, tasks of mail stand, all others run"


def test_a_cell_that_does_not_answer_is_one_problem_after_a_board_has_found_it() -> None:
    found = problems_pb2.Problem(
        fingerprint="f", kind=problems_pb2.PROBLEM_KIND_CELL_AWAY, subject="b", severity=3
    )

    board = _without("b", {}, found)

    assert [(each.subject, each.HasField("since_at")) for each in board.problems] == [("b", False)]
    assert board.problem_count == 1


def test_a_gate_that_was_copied_to_a_cell_is_as_old_as_the_first_and_one_that_was_changed_is_not() -> None:
    def gate(at: int, reason: str) -> gates_pb2.ListGatesResponse:
        answer = gates_pb2.ListGatesResponse()
        answer.gates.add(name="stop", scope={"lambda": "*"}, reason=reason).created_at.FromSeconds(at)
        return answer

    def listed(*answers: gates_pb2.ListGatesResponse) -> tuple[int, str]:
        by_cell = dict(zip("abc", answers, strict=False))
        (row,) = merge("/duly.v1.GateService/ListGates", gates_pb2.ListGatesRequest(), by_cell).gates
        return row.created_at.seconds, row.reason

    assert listed(gate(5, "x"), gate(90, "x")) == (5, "x")
    assert listed(gate(5, "y"), gate(80, "x"), gate(90, "x")) == (80, "x")


def test_problems_are_as_of_the_cells_that_answer() -> None:
    answers = {cell: problems_pb2.ListProblemsResponse() for cell in ("a", "b")}
    answers["a"].as_of.FromSeconds(1_000)
    answers["a"].age.FromSeconds(3)
    answers["b"].as_of.FromSeconds(400)  # of its last board
    board = merge("/duly.v1.ProblemService/ListProblems", problems_pb2.ListProblemsRequest(), answers)

    assert (board.as_of.seconds, board.age.seconds) == (1_000, 3)


def test_slots_of_hosts_that_report_to_each_cell_are_counted_once() -> None:
    answers = {cell: inspection_pb2.GetTrendsResponse() for cell in ("a", "b")}
    for cell, answer in answers.items():
        answer.points.add(slots=8 if cell == "a" else 6, held=2)
    whole = merge("/duly.v1.InspectionService/GetTrends", inspection_pb2.GetTrendsRequest(), answers)

    assert [(each.slots, each.held) for each in whole.points] == [(8, 4)]


def test_a_promise_of_one_lambda_names_its_cell_and_of_several_none() -> None:
    def levels(*names: str) -> inspection_pb2.GetServiceLevelsResponse:
        answer = inspection_pb2.GetServiceLevelsResponse()
        for name in names:
            level = answer.levels.add(indicator=1, objective=0.9, **{"lambda": name})
            level.spans.add(good=1, total=1).length.FromSeconds(3600)
        answer.at.GetCurrentTime()
        return answer

    answers = {"a": levels("", "plain"), "b": levels("", "b/other")}
    for cell, answer in answers.items():
        note_cell(answer, cell)
    request = inspection_pb2.GetServiceLevelsRequest()
    whole = merge("/duly.v1.InspectionService/GetServiceLevels", request, answers)

    assert [(getattr(each, "lambda"), each.cell) for each in whole.levels] == [
        ("", ""),
        ("b/other", "b"),
        ("plain", "a"),
    ]


async def test_a_host_says_to_which_cells_it_reports(
    channel_of_cells: grpc.aio.Channel,
) -> None:
    stub = fleet_pb2_grpc.FleetServiceStub(channel_of_cells)
    report = fleet_pb2.ReportHostRequest(
        host_id="h:1:2", name="h", version="1", queue_backend="store", lambdas_digest=bytes(16)
    )
    report.started_at.GetCurrentTime()
    report.interval.FromSeconds(10)
    await stub.ReportHost(report)

    hosts = await stub.ListHosts(fleet_pb2.ListHostsRequest())
    of_one = await stub.ListHosts(fleet_pb2.ListHostsRequest(cell="b"))

    assert [list(each.cells) for each in hosts.hosts] == [["a", "b"]]
    assert [list(each.cells) for each in of_one.hosts] == [["b"]]


def test_a_process_of_a_service_that_several_cells_know_says_to_which_it_reports() -> None:
    def known(*instances: str) -> fleet_pb2.ListServicesResponse:
        return fleet_pb2.ListServicesResponse(
            services=[fleet_pb2.ServiceInstance(instance_id=each, service="hsc") for each in instances]
        )

    answers = {"a": known("of both"), "b": known("of b", "of both")}
    for cell, answer in answers.items():
        note_cell(answer, cell)
    listed = merge("/duly.v1.FleetService/ListServices", fleet_pb2.ListServicesRequest(), answers)

    assert {each.instance_id: list(each.cells) for each in listed.services} == {
        "of b": ["b"],
        "of both": ["a", "b"],
    }


async def test_explain_says_that_nothing_of_a_cell_that_is_away_runs(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    ids = await _tasks(channel_of_cells)
    await routed_cells.lines["b"].cut()
    await serves(channel_of_cells, "b", expected=False)

    explain = explain_pb2_grpc.ExplainServiceStub(channel_of_cells)
    with pytest.raises(grpc.aio.AioRpcError, match=r"cell b: .*No task of a cell starts while") as away:
        await explain.ExplainTask(explain_pb2.ExplainTaskRequest(task_id=ids[1]))
    assert away.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_programs_list_what_a_cell_has(channel_of_cells: grpc.aio.Channel, tmp_path: Path) -> None:
    ids = await _tasks(channel_of_cells)
    async with duly.AsyncClient(f"unix:{tmp_path}/frontend") as client:
        assert [each.name for each in await client.lambdas(cell="b")] == ["b/other"]
        assert [each.task_id async for each in client.list(cell="b")] == [ids[1]]
        assert [each.lambda_name async for each in client.queues(cell="b")] == ["b/other"]
        assert [each async for each in client.hosts(cell="b")] == []
        assert [each async for each in client.dead_letters(cell="b")] == []
        assert [each.name for each in (await client.problems(cell="b")).cells] == ["b"]
        with pytest.raises(duly.UnknownCellError, match="there is no cell 'c'"):
            await client.lambdas(cell="c")


async def test_a_resource_says_in_which_cells_tasks_may_take_its_units(
    channel_of_cells: grpc.aio.Channel, tmp_path: Path
) -> None:
    expected = {
        "database": ("a", "b"),
        "domain:rack": ("a", "b"),
        "b/database": ("b",),
        "lambda:plain": ("a",),
        "lambda:b/other": ("b",),
        "namespace:b": ("b",),
        "namespace:default": ("a",),
        "schedule:b/other": ("b",),
        "schedule-namespace:b": ("b",),
    }
    await _tasks(channel_of_cells)
    async with duly.AsyncClient(f"unix:{tmp_path}/frontend") as client:
        put = {
            name: (
                await client.put_resource(name, rate=duly.Rate(5))
                if name.startswith("schedule")
                else await client.put_resource(name, 5)
            ).cells
            for name in expected
        }
        listed = {each.name: each.cells for each in await client.resources()}

    assert put == expected
    assert listed == expected


async def test_a_resource_that_is_refused_names_no_cells(channel_of_cells: grpc.aio.Channel) -> None:
    limits = limits_pb2_grpc.LimitServiceStub(channel_of_cells)
    bad = limits_pb2.PutResourceRequest(resources=[{"name": "nothing"}])

    (result,) = (await limits.PutResource(bad)).results

    assert result.HasField("error")
    assert not result.cells


async def test_a_resource_of_a_sole_store_names_no_cells(frontend: Frontend) -> None:
    async with duly.AsyncClient(frontend.address) as client:
        assert (await client.put_resource("database", 5)).cells == ()
        assert [each.cells for each in await client.resources()] == [()]


def test_a_token_of_one_cell_is_read_for_that_cell_only() -> None:
    token = Places({"b": "own"}, only="b").write()

    assert Places.read("page_token", token, "b").of("b") == "own"
    for cell in ("", "a"):
        with pytest.raises(Problem, match="of a list of cell b"):
            Places.read("page_token", token, cell)
    with pytest.raises(Problem, match="of a list of all cells"):
        Places.read("page_token", Places({"b": "own"}).write(), "b")
