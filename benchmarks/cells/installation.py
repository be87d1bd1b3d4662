"""An installation of several cells on this machine: databases of one embedded Postgres, or a Postgres of its own for each."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.cells.directory import Cell, Directory
from duly_core.cells.store import write_now
from duly_core.postgres.schema.migrate import migrate
from duly_local.child_spec import SupervisionTiming
from duly_local.merged_output import MergedOutput
from duly_local.options import StackOptions
from duly_local.postgres.embedded import EmbeddedPostgres
from duly_local.stack import LocalStack

NAMESPACES = 4
"""In each installation, however many cells it has: the load is the same."""
_READY_WITHIN = timedelta(minutes=2)
_SETTINGS = {"max_connections": "400"}
APP = "benchmarks.cells.app:app"


@dataclass(frozen=True, slots=True)
class Installation:
    """Where its parts are."""

    frontend: str
    cells: Mapping[str, EmbeddedPostgres]
    """The Postgres that each cell is in, by the cell's name."""
    stack: LocalStack


@asynccontextmanager
async def installed(
    folder: Path, cells: int, *, workers: bool, apart: bool = False, sole: bool = False
) -> AsyncIterator[Installation]:
    """Start it in this folder, and stop it.

    Args:
        folder: is empty.
        cells: how many.
        workers: whether there is one that runs the lambdas of all namespaces.
        apart: a Postgres for each cell, so that one can be stopped.
        sole: a store without a directory, to compare with.
    """
    names = [f"c{number}" for number in range(cells)]
    apps = (APP,) if workers else ()
    async with AsyncExitStack() as services:
        servers = {
            name: services.enter_context(EmbeddedPostgres(folder / f"postgres-{name}", settings=_SETTINGS))
            for name in (names if apart else names[:1])
        }
        first = servers[names[0]]
        for server in servers.values():
            _share_password(server, first)
        of_cell = {name: servers.get(name, first) for name in names}
        dsns = {name: database(of_cell[name], first, name) for name in names}
        for dsn in dsns.values():
            migrate(dsn)
        if not sole:
            write_directory(dsns)
        os.environ["DULY_STORE_SCHEMA_NAME"] = "public"
        options = StackOptions(
            data_directory=folder / "data", dsn=dsns[names[0]], apps=apps, ports="free", executors=1
        )
        output = MergedOutput(services.enter_context((folder / "duly.log").open("ab")))
        pace = SupervisionTiming(ready_within=_READY_WITHIN)
        stack = await services.enter_async_context(LocalStack(options, output, pace))
        yield Installation(stack.frontend_address, of_cell, stack)


def _share_password(server: EmbeddedPostgres, first: EmbeddedPostgres) -> None:
    """Let one password open all cells: the directory has none, so that of the own store is used."""
    if server is not first:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            password = sql.Literal(conninfo_to_dict(first.dsn)["password"])
            connection.execute(sql.SQL("alter user duly password {}").format(password))


def database(server: EmbeddedPostgres, first: EmbeddedPostgres, name: str) -> str:
    """Make a database in `server`, which the password of `first` opens; return its address."""
    dsn = make_conninfo(first.dsn, port=server.port, dbname="duly")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    return make_conninfo(dsn, dbname=name)


def write_directory(dsns: Mapping[str, str]) -> None:
    """Let these databases, by the names of their cells, be the cells of an installation."""
    cells = {}
    for name, dsn in dsns.items():
        where = conninfo_to_dict(dsn)
        cells[name] = Cell(
            name, make_conninfo(host=where["host"], port=where["port"], dbname=where["dbname"]), "public"
        )
    names = sorted(cells)
    living = {f"ns{number}": names[number % len(names)] for number in range(NAMESPACES)}
    directory = Directory(uuid4(), 1, cells, living, names[0])
    for name, dsn in dsns.items():
        with psycopg.connect(dsn) as connection:
            write_now(connection, directory, name, None)
