"""Calls of a Frontend with two cells, each in a database of its own."""

import grpc
import psycopg

from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc, registry_pb2, registry_pb2_grpc
from tests.fixtures.routed_cells import RoutedCells

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
