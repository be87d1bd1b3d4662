"""Calls of a Frontend with two cells, each in a database of its own."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import grpc
import psycopg
import pytest
from prometheus_client import REGISTRY

import duly
from duly_controller.lambda_registration import LambdaRegistration
from duly_core.cells.store import write_now
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_core.results.store import set_results
from duly_core.tasks.task import Result
from duly_wire.completion_tokens import new_completion_token, read_completion_token
from duly_wire.enums import Outcome
from duly_wire.missing_cells import METADATA as MISSING
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import (
    attachments_pb2,
    attachments_pb2_grpc,
    frontend_pb2,
    frontend_pb2_grpc,
    graphs_pb2,
    graphs_pb2_grpc,
    output_pb2,
    output_pb2_grpc,
    registry_pb2,
    registry_pb2_grpc,
    task_pb2,
    time_tables_pb2,
    time_tables_pb2_grpc,
    watches_pb2,
    watches_pb2_grpc,
)
from tests.fixtures.routed_cells import RoutedCells, serve_cells, serves
from tests.fixtures.task_states import TaskStates

LAMBDAS = ("plain", "b/other")


async def _register(channel: grpc.aio.Channel) -> None:
    registry = registry_pb2_grpc.RegistryServiceStub(channel)
    answer = await registry.RegisterLambdas(
        registry_pb2.RegisterLambdasRequest(
            lambdas=[registry_pb2.Lambda(name=name, owner="us") for name in LAMBDAS]
        ),
    )
    assert [result.error.message for result in answer.results] == ["", ""]


def _new(name: str) -> frontend_pb2.NewTask:
    task = frontend_pb2.NewTask(payload=b"1")
    setattr(task, "lambda", name)
    return task


def _count(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select count(*) from task").fetchone()
        return int(row[0]) if row else 0


async def test_tasks_of_one_call_are_written_to_the_cells_of_their_namespaces_and_answered_in_order(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _register(channel_of_cells)
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)

    names = ["b/other", "plain", "b/other"]
    answer = await stub.Schedule(frontend_pb2.ScheduleRequest(tasks=map(_new, names)))

    assert [result.error.message for result in answer.results] == ["", "", ""]
    ids = [result.task_id for result in answer.results]
    got = await stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=ids))
    assert [getattr(result.task, "lambda") for result in got.results] == names
    assert [_count(routed_cells.dsns[cell]) for cell in ("a", "b")] == [1, 2]


async def _schedule(channel: grpc.aio.Channel, names: Sequence[str]) -> list[str]:
    stub = frontend_pb2_grpc.FrontendServiceStub(channel)
    answer = await stub.Schedule(frontend_pb2.ScheduleRequest(tasks=map(_new, names)))
    assert [result.error.message for result in answer.results] == [""] * len(names)
    return [result.task_id for result in answer.results]


async def _cut(cells: RoutedCells, channel: grpc.aio.Channel, cell: str) -> None:
    await cells.lines[cell].cut()
    await serves(channel, cell, expected=False)


async def test_tasks_of_two_cells_are_waited_for_cancelled_and_listed_as_those_of_one(
    channel_of_cells: grpc.aio.Channel,
) -> None:
    await _register(channel_of_cells)
    ids = await _schedule(channel_of_cells, ["b/other", "plain"])
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)

    waited = await stub.WaitTask(frontend_pb2.WaitTaskRequest(task_ids=ids, timeout=to_duration(timedelta())))
    listed = await stub.ListTasks(frontend_pb2.ListTasksRequest())
    cancelled = await stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=ids))
    ended = await stub.WaitTask(frontend_pb2.WaitTaskRequest(task_ids=ids))

    assert [result.task.task_id for result in waited.results] == ids
    assert not waited.all_final
    assert [task.task_id for task in listed.tasks] == sorted(ids, reverse=True)
    assert {result.status for result in cancelled.results} == {task_pb2.TASK_STATUS_CANCELLED}
    assert ended.all_final


async def test_an_id_that_this_frontend_never_saw_is_found_and_one_of_no_cell_is_not(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await _register(channel_of_cells)
    ids = await _schedule(channel_of_cells, ["b/other", "plain"])

    async with serve_cells(routed_cells, tmp_path_factory.mktemp("other")) as other:
        stub = frontend_pb2_grpc.FrontendServiceStub(other)
        got = await stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=[*ids, str(uuid4()), "no id"]))

    assert [result.task.task_id for result in got.results[:2]] == ids
    assert [result.error.code for result in got.results[2:]] == [
        task_pb2.ERROR_CODE_NOT_FOUND,
        task_pb2.ERROR_CODE_INVALID_ARGUMENT,
    ]


def _failed_calls() -> float:
    return REGISTRY.get_sample_value("duly_schedule_calls_total", {"verdict": "failed"}) or 0


def _success(token: str) -> frontend_pb2.Completion:
    return frontend_pb2.Completion(token=token, success=frontend_pb2.CompletionSuccess())


@pytest.mark.parametrize(("cell", "name", "other"), [("a", "plain", "b/other"), ("b", "b/other", "plain")])
async def test_a_task_of_the_same_id_in_another_cell_misroutes_nothing_that_has_a_token(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, cell: str, name: str, other: str
) -> None:
    await _register(channel_of_cells)
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)
    async with Store(StoreSettings(dsn=routed_cells.dsns[cell])) as store:
        task = await TaskStates(store).processing(lambda_name=name)
        token = new_completion_token(task.task_id)
        again = _new(other)
        again.task_id = str(UUID(bytes=task.task_id))
        twin = await stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[again]))
        completions = frontend_pb2.CompleteTasksRequest(completions=[_success(token)])
        early = await stub.CompleteTasks(completions)
        chunk = output_pb2.OutputChunk(fence=1, number=1, size_bytes=1, encrypted=b"x")
        item = output_pb2.AppendOutputItem(task_id=task.task_id, claim_token=task.token, chunk=chunk)
        written = await output_pb2_grpc.OutputServiceStub(channel_of_cells).AppendOutput(
            output_pb2.AppendOutputRequest(items=[item])
        )
        fetched = await attachments_pb2_grpc.AttachmentServiceStub(channel_of_cells).FetchParts(
            attachments_pb2.FetchPartsRequest(task_id=again.task_id, hash=bytes(32), claim_token=task.token)
        )
        handed_over = Result(
            task.task_id,
            task.token,
            Outcome.COMPLETE_LATER,
            completion_hash=read_completion_token(token)[1],
            complete_within=timedelta(hours=1),
        )
        await set_results(store, [handed_over])
        done = await stub.CompleteTasks(completions)

    assert twin.results[0].created
    assert early.results[0].error.code == task_pb2.ERROR_CODE_TOKEN_TOO_EARLY
    assert written.results[0].error.message == ""
    assert fetched.error.field == "hash"  # the claim is good
    assert done.results[0].status == task_pb2.TASK_STATUS_SUCCESS


async def test_a_token_of_no_task_that_answers_is_not_said_to_be_over_while_a_cell_is_away(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _register(channel_of_cells)
    (there,) = await _schedule(channel_of_cells, ["plain"])
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)
    token = new_completion_token(UUID(there).bytes)
    asked = frontend_pb2.CompleteTasksRequest(completions=[_success(token)])
    over = await stub.CompleteTasks(asked)
    await _cut(routed_cells, channel_of_cells, "b")
    with pytest.raises(grpc.aio.AioRpcError, match="cell b: it may have what the call names"):
        await stub.CompleteTasks(asked, timeout=10)

    assert over.results[0].error.code == task_pb2.ERROR_CODE_TOKEN_NOT_CURRENT


async def test_a_cell_that_is_away_stops_only_its_namespaces(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _register(channel_of_cells)
    there, plain = await _schedule(channel_of_cells, ["b/other", "plain"])
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)
    await _cut(routed_cells, channel_of_cells, "b")

    before = _failed_calls()
    mixed = await stub.Schedule(frontend_pb2.ScheduleRequest(tasks=map(_new, ["plain", "b/other"])))
    assert _failed_calls() == before + 1  # its caller has a task that was not accepted
    with pytest.raises(grpc.aio.AioRpcError) as alone:
        await stub.Schedule(frontend_pb2.ScheduleRequest(tasks=[_new("b/other")]), timeout=10)
    got = await stub.GetTask(frontend_pb2.GetTaskRequest(task_ids=[plain, there, str(uuid4())]))
    waited = await stub.WaitTask(
        frontend_pb2.WaitTaskRequest(task_ids=[there, plain], timeout=to_duration(timedelta()))
    )

    away = task_pb2.ERROR_CODE_CELL_UNAVAILABLE
    assert [result.error.code for result in mixed.results] == [0, away]
    assert "cell b" in mixed.results[1].error.message
    assert alone.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "cell b" in (alone.value.details() or "")
    assert [result.error.code for result in got.results] == [0, away, away]
    assert [result.error.code for result in waited.results] == [away, 0]
    assert not waited.all_final


async def test_a_list_of_all_cells_says_which_it_lacks(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _register(channel_of_cells)
    plain, _ = await _schedule(channel_of_cells, ["plain", "b/other"])
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)
    await _cut(routed_cells, channel_of_cells, "b")

    call = stub.ListTasks(frontend_pb2.ListTasksRequest())
    listed = await call
    one = stub.ListTasks(_of_lambda("plain"))
    await one

    assert [task.task_id for task in listed.tasks] == [plain]
    assert dict(await call.trailing_metadata())[MISSING] == "b"
    assert MISSING not in dict(await one.trailing_metadata())


def _of_lambda(name: str) -> frontend_pb2.ListTasksRequest:
    request = frontend_pb2.ListTasksRequest()
    setattr(request, "lambda", name)
    return request


async def test_a_cell_that_is_back_is_served_again(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _register(channel_of_cells)
    await _cut(routed_cells, channel_of_cells, "b")

    await routed_cells.lines["b"].restore()
    await serves(channel_of_cells, "b")

    assert await _schedule(channel_of_cells, ["b/other"])


async def test_an_executor_whose_lambdas_have_a_cell_that_is_away_works_and_registers_them_once_it_is_back(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _cut(routed_cells, channel_of_cells, "b")
    registry = registry_pb2_grpc.RegistryServiceStub(channel_of_cells)
    registration = LambdaRegistration(registry, timedelta(seconds=10), away_again=timedelta(milliseconds=50))
    declared = [registry_pb2.Lambda(name=name, owner="us") for name in (*LAMBDAS, "BAD")]

    try:
        problems = await registration.register(declared)
        there = await _lambdas(registry)
        await routed_cells.lines["b"].restore()
        async with asyncio.timeout(30):
            while "b/other" not in await _lambdas(registry):  # noqa: ASYNC110 (it goes on by itself)
                await asyncio.sleep(0)
    finally:
        await registration.stop()

    assert ["'BAD'" in problem for problem in problems] == [True]
    assert there == ["plain"]


async def _lambdas(registry: registry_pb2_grpc.RegistryServiceStub) -> list[str]:
    listed = await registry.ListLambdas(registry_pb2.ListLambdasRequest(), timeout=10)
    return [getattr(each, "lambda").name for each in listed.lambdas]


async def test_a_graph_with_nodes_of_two_cells_is_refused_and_one_of_a_cell_is_found_by_its_id(
    channel_of_cells: grpc.aio.Channel,
) -> None:
    await _register(channel_of_cells)
    stub = graphs_pb2_grpc.GraphServiceStub(channel_of_cells)

    def graph(*names: str) -> graphs_pb2.ScheduleGraphRequest:
        nodes = [graphs_pb2.GraphNode(label=name, task=_new(name)) for name in names]
        return graphs_pb2.ScheduleGraphRequest(name="nightly", nodes=nodes)

    refused = await stub.ScheduleGraph(graph("plain", "b/other"))
    taken = await stub.ScheduleGraph(graph("b/other"))
    got = await stub.GetGraph(graphs_pb2.GetGraphRequest(graph_id=taken.graph_id))

    assert refused.error.code == task_pb2.ERROR_CODE_INVALID_ARGUMENT
    assert "cell a (plain) and cell b (b/other)" in refused.error.message
    assert got.graph.name == "nightly"


async def test_a_time_table_is_found_by_its_name_and_its_name_is_taken_in_all_cells(
    channel_of_cells: grpc.aio.Channel,
) -> None:
    await _register(channel_of_cells)
    stub = time_tables_pb2_grpc.TimeTableServiceStub(channel_of_cells)

    def table(name: str, lambda_name: str) -> time_tables_pb2.NewTimeTable:
        made = time_tables_pb2.NewTimeTable(
            table=time_tables_pb2.TimeTable(name=name, cron="0 3 * * *", payload=b"1")
        )
        setattr(made.table, "lambda", lambda_name)
        return made

    put = await stub.PutTimeTables(
        time_tables_pb2.PutTimeTablesRequest(tables=[table("here", "plain"), table("there", "b/other")])
    )
    again = await stub.PutTimeTables(time_tables_pb2.PutTimeTablesRequest(tables=[table("there", "plain")]))
    got = await stub.GetTimeTables(time_tables_pb2.GetTimeTablesRequest(names=["there", "nowhere", "here"]))

    assert [result.error.message for result in put.results] == ["", ""]
    assert again.results[0].error.code == task_pb2.ERROR_CODE_TIME_TABLE_CONFLICT
    assert "cell b" in again.results[0].error.message
    assert [getattr(result.table.table, "lambda") for result in got.results] == ["b/other", "", "plain"]
    assert got.results[1].error.code == task_pb2.ERROR_CODE_UNKNOWN_TIME_TABLE


async def test_calls_over_a_stream_are_routed_one_by_one(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _register(channel_of_cells)
    stream = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells).ScheduleStream()
    for call, name in enumerate(("plain", "b/other")):
        request = frontend_pb2.ScheduleRequest(tasks=[_new(name)])
        await stream.write(frontend_pb2.ScheduleStreamRequest(call=call, schedule=request))
    await stream.done_writing()

    answers = [answer async for answer in stream]

    assert {answer.call for answer in answers} == {0, 1}
    assert all(answer.schedule.results[0].created for answer in answers)
    assert [_count(routed_cells.dsns[cell]) for cell in ("a", "b")] == [1, 1]


def _moved(cells: RoutedCells) -> None:
    """Write the next version of the directory into both cells: the namespace `late` lives in cell b."""
    following = cells.directory.with_namespace("late", "b")
    for cell, dsn in cells.dsns.items():
        with psycopg.connect(dsn) as connection:
            assert write_now(connection, following, cell, cells.directory.version)


async def test_a_frontend_with_an_old_directory_looks_again_when_a_cell_refuses_a_namespace(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel
) -> None:
    await _register(channel_of_cells)
    _moved(routed_cells)
    registry = registry_pb2_grpc.RegistryServiceStub(channel_of_cells)

    lambdas = [registry_pb2.Lambda(name=name, owner="us") for name in ("late/x", "b/new", "plain.new")]
    answer = await registry.RegisterLambdas(registry_pb2.RegisterLambdasRequest(lambdas=lambdas))

    assert [result.error.message for result in answer.results] == ["", "", ""]
    ids = await _schedule(channel_of_cells, ["late/x", "plain.new"])
    assert len(ids) == 2
    assert [_count(routed_cells.dsns[cell]) for cell in ("a", "b")] == [1, 1]


@pytest.mark.parametrize("pattern", ["late/*", "late/x"])
async def test_a_frontend_with_an_old_directory_sets_an_objective_in_the_cell_where_its_namespace_lives_now(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, tmp_path: Path, pattern: str
) -> None:
    _moved(routed_cells)
    async with duly.AsyncClient(f"unix:{tmp_path}/frontend") as client:
        await client.put_objective(pattern, 0.9, start_within=timedelta(seconds=1))
        await client.put_objective("plain", 0.9, start_within=timedelta(seconds=1))

    found = {}
    for cell, dsn in routed_cells.dsns.items():
        with psycopg.connect(dsn) as connection:
            found[cell] = connection.execute("select lambda from start_objective").fetchall()
    assert found == {"a": [("plain",)], "b": [(pattern,)]}


async def test_a_frontend_with_an_old_directory_looks_again_for_a_lambda_that_a_cell_does_not_know(
    routed_cells: RoutedCells, channel_of_cells: grpc.aio.Channel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async with serve_cells(routed_cells, tmp_path_factory.mktemp("older")) as older:
        _moved(routed_cells)
        registry = registry_pb2_grpc.RegistryServiceStub(channel_of_cells)
        await registry.RegisterLambdas(
            registry_pb2.RegisterLambdasRequest(lambdas=[registry_pb2.Lambda(name="late/x", owner="us")])
        )

        assert await _schedule(older, ["late/x"])


async def test_a_watch_of_all_lambdas_tells_what_happens_in_each_cell(
    channel_of_cells: grpc.aio.Channel,
) -> None:
    await _register(channel_of_cells)
    watches = watches_pb2_grpc.WatchServiceStub(channel_of_cells)
    begun = await watches.Watch(watches_pb2.WatchRequest(watch_id=bytes(16), lambdas=["*"]), timeout=20)
    ids = await _schedule(channel_of_cells, ["b/other", "plain"])
    stub = frontend_pb2_grpc.FrontendServiceStub(channel_of_cells)
    await stub.CancelTask(frontend_pb2.CancelTaskRequest(task_ids=ids))

    seen: list[str] = []
    after = begun.position
    while len(seen) < len(ids):
        answer = await watches.Watch(
            watches_pb2.WatchRequest(after=after, lambdas=["*"], wait=to_duration(timedelta(seconds=10)))
        )
        assert answer.events
        seen += [event.task_id for event in answer.events]
        after = answer.events[-1].position
    behind = await watches.Watch(watches_pb2.WatchRequest(after=after, lambdas=["*"]))

    assert sorted(seen) == sorted(ids)
    assert not behind.events
