"""What is fuzzed of cells: a Frontend and an HSC before two cells, and rows of the second one that no caller may change."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from unittest.mock import patch
from uuid import UUID, uuid4

import grpc
import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import TupleRow

from duly_core.access.authorizer import Authorizer
from duly_core.access.grants import Grant
from duly_core.access.roles import Role
from duly_core.cells.directory import Cell, Directory
from duly_core.cells.guards import add_guards
from duly_core.cells.store import write_now
from duly_core.postgres.pool import Store
from duly_core.postgres.rights import FRONTEND, HSC
from duly_core.postgres.settings import StoreSettings
from duly_core.process.service import Serve
from duly_core.rpc.channel import open_channel
from duly_core.rpc.settings import RpcSettings
from duly_frontend import __main__ as frontend
from duly_frontend.cells import watching
from duly_frontend.cells.places import Places
from duly_hsc import __main__ as hsc
from tests.fixtures.roles import dsn_as
from tests.fixtures.routed_cells import serves
from tests.fixtures.task_states import TaskStates
from tests.fuzz.installation import (
    FixedAuthorizer,
    Installation,
    ask,
    environment,
    installed,
    known,
    register,
)

LAMBDAS = {"a": "fuzz.one", "b": "far/fuzz.two"}
NAMESPACES = {"far": "b", "vault": "b"}
KEPT = "vault/keep"
"""A lambda of cell b for which no caller has a role."""
OF_BOTH = [
    Grant("fuzz", role, name) for role in (Role.CLIENT, Role.OWNER, Role.HOST) for name in LAMBDAS.values()
]
"""Roles for all but what is kept."""
_NAMES = [
    "",
    "a",
    "b",
    "b",
    "c",
    "B",
    "b ",
    "b\x00",
    "a,b",
    "../b",
    "'; --",
    "b" * 33,
    "b" * 5_000,
    "\u202e",
    "é" * 400,
]
"""What a hostile claim may name as its cell."""

_ROWS = (
    "select to_jsonb(task) from task where lambda like 'vault/%' order by task_id",
    "select to_jsonb(task_assoc) from task_assoc where lambda like 'vault/%' order by task_id",
)
_STRAY = {
    "a": "select count(*) from task where lambda like 'far/%' or lambda like 'vault/%'",
    "b": "select count(*) from task where lambda not like 'far/%' and lambda not like 'vault/%'",
}
_FORGED = [
    Places({}, frozenset("ab")),
    Places({}, frozenset("abc")),
    Places({"c": "x"}, frozenset(), "y"),
    Places({"b": "cells:bnVsbA=="}),
    Places({"a" * 5_000: "x"}, frozenset("a")),
]
"""Page tokens that no answer has."""
_LASTS = timedelta(hours=2)


@dataclass(frozen=True)
class _Service:
    channel: grpc.aio.Channel
    address: str


@asynccontextmanager
async def install_cells(dsns: Mapping[str, str], grants: Sequence[Grant] = ()) -> AsyncIterator[Installation]:
    """Start everything on two migrated, empty databases: cells `a`, the default one, and `b`, with two namespaces.

    With grants, every caller has these and no others. Its own lambdas are all that the fuzzer is told; of others it has the ids of tasks.
    """
    directory = _directory(dsns)
    for cell, dsn in dsns.items():
        with psycopg.connect(dsn) as connection:
            write_now(connection, directory, cell, None)
            add_guards(connection)
    with environment() as folder:
        async with AsyncExitStack() as stack:
            stores = {
                cell: await stack.enter_async_context(Store(StoreSettings(dsn=dsn)))
                for cell, dsn in dsns.items()
            }
            for cell, name in LAMBDAS.items():
                await register(stores[cell], [name])
            told = known([*LAMBDAS.values()])
            told.cells = _NAMES
            told.page_tokens = [each.write() for each in _FORGED] + [
                watching.write_positions({"c": "x", "b": "1"})
            ]
            kept = await _keep(TaskStates(stores["b"]))
            told.task_ids += kept
            for cell, name in LAMBDAS.items():
                held = [await TaskStates(stores[cell]).processing(lambda_name=name) for _ in range(3)]
                told.claims += [(each.task_id, each.token, cell) for each in held]
            authorizer = FixedAuthorizer(grants) if grants else None
            served = []
            for module, role in ((frontend, FRONTEND), (hsc, HSC)):
                listen = f"unix:{folder}/{role}.sock"
                own = {
                    "DULY_STORE_DSN": dsn_as(dsns["a"], role),
                    "DULY_ATTACHMENTS_FOLDER": f"{folder}/attachments",
                }
                with patch.dict("os.environ", own | {"DULY_ATTACHMENTS_STORE": "folder"}):
                    serve = module.build(listen=listen)
                served.append(await stack.enter_async_context(_serve(serve, listen, authorizer)))
            async with installed(stores, *served, told, folder) as installation:
                before = await _rows(stores["b"])
                yield installation
                for cell, store in stores.items():
                    ((stray,),) = await ask(store, _STRAY[cell])
                    assert stray == 0, f"cell {cell} has {stray} tasks of namespaces of the other"
                if grants:
                    assert await _rows(stores["b"]) == before, (
                        f"rows of {KEPT} were changed by callers without a role"
                    )


def _directory(dsns: Mapping[str, str]) -> Directory:
    cells = {}
    for cell, dsn in dsns.items():
        where = conninfo_to_dict(dsn)
        address = make_conninfo(host=where["host"], port=where["port"], dbname=where["dbname"])
        cells[cell] = Cell(cell, address, "public")
    return Directory(uuid4(), 1, cells, NAMESPACES, "a")


async def _keep(states: TaskStates) -> list[bytes]:
    """Write tasks in several states, of which the time moves none for hours; return their ids."""
    await states.register(KEPT)
    waits = await states.new(lambda_name=KEPT, delay=_LASTS)
    runs = await states.processing(lambda_name=KEPT)
    async with states.store.connection() as connection:
        await connection.execute(
            "update task_assoc set next_trigger_at = duly_now() + %s where task_id = %s",
            [_LASTS, UUID(bytes=runs.task_id)],
        )
    dead = await states.processing(lambda_name=KEPT)
    await states.fail(dead)
    return [waits.task_id, runs.task_id, dead.task_id]


async def _rows(store: Store) -> list[list[TupleRow]]:
    return [await ask(store, query) for query in _ROWS]


@asynccontextmanager
async def _serve(serve: Serve, listen: str, authorizer: Authorizer | None) -> AsyncIterator[_Service]:
    """Run a process as `duly` does, until the block ends; the authorizer decides who may call."""
    stop = asyncio.Event()
    with (
        patch("duly_frontend.cells.serving.open_authorizer", lambda *_: authorizer),
        patch("duly_hsc.__main__.open_authorizer", lambda *_: authorizer),
    ):
        serving = asyncio.ensure_future(serve(stop))
        channel = open_channel(listen, RpcSettings().for_local_socket())
        try:
            for cell in LAMBDAS:
                await serves(channel, cell)
            yield _Service(channel, listen)
        finally:
            await channel.close()
            stop.set()
            await serving
