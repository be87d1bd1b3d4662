"""A Store Consumer serves several cells; one that is away stops nothing in the others, and health says which it is."""

import asyncio
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from duly_core.cells.directory import Cell
from duly_core.errors import SettingsError
from duly_core.fleet.services import list_services
from duly_core.postgres.pool import Store
from duly_core.tasks.schedule import schedule
from duly_core.tasks.task import NewTask
from duly_local.ports import free_ports
from duly_store_consumer.__main__ import build
from duly_wire.ids import new_task_id
from tests.fixtures.cells import TwoCells
from tests.fixtures.database import ask
from tests.fixtures.service_processes import poll
from tests.fixtures.services import BreakableConnection
from tests.fixtures.task_states import TaskStates

LAMBDAS = {"a": "sort", "b": "mail/send"}


class Consumer:
    """A Store Consumer whose own store is cell a, and where it answers health checks."""

    def __init__(self, address):
        self.address = address

    async def health(self, cell=""):
        async with grpc.aio.insecure_channel(self.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=f"cell/{cell}" if cell else "")
            try:
                answer = await stub.Check(request, timeout=2)
            except grpc.aio.AioRpcError as error:
                return error.code().name
        return health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)

    async def until(self, status, cell=""):
        async def it_is():
            return await self.health(cell) == status

        await poll(it_is)


@pytest.fixture
async def far_b(two_cells):
    """A breakable line to cell b, of which the directory has the address."""
    line = BreakableConnection(two_cells.dsn("b"))
    await line.restore()
    _, _, port = line.address.partition(":")
    address = two_cells.directory.cells["b"].address
    host = next(part for part in address.split() if part.startswith("port="))
    far = two_cells.directory.with_cell(Cell("b", address.replace(host, f"port={port}"), "public"))
    for cell in "ab":
        assert two_cells.write(cell, far, before=1)
    yield line
    await line.cut()


@pytest.fixture
async def consumers(two_cells, monkeypatch):
    """Starts Store Consumers, and stops them."""
    own = two_cells.settings("a")
    monkeypatch.setenv("DULY_STORE_DSN", own.dsn)
    monkeypatch.setenv("DULY_STORE_SCHEMA_NAME", own.schema_name)
    monkeypatch.setenv("DULY_STORE_UNHEALTHY_AFTER", "1s")
    monkeypatch.setenv("DULY_STORE_CONSUMER_POLL_INTERVAL", "200ms")
    stop = asyncio.Event()
    running = []

    def start(serve=""):
        if serve:
            monkeypatch.setenv("DULY_CELLS_SERVE", f'["{serve}"]')
        (port,) = free_ports(1)
        running.append(asyncio.ensure_future(build(listen=f"127.0.0.1:{port}")(stop)))
        return Consumer(f"127.0.0.1:{port}")

    yield start
    stop.set()
    await asyncio.gather(*running)


async def expires(two_cells: TwoCells, cell: str) -> None:
    """Schedule a task in a cell that expires before it is due, and wait until it has."""
    async with Store(two_cells.settings(cell)) as store:
        await TaskStates(store).register(LAMBDAS[cell])
        expires_at = datetime.now(UTC) + timedelta(milliseconds=100)
        task = NewTask(
            new_task_id().bytes, LAMBDAS[cell], b"1", delay=timedelta(hours=1), expires_at=expires_at
        )
        await schedule(store, [task])

    async def it_has():
        return not ask(two_cells.dsn(cell), "select from task_assoc")

    await poll(it_has)


async def test_each_cell_has_its_rounds(two_cells, consumers):
    consumer = consumers()

    await expires(two_cells, "a")
    await expires(two_cells, "b")

    for cell in "ab":
        await consumer.until("SERVING", cell)
        async with Store(two_cells.settings(cell)) as store:
            assert [each.service for each in await list_services(store, alive=True)] == ["store-consumer"]
    assert await consumer.health() == "SERVING"


@pytest.mark.parametrize("how", ["cut", "freeze"])
async def test_a_cell_that_is_away_stops_nothing_in_the_others_and_comes_back(
    two_cells, far_b, consumers, how
):
    consumer = consumers()
    await consumer.until("SERVING", "b")

    await far_b.cut() if how == "cut" else far_b.freeze()

    await consumer.until("NOT_SERVING", "b")
    await expires(two_cells, "a")
    assert [await consumer.health(cell) for cell in ("", "a")] == ["SERVING", "SERVING"]
    await far_b.restore() if how == "cut" else far_b.thaw()
    await consumer.until("SERVING", "b")
    await expires(two_cells, "b")


async def test_a_cell_that_is_away_at_the_start_holds_up_no_other(two_cells, far_b, consumers):
    await far_b.cut()

    consumer = consumers()

    await consumer.until("SERVING", "a")
    await expires(two_cells, "a")
    assert await consumer.health("b") == "NOT_SERVING"


async def test_a_process_that_serves_one_cell_leaves_the_others_alone(two_cells, consumers):
    consumer = consumers("b")

    await consumer.until("SERVING", "b")

    assert await consumer.health("a") == "NOT_FOUND"
    assert ask(two_cells.dsn("a"), "select from service_instance") == []
    await expires(two_cells, "b")


async def test_a_cell_that_no_directory_has_is_refused(two_cells, consumers, monkeypatch):
    monkeypatch.setenv("DULY_CELLS_SERVE", '["c"]')

    with pytest.raises(SettingsError, match=r"cells\.serve: there is no cell c: the directory has a, b"):
        await build(listen="127.0.0.1:0")(asyncio.Event())


@pytest.mark.long  # the directory is read each 30 s
async def test_a_cell_is_served_at_its_address_of_now(two_cells, far_b, consumers):
    consumer = consumers()
    await consumer.until("SERVING", "b")
    await far_b.cut()
    await consumer.until("NOT_SERVING", "b")

    moved = two_cells.copy("a").directory.with_cell(two_cells.directory.cells["b"])
    assert two_cells.write("a", moved, before=2)

    await consumer.until("SERVING", "b")
    await expires(two_cells, "b")
