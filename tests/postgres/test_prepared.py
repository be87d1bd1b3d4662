"""Prepared statements that are run without a cursor."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import tuple_row

from duly_core.errors import StatementTimeoutError
from duly_core.postgres.arrays import int2s
from duly_core.postgres.connection import Connection
from duly_core.postgres.pool import Store, fetch
from duly_core.postgres.prepared import Prepared
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import Statement
from tests.fixtures.database import until_a_statement_waits_for_a_lock

VALUES = {
    "a": 1,
    "b": "é%",
    "c": b"\0x",
    "d": datetime(2026, 1, 1, tzinfo=UTC),
    "e": None,
    "f": int2s([1, 2]),
}
PREPARED = "select count(*)::int8 from pg_prepared_statements where name like 'duly%%'"


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator[Connection]:
    async with Store(StoreSettings(dsn=dsn)) as store, store.connection() as lent:
        assert isinstance(lent, Connection)
        yield lent


async def run(connection: Connection, sql: str, **parameters: object) -> list[tuple[object, ...]]:
    return await fetch(connection, Statement("test", sql), parameters)


async def test_rows_are_those_of_a_cursor(connection: Connection) -> None:
    sql = (
        "select %(a)b::int8, %(b)s::text || '%%', %(c)b::bytea, %(d)b::timestamptz, %(e)b::uuid, %(f)b::int2[], %(b)s::text, "
        "'018f0000-0000-7000-8000-000000000000'::uuid"
    )

    rows = await run(connection, sql, **VALUES)

    cursor = connection.cursor(binary=True)
    await cursor.execute(sql, VALUES)
    assert rows == await cursor.fetchall()
    assert rows[0][-1] == UUID("018f0000-0000-7000-8000-000000000000").bytes


async def test_a_statement_is_prepared_once_for_each_list_of_types(connection: Connection) -> None:
    for value in (1, 2, "3", None, 4, "5"):
        assert await run(connection, "select %(a)s::text", a=value) == [
            (None if value is None else str(value),)
        ]

    assert await run(connection, PREPARED) == [(3,)]  # a number, a text or null, and the count itself


async def test_a_session_keeps_the_statements_that_it_used_last(connection: Connection) -> None:
    for number in range(150):
        await run(connection, f"select {number}")
        await run(connection, "select 0 as often")

    assert await run(connection, PREPARED) == [(100,)]
    assert (b"select 0 as often", ()) in connection.prepared.names


async def test_a_refused_statement_says_why_and_the_next_one_runs(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        await run(connection, "select 1 / %(a)b::int4", a=0)
    with pytest.raises(psycopg.errors.UndefinedTable):
        await run(connection, "select 1 from nowhere")

    assert await run(connection, "select 1 / %(a)b::int4", a=1) == [(1,)]


async def test_a_rollback_after_which_psycopg_forgets_all_statements_leaves_none_unknown(
    connection: Connection,
) -> None:
    await run(connection, "select 1")
    await connection.execute("select 2", prepare=True)

    with pytest.raises(LookupError):
        async with connection.transaction():
            raise LookupError
    await connection.execute("select 3")

    assert await run(connection, PREPARED) == [(1,)]
    assert await run(connection, "select 1") == [(1,)]


async def test_statements_that_somebody_else_took_away_are_prepared_anew(connection: Connection) -> None:
    await run(connection, "select 1")
    await connection.execute("deallocate all", prepare=False)

    with pytest.raises(psycopg.errors.InvalidSqlStatementName):
        await run(connection, "select 1")

    assert await run(connection, "select 1") == [(1,)]


async def test_what_does_not_fit_into_the_socket_is_sent_and_read(connection: Connection) -> None:
    large = b"x" * 30_000_000

    assert await run(connection, "select %(a)b::bytea as back", a=large) == [(large,)]


async def test_a_cancelled_statement_ends_and_leaves_the_connection_as_it_was(
    dsn: str, connection: Connection
) -> None:
    with psycopg.connect(dsn) as other:
        other.execute("lock table task in access exclusive mode")
        waiting = asyncio.ensure_future(run(connection, "select count(*) from task"))
        await until_a_statement_waits_for_a_lock(dsn)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert await run(connection, "select 1") == [(1,)]
    assert await run(connection, "select count(*) from task") == [(0,)]


async def test_one_that_was_cancelled_while_it_was_prepared_is_prepared_again(
    dsn: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Prepared._prepare

    async def prepare_and_end(self: Prepared, text: bytes, types: tuple[int, ...]) -> bytes:
        await prepare(self, text, types)
        self.names.clear()  # as if nobody heard of it
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "_prepare", prepare_and_end)
        with pytest.raises(asyncio.CancelledError):
            await run(connection, "select 1")

    assert await run(connection, "select 1") == [(1,)]


async def test_a_lost_connection_is_an_operational_error(dsn: str, connection: Connection) -> None:
    await run(connection, "select 1")
    with psycopg.connect(dsn, autocommit=True) as other:
        other.execute("select pg_terminate_backend(%s)", [connection.info.backend_pid])

    for _ in range(2):
        with pytest.raises(psycopg.OperationalError):
            await run(connection, "select 1")


async def test_a_late_statement_is_ended(dsn: str) -> None:
    settings = StoreSettings.model_validate({"dsn": dsn, "statement_timeout": "0.2s"})
    async with Store(settings) as store:
        with pytest.raises(StatementTimeoutError):
            await store.run_as(tuple_row, Statement("test", "select pg_sleep(30)"), {})
