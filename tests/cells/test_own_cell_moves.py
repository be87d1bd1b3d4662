"""The own cell of an HSC or a Frontend moves: who may call is read at its present place, never at the former one."""

import time
from dataclasses import replace
from datetime import timedelta

import grpc
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.access import store as store_access
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.access.tokens import new_token
from duly_core.cells import guards
from duly_core.cells.directory import Cell
from duly_core.cells.store import write_now
from duly_core.postgres.dsn import place_of
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_wire.v1 import frontend_pb2, frontend_pb2_grpc
from tests.cells.test_hsc_process_of_cells import (
    OF_A,
    address,
    claim,
    run,
    stub,
    until_cell_serves,
    write_task,
)
from tests.fixtures.routed_cells import serve_cells
from tests.fixtures.services import refusal

__all__ = ["address", "run", "stub"]

_WITHIN = 20


class Moved:
    """Cell `a`, which moves from its first place to another."""

    def __init__(self, two_cells, database, cells):
        where = conninfo_to_dict(two_cells.dsn("a"))
        at = Cell("a", make_conninfo(host=where["host"], port=where["port"], dbname=database), "public")
        others = {name: cell for name, cell in two_cells.directory.cells.items() if name in cells}
        before = replace(
            two_cells.directory,
            cells=others,
            namespaces={k: v for k, v in two_cells.directory.namespaces.items() if v in cells},
        )
        self.former = replace(two_cells, directory=before)
        self.present = replace(two_cells, directory=replace(before, version=3, cells={**others, "a": at}))
        version = replace(before, version=2)
        for name in others:  # the fixture's directory has two cells
            assert self.former.write(name, version, before=1)

    def move(self):
        """Switch, as a mover does: the target first, the former place last, which stays fenced."""
        directory = self.present.directory
        assert self.present.write("a", directory)
        for name in set(directory.cells) - {"a"}:
            assert self.former.write(name, directory, before=2)
        self.former.fence("a")
        assert self.former.write("a", directory, before=2)

    def present_cells(self):
        """The settings of all cells where they are now."""
        return [self.present.settings(name) for name in self.present.directory.cells]


@pytest.fixture
def target(postgres_server):
    """A database with the schema, which is no cell yet."""
    name = postgres_server.lend()
    yield name
    postgres_server.take_back(name)


@pytest.fixture(autouse=True)
def quick(two_cells, monkeypatch):
    """A process that is configured for the first place of cell a, and soon sees a change of the directory."""
    monkeypatch.setattr("duly_core.cells.follower._EVERY", timedelta(milliseconds=50))
    monkeypatch.setattr("duly_core.access.cache.FRESH", timedelta(0))
    monkeypatch.setenv("DULY_STORE_DSN", two_cells.dsn("a"))
    monkeypatch.setenv("DULY_AUTH_MODE", "required")


async def add_host(stores, role=Role.HOST):
    """Make a token with which a host may claim; return its id and the metadata of its calls."""
    token_id, token, digest = new_token()
    for settings in stores:
        async with Store(settings) as store:
            await store_access.add_token(store, digest, token_id, f"host-{token_id}")
            await store_access.add_grants(store, [Grant(f"host-{token_id}", role, "*")])
    return token_id, (("authorization", f"Bearer {token}"),)


async def until_claimed(stub, task, metadata):
    """Claim until this task comes: until the process serves the place that has it."""
    end = time.monotonic() + _WITHIN
    while True:
        try:
            found = await claim(stub, OF_A, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            found = error.code()
        if found == [("a", task)]:
            return
        assert time.monotonic() < end, found


async def test_a_token_that_was_revoked_after_the_own_cell_moved_admits_nobody(
    two_cells, target, address, run, stub
):
    cell = Moved(two_cells, target, "ab")
    token_id, metadata = await add_host(
        [two_cells.settings("a"), two_cells.settings("b"), cell.present.settings("a")]
    )
    first = await write_task(cell.former, "a", OF_A)
    run()
    await until_cell_serves(address, "a")
    assert await claim(stub, OF_A, metadata=metadata) == [("a", first)]

    second = await write_task(cell.present, "a", OF_A)
    cell.move()
    await until_claimed(stub, second, metadata)
    for settings in cell.present_cells():
        async with Store(settings) as store:
            assert await store_access.revoke_tokens(store, [token_id])
    _, of_today = await add_host(cell.present_cells())
    third = await write_task(cell.present, "a", OF_A)

    assert (await refusal(claim(stub, OF_A, metadata=metadata))).code is grpc.StatusCode.UNAUTHENTICATED
    assert await claim(stub, OF_A, metadata=of_today) == [("a", third)]


async def test_a_process_that_restarts_with_the_former_place_reads_who_may_call_at_the_present_one(
    two_cells, target, address, run, stub
):
    cell = Moved(two_cells, target, "ab")
    _, gone = await add_host([two_cells.settings("a")])
    cell.move()
    _, of_today = await add_host(cell.present_cells())
    task = await write_task(cell.present, "a", OF_A)

    run()
    await until_cell_serves(address, "a")

    assert (await refusal(claim(stub, OF_A, metadata=gone))).code is grpc.StatusCode.UNAUTHENTICATED
    assert await claim(stub, OF_A, metadata=of_today) == [("a", task)]


async def test_the_only_cell_serves_at_its_present_place_when_the_former_one_is_dropped(
    two_cells, target, address, run, stub, monkeypatch
):
    monkeypatch.setattr("duly_core.access.cache.STALE", timedelta(milliseconds=100))
    cell = Moved(two_cells, target, "a")
    _, metadata = await add_host([two_cells.settings("a"), cell.present.settings("a")])
    first = await write_task(cell.former, "a", OF_A)
    run()
    await until_cell_serves(address, "a")
    assert await claim(stub, OF_A, metadata=metadata) == [("a", first)]

    second = await write_task(cell.present, "a", OF_A)
    cell.move()
    await until_claimed(stub, second, metadata)
    third = await write_task(cell.present, "a", OF_A)
    with psycopg.connect(two_cells.dsn("a"), autocommit=True) as connection:
        connection.execute("drop schema public cascade")
    try:
        assert await claim(stub, OF_A, metadata=metadata) == [("a", third)]
    finally:
        with psycopg.connect(two_cells.dsn("a"), autocommit=True) as connection:
            connection.execute("create schema public")


async def lists(channel, metadata):
    """List tasks, of which there are none; return the code of the answer."""
    stub = frontend_pb2_grpc.FrontendServiceStub(channel)
    try:
        await stub.ListTasks(
            frontend_pb2.ListTasksRequest(**{"lambda": "sort.run"}), metadata=metadata, timeout=_WITHIN
        )
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


async def test_a_frontend_admits_nobody_from_the_former_place_of_its_cell_running_or_restarted(
    routed_cells, postgres_server, target, tmp_path, monkeypatch
):
    monkeypatch.setattr("duly_core.cells.follower._EVERY", timedelta(milliseconds=50))
    at = StoreSettings(dsn=postgres_server.dsn_of(target), schema_name="public")
    former, other = (StoreSettings(dsn=routed_cells.dsns[cell], schema_name="public") for cell in "ab")
    moved = replace(
        routed_cells.directory,
        version=2,
        cells={**routed_cells.directory.cells, "a": Cell("a", place_of(at.dsn), "public")},
    )
    _, gone = await add_host([former], Role.OPERATOR)
    _, of_today = await add_host([at, other], Role.OPERATOR)
    async with serve_cells(routed_cells, tmp_path, mode="required") as channel:
        assert await lists(channel, gone) is grpc.StatusCode.OK
        for settings, cell, before in ((at, "a", None), (other, "b", 1), (former, "a", 1)):
            with psycopg.connect(settings.dsn) as connection:
                assert write_now(connection, moved, cell, before)
                if settings is former:
                    guards.fence(connection)
        end = time.monotonic() + _WITHIN
        while await lists(channel, of_today) is not grpc.StatusCode.OK:
            assert time.monotonic() < end
        assert await lists(channel, gone) is grpc.StatusCode.UNAUTHENTICATED

    async with serve_cells(routed_cells, tmp_path, mode="required") as channel:
        assert await lists(channel, gone) is grpc.StatusCode.UNAUTHENTICATED
        assert await lists(channel, of_today) is grpc.StatusCode.OK
