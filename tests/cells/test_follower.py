"""Processes follow the newest directory, spread it to cells that are behind, and never follow one that contradicts."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from structlog.testing import capture_logs

from duly_core.cells.directory import Cell, Directory, DirectoryError
from duly_core.cells.follower import DirectoryFollower, settings_at
from duly_core.cells.store import StoredDirectory, read, write
from duly_core.errors import CellFencedError, SettingsError
from duly_core.lambdas import store as lambdas
from duly_core.lambdas.policy import LambdaPolicy
from duly_core.postgres.dsn import parse
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import FRONTEND, HSC
from duly_core.postgres.settings import StoreSettings
from duly_core.process.current_cell import cell_fenced
from tests.fixtures.cells import TwoCells
from tests.fixtures.roles import dsn_as

AWAY = "postgresql://127.0.0.1:1/duly"


@pytest.fixture
def stop() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def follower(two_cells: TwoCells, stop: asyncio.Event) -> DirectoryFollower:
    """Of a Frontend whose own store is cell a; it has read version 1."""
    made = DirectoryFollower(two_cells.settings("a"), spreads=True)
    assert await made.first(stop) == two_cells.directory
    return made


async def test_a_store_without_a_directory_is_a_sole_store(store: Store, stop: asyncio.Event) -> None:
    assert await read(store) is None
    follower = DirectoryFollower(store.settings)
    assert await follower.first(stop) is None
    assert (follower.now, follower.own_cell) == (None, "")


async def test_a_copy_reads_back_as_it_was_written(two_cells: TwoCells) -> None:
    async with Store(two_cells.settings("b")) as store:
        assert await read(store) == StoredDirectory(two_cells.directory, "b", fenced=False)


async def test_a_version_is_written_over_the_one_before_it_only(two_cells: TwoCells) -> None:
    third = two_cells.directory.with_namespace("sort", "b").with_namespace("sort", "a")
    async with await psycopg.AsyncConnection.connect(two_cells.dsn("a"), autocommit=True) as connection:
        assert not await write(connection, third, "a", before=2)
        assert await write(connection, third, "a", before=1)
        assert not await write(connection, two_cells.directory, "a", before=3)  # never back
    assert two_cells.copy("a") == StoredDirectory(third, "a", fenced=False)


async def test_what_is_gone_from_the_directory_is_gone_from_the_copy(two_cells: TwoCells) -> None:
    smaller = replace(two_cells.directory, version=2, namespaces={}).without_cell("b")
    assert two_cells.write("a", smaller, before=1)
    copy = two_cells.copy("a")
    assert copy is not None
    assert copy.directory == smaller


@pytest.mark.parametrize(
    ("change", "own", "problem"),
    [({"installation": UUID(int=9)}, "a", "another installation"), ({}, "b", "is cell a")],
)
async def test_a_store_refuses_a_directory_of_another_installation_or_cell(
    two_cells: TwoCells, change: dict[str, UUID], own: str, problem: str
) -> None:
    other = replace(two_cells.directory, version=2, **change)
    async with await psycopg.AsyncConnection.connect(two_cells.dsn("a"), autocommit=True) as connection:
        with pytest.raises(DirectoryError, match=problem):
            await write(connection, other, own, before=1)
    copy = two_cells.copy("a")
    assert copy is not None
    assert copy.directory == two_cells.directory


async def test_the_newest_copy_is_followed_and_spread_to_cells_that_are_behind(
    two_cells: TwoCells, follower: DirectoryFollower
) -> None:
    told: list[Directory] = []
    follower.on_change(told.append)
    newer = two_cells.directory.with_namespace("sort", "b")
    two_cells.write("b", newer, before=1)
    await follower.run_once()
    assert follower.now == newer
    assert told == [newer]
    assert two_cells.copy("a") == StoredDirectory(newer, "a", fenced=False)


async def test_who_may_not_write_follows_and_leaves_the_copies_as_they_are(
    two_cells: TwoCells, stop: asyncio.Event
) -> None:
    follower = DirectoryFollower(StoreSettings(dsn=dsn_as(two_cells.dsn("a"), HSC), schema_name="public"))
    await follower.first(stop)
    newer = two_cells.directory.with_namespace("sort", "b")
    two_cells.write("b", newer, before=1)
    await follower.run_once()
    assert follower.now == newer
    copy = two_cells.copy("a")
    assert copy is not None
    assert copy.directory == two_cells.directory


async def test_a_frontend_has_the_rights_to_spread(two_cells: TwoCells, stop: asyncio.Event) -> None:
    settings = StoreSettings(dsn=dsn_as(two_cells.dsn("b"), FRONTEND), schema_name="public")
    follower = DirectoryFollower(settings, spreads=True)
    await follower.first(stop)
    newer = two_cells.directory.with_namespace("sort", "b").with_namespace("mail", "a")
    two_cells.write("b", replace(newer, version=2), before=1)
    await follower.run_once()
    assert two_cells.copy("a") == StoredDirectory(replace(newer, version=2), "a", fenced=False)


async def test_an_older_copy_is_not_followed_but_replaced(
    two_cells: TwoCells, follower: DirectoryFollower
) -> None:
    newer = two_cells.directory.with_namespace("sort", "b")
    two_cells.write("a", newer, before=1)
    await follower.run_once()
    with psycopg.connect(two_cells.dsn("b")) as connection:  # as a restored backup
        connection.execute("update cell_directory set version = 1")
        connection.execute("delete from cell_namespace")
    await follower.run_once()
    assert follower.now == newer
    assert two_cells.copy("b") == StoredDirectory(newer, "b", fenced=False)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("update cell_directory set installation = gen_random_uuid(), version = 7", "another installation"),
        ("delete from cell_namespace", "another directory of version 1"),
        ("update cell_directory set own_cell = 'a', version = 7", "at the address of cell b is cell a"),
        ("delete from cell_directory", "no copy"),
    ],
)
async def test_a_copy_that_contradicts_is_reported_and_neither_followed_nor_replaced(
    two_cells: TwoCells, follower: DirectoryFollower, change: str, problem: str
) -> None:
    with psycopg.connect(two_cells.dsn("b")) as connection:
        connection.execute(change.encode())
    before = two_cells.copy("b")
    await follower.run_once()
    assert problem in follower.looks["b"].problem
    assert follower.now == two_cells.directory
    assert two_cells.copy("b") == before


async def test_of_two_newer_copies_that_differ_none_is_followed(
    two_cells: TwoCells, follower: DirectoryFollower
) -> None:
    two_cells.write("a", two_cells.directory.with_namespace("sort", "a"), before=1)
    two_cells.write("b", two_cells.directory.with_namespace("sort", "b"), before=1)
    await follower.run_once()
    assert follower.now == two_cells.directory
    assert all("of version 2" in look.problem for look in follower.looks.values())


async def test_a_cell_that_is_away_is_reported_and_the_others_are_followed(
    two_cells: TwoCells, stop: asyncio.Event
) -> None:
    gone = two_cells.directory.with_cell(Cell("b", AWAY, "public"))
    two_cells.write("a", gone, before=1)
    follower = DirectoryFollower(two_cells.settings("a"), spreads=True)
    assert await follower.first(stop) == gone
    assert "does not answer" in follower.looks["b"].problem
    assert follower.looks["a"].copy is not None


async def test_a_process_whose_own_cell_is_away_reads_the_directory_at_a_seed(
    two_cells: TwoCells, stop: asyncio.Event
) -> None:
    directory = two_cells.directory.with_cell(Cell("a", AWAY, "public"))
    two_cells.write("b", directory, before=1)
    own = StoreSettings(dsn=AWAY, schema_name="public")
    follower = DirectoryFollower(own, [AWAY, f"public@{two_cells.dsn('b')}"])
    assert await follower.first(stop) == directory
    assert follower.own_cell == "a"


async def _refusal(settings: StoreSettings, stop: asyncio.Event) -> str:
    follower = DirectoryFollower(settings)
    assert not await follower.is_sole(timedelta(seconds=20))
    with pytest.raises(SettingsError) as refused:
        await follower.first(stop)
    return str(refused.value)


async def _is_sole(settings: StoreSettings, stop: asyncio.Event) -> bool:
    follower = DirectoryFollower(settings)
    return await follower.is_sole(timedelta(seconds=20)) and await follower.first(stop) is None


async def test_a_cell_that_was_emptied_is_no_sole_store(two_cells: TwoCells, stop: asyncio.Event) -> None:
    two_cells.guard("b")
    with psycopg.connect(two_cells.dsn("b")) as connection:
        connection.execute("delete from cell_directory")

    message = await _refusal(two_cells.settings("b"), stop)

    assert "have the guards of a cell" in message
    assert "restore it from a backup" in message


@pytest.mark.parametrize("user", ["", HSC])
async def test_a_cell_whose_schema_was_dropped_is_no_sole_store_by_the_directory_of_another_schema(
    two_cells: TwoCells, stop: asyncio.Event, user: str
) -> None:
    where = two_cells.directory.cells["a"].address
    assert two_cells.write("a", two_cells.directory.with_cell(Cell("b", where, "duly_b")), before=1)
    dsn = dsn_as(two_cells.dsn("a"), user) if user else two_cells.dsn("a")

    message = await _refusal(StoreSettings(dsn=dsn, schema_name="duly_b"), stop)

    assert "by the directory in schema public of the same database it is cell b" in message
    assert await _is_sole(StoreSettings(dsn=dsn, schema_name="duly_c"), stop)


async def test_the_directory_of_another_owner_says_nothing_of_a_store(
    two_cells: TwoCells, stop: asyncio.Event
) -> None:
    where = two_cells.directory.cells["a"].address
    assert two_cells.write("a", two_cells.directory.with_cell(Cell("b", where, "duly_b")), before=1)
    with psycopg.connect(two_cells.dsn("a")) as connection:
        connection.execute(f"alter table cell_directory owner to {HSC}".encode())

    assert await _is_sole(StoreSettings(dsn=two_cells.dsn("a"), schema_name="duly_b"), stop)


@pytest.mark.parametrize("configured", [{"seeds": [AWAY]}, {"serve": ["a"]}])
async def test_a_store_without_a_directory_is_no_sole_store_where_settings_say_that_there_are_cells(
    store: Store, stop: asyncio.Event, configured: dict[str, list[str]]
) -> None:
    follower = DirectoryFollower(store.settings, **configured)  # type: ignore[arg-type]
    assert not await follower.is_sole(timedelta(seconds=20))
    with pytest.raises(SettingsError, match=r"has no directory of cells.*`duly cells init`"):
        await follower.first(stop)


async def test_a_process_whose_own_store_has_lost_its_directory_reads_it_at_a_seed(
    two_cells: TwoCells, stop: asyncio.Event
) -> None:
    with psycopg.connect(two_cells.dsn("a")) as connection:
        connection.execute("drop table cell_namespace, cell, cell_directory")
    follower = DirectoryFollower(two_cells.settings("a"), [f"public@{two_cells.dsn('b')}"])
    assert await follower.first(stop) == two_cells.directory
    assert "no copy" in follower.looks["a"].problem


async def test_a_right_that_is_missing_ends_the_start_and_is_no_outage(
    two_cells: TwoCells, stop: asyncio.Event
) -> None:
    with psycopg.connect(two_cells.dsn("a")) as connection:
        connection.execute(sql.SQL("revoke select on cell_directory from {}").format(sql.Identifier(HSC)))
    follower = DirectoryFollower(StoreSettings(dsn=dsn_as(two_cells.dsn("a"), HSC), schema_name="public"))
    with pytest.raises(SettingsError, match=r"permission denied.*`duly migrate --roles`"):
        await follower.first(stop)
    with psycopg.connect(two_cells.dsn("a")) as connection:
        connection.execute("drop table cell_directory")  # no other test gets this database


def test_a_cells_address_says_where_it_is_and_the_own_store_how_to_sign_in() -> None:
    own = StoreSettings(
        dsn="postgresql://me:secret@one/duly?sslmode=require", pooled=True, direct_dsn="postgresql://x/y"
    )
    settings = settings_at(own, Cell("b", "postgresql://two:5433/other", "duly_b"))
    assert dict(part.split("=") for part in settings.dsn.split()) == {
        "user": "me", "password": "secret", "sslmode": "require", "host": "two", "port": "5433", "dbname": "other",
    }  # fmt: skip
    assert (settings.schema_name, settings.pooled, settings.direct_dsn) == ("duly_b", True, "")


def test_no_address_of_the_directory_says_how_a_process_signs_in() -> None:
    own = StoreSettings(dsn="postgresql://frontend:secret@one/duly?sslmode=verify-full")
    lie = "postgresql://owner:other@two/duly?sslmode=disable&sslpassword=x&options=-csearch_path%3Dx"
    assert parse(settings_at(own, Cell("b", lie, "duly_b")).dsn) == {
        "user": "frontend", "password": "secret", "sslmode": "verify-full", "host": "two", "dbname": "duly",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "direct_dsn"),
    [
        ("host=pooler dbname=duly", "postgresql://one/duly"),
        ("host=one dbname=duly", "postgresql://one/duly"),  # as `duly cells init` writes it, past the pooler
        ("host=two dbname=duly", ""),  # it was moved
    ],
)
def test_the_way_past_the_pooler_is_used_while_the_own_cell_is_there(address: str, direct_dsn: str) -> None:
    own = StoreSettings(
        dsn="postgresql://me@pooler/duly", pooled=True, direct_dsn="postgresql://one/duly", schema_name="a"
    )
    assert settings_at(own, Cell("a", address, "a"), is_own=True).direct_dsn == direct_dsn


async def test_a_cell_that_was_restored_from_a_backup_is_reported(
    two_cells: TwoCells, follower: DirectoryFollower
) -> None:
    two_cells.write("b", two_cells.directory.with_namespace("sort", "b"), before=1)
    await follower.run_once()
    await follower.run_once()
    with psycopg.connect(two_cells.dsn("b")) as connection:
        connection.execute("update cell_directory set version = 1")
        connection.execute("delete from cell_namespace")
    with capture_logs() as lines:
        await follower.run_once()
    (line,) = [each for each in lines if "restored from a backup" in each["event"]]
    assert (line["cell"], line["version"], line["before"]) == ("b", 1, 2)


async def test_a_cell_that_was_taken_out_is_no_problem_and_is_not_written_to(
    two_cells: TwoCells, follower: DirectoryFollower
) -> None:
    smaller = replace(two_cells.directory, version=2, namespaces={}).without_cell("b")
    assert two_cells.write("a", smaller, before=1)
    with capture_logs() as lines:
        await follower.run_once()
        await follower.run_once()
    assert [line["event"] for line in lines] == ["directory of cells changed"]
    assert follower.looks.keys() == {"a"}
    assert two_cells.copy("b") == StoredDirectory(two_cells.directory, "b", fenced=False)


async def test_while_a_cell_moves_the_directory_is_read_often_and_a_refused_write_has_it_read_at_once(
    two_cells: TwoCells, follower: DirectoryFollower
) -> None:
    before = await follower.run_once()
    two_cells.fence("b")
    cell_fenced.set(follower.wake.set)
    async with Store(two_cells.settings("b")) as store:
        assert not follower.wake.is_set()
        with pytest.raises(CellFencedError):
            await lambdas.register(store, [LambdaPolicy("x/y")])
    assert follower.wake.is_set()
    assert await follower.run_once() < before / 10
