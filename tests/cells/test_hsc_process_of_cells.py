"""A whole HSC process whose store is a cell: it serves all cells of the directory at one address, and those that come."""

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import grpc
import psycopg
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.access import store as store_access
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.access.tokens import new_token
from duly_core.cells.directory import Cell
from duly_core.postgres.pool import Store
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_core.rpc.stubs import hsc_stub
from duly_hsc.__main__ import build
from duly_wire.time_conversion import to_duration
from duly_wire.v1 import hsc_pb2
from tests.fixtures.service_processes import until_health_is
from tests.fixtures.services import BreakableConnection, refusal
from tests.fixtures.task_states import TaskStates

OF_A, OF_B = "sort.run", "mail/send"
DEADLINE = 20


@pytest.fixture
def address(tmp_path, monkeypatch):
    monkeypatch.setenv("DULY_RPC_SHUTDOWN_GRACE", "100ms")
    return f"unix:{tmp_path}/hsc.sock"


@pytest.fixture
async def run(address):
    """Run a process; it has stopped when the test ends."""
    stop, serving = asyncio.Event(), []

    def begin():
        serving.append(asyncio.ensure_future(build(listen=address)(stop)))

    yield begin
    stop.set()
    await asyncio.gather(*serving)


@pytest.fixture
async def stub(address):
    channel = open_channel(address, RpcSettings())
    yield hsc_stub(channel)
    await channel.close()


async def write_task(two_cells, cell, lambda_name):
    async with Store(two_cells.settings(cell)) as store:
        states = TaskStates(store)
        await states.register(lambda_name)
        return (await states.new(lambda_name=lambda_name)).task_id


async def claim(stub, *lambdas, metadata=()):
    request = hsc_pb2.ClaimWorkRequest(
        holder="host",
        lambdas=lambdas,
        max_tasks=10,
        timeout=to_duration(timedelta(seconds=15)),
        token_prefix=os.urandom(14),
        keeps_cells=True,
    )
    response = await stub.ClaimWork(request, timeout=DEADLINE, metadata=metadata)
    return [(task.claim.cell, task.claim.task_id) for task in response.tasks]


async def until_cell_serves(address, cell):
    request = health_pb2.HealthCheckRequest(service=f"cell/{cell}")
    async with asyncio.timeout(DEADLINE), open_channel(address, RpcSettings()) as channel:
        while True:
            watch = health_pb2_grpc.HealthStub(channel).Watch(request, wait_for_ready=True)
            with suppress(grpc.aio.AioRpcError):  # the server that waited for the directory made room
                async for answer in watch:
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        watch.cancel()
                        return


async def test_a_process_serves_all_cells_of_its_directory(two_cells, address, run, stub, monkeypatch):
    monkeypatch.setenv("DULY_STORE_DSN", two_cells.dsn("a"))
    tasks = {cell: await write_task(two_cells, cell, name) for cell, name in (("a", OF_A), ("b", OF_B))}

    run()
    for cell in tasks:
        await until_cell_serves(address, cell)

    assert await claim(stub, OF_A) == [("a", tasks["a"])]
    assert await claim(stub, OF_B) == [("b", tasks["b"])]


async def test_a_process_whose_own_cell_is_away_serves_the_others_to_hosts_whose_tokens_they_have(
    two_cells, address, run, stub, monkeypatch
):
    line = BreakableConnection(two_cells.dsn("a"))
    await line.restore()
    where = conninfo_to_dict(line.dsn)
    away = replace(
        two_cells.directory,
        version=2,
        cells={
            **two_cells.directory.cells,
            "a": Cell(
                "a", make_conninfo(host=where["host"], port=where["port"], dbname=where["dbname"]), "public"
            ),
        },
    )
    for cell in "ab":
        assert two_cells.write(cell, away, before=1)
    task_id = await write_task(two_cells, "b", OF_B)
    token_id, token, digest = new_token()
    async with Store(two_cells.settings("b")) as store:
        await store_access.add_token(store, digest, token_id, "host")
        await store_access.add_grants(store, [Grant("host", Role.HOST, "*")])
    monkeypatch.setenv("DULY_AUTH_MODE", "required")
    metadata = (("authorization", f"Bearer {token}"),)
    await line.cut()
    monkeypatch.setenv("DULY_STORE_DSN", line.dsn)
    monkeypatch.setenv("DULY_CELLS_SEEDS", f'["public@{two_cells.dsn("b")}"]')

    run()
    await until_cell_serves(address, "b")

    assert await claim(stub, OF_A, OF_B, metadata=metadata) == [("b", task_id)]
    refused = await refusal(claim(stub, OF_A, metadata=metadata))
    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert "cell a" in refused.message


async def test_a_process_that_starts_before_its_sole_store_says_so_and_serves_it_once_it_is_there(
    line, store, address, run, stub, monkeypatch
):
    states = TaskStates(store)
    await states.register(OF_A)
    task_id = (await states.new(lambda_name=OF_A)).task_id
    monkeypatch.setenv("DULY_STORE_DSN", line.dsn)
    await line.cut()

    run()
    await until_health_is("NOT_SERVING", address)
    refused = await refusal(claim(stub, OF_A))
    await line.restore()
    await until_health_is("SERVING", address)

    assert refused.code is grpc.StatusCode.UNAVAILABLE
    assert await claim(stub, OF_A) == [("", task_id)]


async def test_a_cell_that_is_added_is_served_without_a_restart(
    postgres_server, two_cells, address, run, stub, monkeypatch
):
    monkeypatch.setattr("duly_core.cells.follower._EVERY", timedelta(milliseconds=50))
    monkeypatch.setenv("DULY_STORE_DSN", two_cells.dsn("a"))
    run()
    await until_cell_serves(address, "b")
    third = postgres_server.lend()
    where = conninfo_to_dict(two_cells.dsn("a"))
    cell = Cell("c", make_conninfo(host=where["host"], port=where["port"], dbname=third), "public")
    grown = replace(
        two_cells.directory,
        version=2,
        cells={**two_cells.directory.cells, "c": cell},
        namespaces={**two_cells.directory.namespaces, "bills": "c"},
    )
    with_third = replace(two_cells, directory=grown)
    for name in "cab":
        assert with_third.write(name, grown, before=None if name == "c" else 1)

    await until_cell_serves(address, "c")

    task_id = await write_task(with_third, "c", "bills/send")
    assert await claim(stub, "bills/send") == [("c", task_id)]
    with psycopg.connect(two_cells.dsn("a")) as connection:
        assert connection.execute("select count(*) from task").fetchone() == (0,)
