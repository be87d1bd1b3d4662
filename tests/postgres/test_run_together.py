"""Statements that go together: one transaction, and each has its rows."""

import asyncio

import psycopg
import pytest
from psycopg.rows import tuple_row

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Step, Store
from duly_core.postgres.settings import StoreSettings
from duly_core.postgres.statements import Statement
from tests.fixtures.database import until_a_statement_waits_for_a_lock


def step(sql, **parameters):
    return Step(Statement("test", sql), parameters, tuple_row)


@pytest.fixture
async def notes(store):
    async with store.connection() as connection:
        await connection.execute("create table note (number int4 primary key)")
    return store


def insert(number):
    return step("insert into note values (%(number)s) returning number, txid_current()", number=number)


async def test_statements_share_a_transaction_and_each_answers_with_its_rows(notes):
    ((first, one),), ((second, other),), count = await notes.run_together(
        insert(1), insert(2), step("select count(*) from note")
    )

    assert (first, second, count) == (1, 2, [(2,)])
    assert one == other


@pytest.mark.parametrize("bad", [0, 1])
async def test_if_one_fails_nothing_is_written_and_its_error_is_raised(notes, bad):
    steps = [insert(1), insert(2)]
    steps[bad] = step("select 1 / 0")

    with pytest.raises(psycopg.errors.DivisionByZero):
        await notes.run_together(*steps)

    assert await notes.run_together(step("select from note")) == [[]]
    assert await notes.run_together(insert(1), insert(2))


async def test_a_lost_connection_is_the_stores_error(notes):
    with pytest.raises(StoreUnavailableError):
        await notes.run_together(insert(1), step("select pg_terminate_backend(pg_backend_pid())"))

    assert await notes.run_together(step("select from note")) == [[]]


async def test_statements_of_a_session_that_somebody_cleared_are_prepared_again(dsn):
    async with Store(StoreSettings(dsn=dsn, connections=1)) as store:
        assert await store.run_together(step("select 1"), step("select 2")) == [[(1,)], [(2,)]]
        async with store.connection() as connection:
            await connection.execute("deallocate all", prepare=False)

        with pytest.raises(psycopg.errors.InvalidSqlStatementName):
            await store.run_together(step("select 1"), step("select 2"))

        assert await store.run_together(step("select 1"), step("select 2")) == [[(1,)], [(2,)]]


async def test_a_call_that_is_given_up_leaves_a_pool_that_serves(dsn):
    async with Store(StoreSettings(dsn=dsn, connections=1)) as store:
        with psycopg.connect(dsn) as other:
            other.execute("lock table task in access exclusive mode")
            waiting = asyncio.ensure_future(
                store.run_together(step("select 1"), step("select from task limit 0"))
            )
            await until_a_statement_waits_for_a_lock(dsn)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting

        assert await store.run_together(step("select 1"), step("select from task limit 0")) == [[(1,)], []]
