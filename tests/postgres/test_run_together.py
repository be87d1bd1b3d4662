"""Statements that go together: one transaction, and each has its rows."""

import psycopg
import pytest
from psycopg.rows import tuple_row

from duly_core.errors import StoreUnavailableError
from duly_core.postgres.pool import Step
from duly_core.postgres.statements import Statement


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
