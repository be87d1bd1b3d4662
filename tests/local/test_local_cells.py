"""`duly up --cells`: the cells of a Postgres are made once, completed after a kill, and found again at another port."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.access import store as store_access
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.cells.administration import Administration
from duly_core.cells.directory import Directory
from duly_core.cells.moving.sides import without_password
from duly_core.errors import DulyError, SettingsError
from duly_core.postgres.pool import Store
from duly_core.postgres.settings import StoreSettings
from duly_local.cells.making import CellMaker
from duly_local.cells.record import CellRecord, read_record, record_file, write_record
from duly_local.cells.starting import CellsInFolder
from tests.fixtures.postgres import PostgresServer

PORT = 1234


class Killed(BaseException):
    """As SIGKILL: nobody handles it."""


@pytest.fixture
def dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """A sole store in a database that nobody else gets: a test adds schemas to it."""
    name = postgres_server.create()
    yield postgres_server.dsn_of(name)
    postgres_server.drop(name)


@pytest.fixture
def elsewhere(postgres_server: PostgresServer) -> Iterator[str]:
    """Another Postgres, so to speak."""
    name = postgres_server.create()
    yield postgres_server.dsn_of(name)
    postgres_server.drop(name)


def make(dsn: str, wanted: int | None, *former: str) -> Directory | None:
    return CellMaker(StoreSettings(dsn=dsn), lambda _: None).run(wanted, list(former))


def made(dsn: str, wanted: int | None, *former: str) -> Directory:
    directory = make(dsn, wanted, *former)
    assert directory is not None
    found = Administration(StoreSettings(dsn=dsn)).look()
    assert (found.problems(), found.directory) == ([], directory)
    return directory


def schemas(directory: Directory) -> dict[str, str]:
    return {name: cell.schema for name, cell in sorted(directory.cells.items())}


def after_a_new_port(dsn: str) -> str:
    """Return another address of the same server."""
    return make_conninfo(dsn, hostaddr="127.0.0.1")


def test_a_store_becomes_as_many_cells_as_wanted_and_a_repeat_changes_nothing(dsn: str) -> None:
    directory = made(dsn, 3)

    assert schemas(directory) == {"a": "public", "b": "duly_b", "c": "duly_c"}
    assert {cell.address for cell in directory.cells.values()} == {without_password(dsn)}
    assert made(dsn, 3) == made(dsn, None) == directory


def test_a_higher_number_adds_cells_beside_those_that_there_are(dsn: str) -> None:
    made(dsn, 1)
    Administration(StoreSettings(dsn=dsn)).add("eu", without_password(dsn), "duly_c")

    assert schemas(made(dsn, 4)) == {"a": "public", "b": "duly_b", "d": "duly_d", "eu": "duly_c"}


def test_a_lower_number_is_refused_and_changes_nothing(dsn: str) -> None:
    before = made(dsn, 3)

    with pytest.raises(SettingsError, match=r"3 cells \(a, b, c\).*--cells 3.*`duly cells remove c`"):
        make(dsn, 2)

    assert made(dsn, None) == before


def test_a_cell_that_was_removed_is_added_again(dsn: str) -> None:
    made(dsn, 2)
    Administration(StoreSettings(dsn=dsn)).remove("b")

    assert schemas(made(dsn, 2)) == {"a": "public", "b": "duly_b"}


def test_without_a_number_a_sole_store_stays_one(dsn: str) -> None:
    assert make(dsn, None) is None
    assert Administration(StoreSettings(dsn=dsn)).own_copy() is None


def test_cells_are_not_made_through_a_pooler(dsn: str) -> None:
    with pytest.raises(SettingsError, match="duly cells init"):
        CellMaker(StoreSettings(dsn=dsn, pooled=True), lambda _: None).run(2, [])

    assert make(dsn, None) is None


@pytest.mark.parametrize("step", ["init", "add", "_write", "_make", "copy_what_operators_own"])
@pytest.mark.parametrize("times", [1, 2])
def test_what_was_killed_in_the_middle_is_completed_by_the_next_start(
    dsn: str, step: str, times: int
) -> None:
    done = 0
    real = getattr(Administration, step)

    def killed(self: Administration, *arguments: object) -> object:
        nonlocal done
        done += 1
        if done == times:
            raise Killed
        return real(self, *arguments)

    with patch.object(Administration, step, killed):
        try:
            make(dsn, 3)
        except Killed:
            pass
        else:
            assert (step, times) == ("init", 2)  # there is one first cell

    moved = after_a_new_port(dsn)
    assert schemas(made(moved, 3, without_password(dsn))) == {"a": "public", "b": "duly_b", "c": "duly_c"}


async def test_what_operators_own_is_copied_though_a_start_was_killed_before_it(dsn: str) -> None:
    settings = StoreSettings(dsn=dsn)
    async with Store(settings) as store:
        await store_access.add_grants(store, [Grant("ann", Role.OPERATOR, "*")], "root")
    Administration(settings).init("a")
    Administration(settings).add("b", without_password(dsn), "duly_b")

    await asyncio.to_thread(made, dsn, 2)

    async with Store(settings.model_copy(update={"schema_name": "duly_b"})) as store:
        grants = await store_access.list_grants(store)
    assert [each.principal for each in grants] == ["ann"]


def test_cells_at_a_former_address_get_the_present_one_and_others_keep_theirs(
    dsn: str, elsewhere: str
) -> None:
    made(dsn, 2)
    there = without_password(elsewhere)
    Administration(StoreSettings(dsn=dsn)).add("far", there, "public")

    moved = after_a_new_port(dsn)
    directory = made(moved, None, "postgresql://another/one", without_password(dsn))

    assert {name: cell.address for name, cell in directory.cells.items()} == {
        "a": without_password(moved),
        "b": without_password(moved),
        "far": there,
    }


def test_an_address_that_this_postgres_never_had_is_left_alone(dsn: str) -> None:
    before = made(dsn, 2)

    assert made(after_a_new_port(dsn), None, "postgresql://another/one") == before


def test_a_fenced_cell_does_not_get_the_present_address(dsn: str) -> None:
    before = made(dsn, 2)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("update duly_b.cell_directory set state = 'fenced'")

    with pytest.raises(
        DulyError, match=r"the former one for a, b: .* is fenced.*; or stop what has the former port"
    ):
        make(after_a_new_port(dsn), None, without_password(dsn))

    assert make(dsn, None) == before


def test_a_record_that_is_none_is_refused(tmp_path: Path) -> None:
    record = CellRecord(("postgresql:///duly?port=1", "postgresql:///duly?port=2"), PORT, 2, 3)
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record

    for broken in ("", "[]", json.dumps({"addresses": "x", "port": 1, "number": 1, "making": None})):
        record_file(tmp_path).write_text(broken)
        with pytest.raises(DulyError, match=r"cells\.json cannot be read"):
            read_record(tmp_path)


def environment(dsn: str) -> dict[str, str]:
    return {"DULY_STORE_DSN": dsn, "DULY_STORE_PASSWORD_FILE": ""}


def test_a_folder_without_cells_is_as_before(tmp_path: Path, dsn: str) -> None:
    cells = CellsInFolder(tmp_path, None)

    assert (cells.postgres_settings, cells.usual_port) == ({}, None)
    assert cells.prepare(without_password(dsn), PORT, environment(dsn), lambda _: None) is None
    assert list(tmp_path.iterdir()) == []


def test_a_folder_keeps_its_cells_and_its_port(tmp_path: Path, dsn: str) -> None:
    told: list[str] = []
    first = CellsInFolder(tmp_path, 2).prepare(without_password(dsn), PORT, environment(dsn), told.append)
    again = CellsInFolder(tmp_path, None)
    found = again.prepare(without_password(dsn), again.usual_port or 0, environment(dsn), told.append)

    assert first == found
    assert first is not None
    assert (first.names, first.default) == (("a", "b"), "a")
    assert told == ["the store is cell a", "cell b is schema duly_b"]
    assert again.usual_port == PORT
    assert again.postgres_settings["wal_level"] == "logical"
    assert int(again.postgres_settings["max_connections"]) > 100


def test_a_start_that_was_killed_is_completed_without_the_number(tmp_path: Path, dsn: str) -> None:
    with (
        patch("duly_local.cells.starting.make_cells", side_effect=Killed),
        pytest.raises(Killed),
    ):
        CellsInFolder(tmp_path, 3).prepare(without_password(dsn), PORT, environment(dsn), lambda _: None)

    found = CellsInFolder(tmp_path, None).prepare(
        without_password(dsn), PORT, environment(dsn), lambda _: None
    )

    assert found is not None
    assert found.names == ("a", "b", "c")


def test_a_start_that_was_killed_after_a_new_port_leaves_no_stale_address(tmp_path: Path, dsn: str) -> None:
    """The first start wrote address one, the second was killed when it had written two, the third is at one again."""
    one, two = dsn, after_a_new_port(dsn)
    CellsInFolder(tmp_path, 2).prepare(without_password(one), PORT, environment(one), lambda _: None)
    with (
        patch("duly_local.cells.starting.LocalCells", side_effect=Killed),
        pytest.raises(Killed),
    ):
        CellsInFolder(tmp_path, None).prepare(without_password(two), PORT, environment(two), lambda _: None)
    assert made(two, None).cells["b"].address == without_password(two)

    CellsInFolder(tmp_path, None).prepare(without_password(one), PORT, environment(one), lambda _: None)

    assert made(one, None).cells["b"].address == without_password(one)


def test_the_former_port_is_the_usual_one_until_the_directory_is_corrected(
    tmp_path: Path, dsn: str, elsewhere: str, postgres_server: PostgresServer
) -> None:
    CellsInFolder(tmp_path, 2).prepare(without_password(dsn), PORT, environment(dsn), lambda _: None)
    Administration(StoreSettings(dsn=dsn)).add("far", without_password(elsewhere), "public")
    database = str(conninfo_to_dict(elsewhere)["dbname"])
    moved = after_a_new_port(dsn)
    with psycopg.connect(postgres_server.admin_dsn, autocommit=True) as connection:
        connection.execute(f"alter database {database} with allow_connections false".encode())
        with pytest.raises(DulyError, match=r"cell far at .* cannot be reached.*the former port"):
            CellsInFolder(tmp_path, None).prepare(
                without_password(moved), PORT + 1, environment(moved), lambda _: None
            )
        assert CellsInFolder(tmp_path, None).usual_port == PORT
        connection.execute(f"alter database {database} with allow_connections true".encode())

    CellsInFolder(tmp_path, None).prepare(
        without_password(moved), PORT + 1, environment(moved), lambda _: None
    )

    assert CellsInFolder(tmp_path, None).usual_port == PORT + 1
    assert made(moved, None).cells["b"].address == without_password(moved)


def test_a_number_that_is_refused_is_forgotten(tmp_path: Path, dsn: str) -> None:
    made(dsn, 3)
    with pytest.raises(SettingsError, match="--cells 2 would be fewer"):
        CellsInFolder(tmp_path, 2).prepare(without_password(dsn), PORT, environment(dsn), lambda _: None)
    assert read_record(tmp_path) is None

    CellsInFolder(tmp_path, 3).prepare(without_password(dsn), PORT, environment(dsn), lambda _: None)
    with pytest.raises(SettingsError, match="--cells 2 would be fewer"):
        CellsInFolder(tmp_path, 2).prepare(without_password(dsn), PORT, environment(dsn), lambda _: None)
    record = read_record(tmp_path)

    assert record is not None
    assert (record.number, record.making) == (3, None)
