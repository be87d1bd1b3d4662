"""`duly migrate` of an installation of several cells."""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner, Result

from duly_cli.__main__ import app
from duly_core.cells.administration import Administration
from duly_core.cells.moving.sides import without_password
from duly_core.postgres.settings import StoreSettings
from tests.fixtures.postgres import PostgresServer


@dataclass(frozen=True, slots=True)
class Migrated:
    """Two cells whose schemas are as `duly migrate` made them."""

    admin_dsn: str
    names: tuple[str, str]

    def dsn(self, place: int) -> str:
        """The address of a cell."""
        return make_conninfo(self.admin_dsn, dbname=self.names[place])

    def execute(self, statement: str) -> None:
        """Run a statement as the server's administrator."""
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            connection.execute(statement.encode())


def migrate(cells: Migrated, *more: str) -> Result:
    environment = {"DULY_STORE_DSN": cells.dsn(0), "COLUMNS": "200"}
    return CliRunner().invoke(app, ["migrate", *more], env=environment)


@pytest.fixture
def cells(postgres_server: PostgresServer) -> Iterator[Migrated]:
    made = Migrated(
        postgres_server.admin_dsn, (f"duly_cell_{uuid4().hex[:8]}", f"duly_cell_{uuid4().hex[:8]}")
    )
    for name in made.names:
        made.execute(f"create database {name} template template1")
    assert migrate(made).exit_code == 0
    administration = Administration(StoreSettings(dsn=made.dsn(0)))
    administration.init("a")
    administration.add("b", without_password(made.dsn(1)), "public")
    yield made
    for name in made.names:
        made.execute(f"drop database {name} with (force)")


def test_all_cells_are_migrated_and_each_is_named(cells: Migrated) -> None:
    done = migrate(cells)

    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "the store's schema is up to date",
        "the schema of cell b is up to date",
    ]


def test_with_an_address_one_store_alone_is_migrated(cells: Migrated) -> None:
    done = migrate(cells, "--dsn", cells.dsn(1))

    assert done.stdout.splitlines() == ["the store's schema is up to date"]


def test_a_cell_that_is_away_is_named_and_the_others_are_migrated(cells: Migrated) -> None:
    cells.execute(f"alter database {cells.names[1]} allow_connections false")

    done = migrate(cells)

    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["the store's schema is up to date"]
    assert done.stderr.startswith("duly migrate: not migrated: cell b: ")
