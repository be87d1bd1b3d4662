"""A fenced cell refuses each statement that writes, from the moment of the fence on, and takes them again after it."""

import re
from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from duly_core.cells import guards
from duly_core.cells.store import read_now
from duly_core.errors import CellFencedError
from duly_core.postgres.pool import Store
from duly_core.postgres.statements import load
from tests.fixtures.all_statements import prepare_all
from tests.fixtures.cells import TwoCells
from tests.fixtures.task_states import TaskStates

_WRITES = re.compile(r"(Insert|Update|Delete) on (?:\w+\.)?(\w+)")
OF_THE_CELL = {*guards.NOT_FENCED}


@pytest.fixture
def connection(two_cells: TwoCells) -> Iterator[psycopg.Connection]:
    with psycopg.connect(two_cells.dsn("b"), autocommit=True) as made:
        yield made


def _writes(connection: psycopg.Connection, call: sql.Composed) -> set[str]:
    """The tables that a statement writes to, by its plan."""
    plan = connection.execute(sql.SQL("explain {}").format(call)).fetchall()
    return {found[2] for (line,) in plan for found in _WRITES.finditer(line)}


def test_each_statement_that_writes_is_refused(connection: psycopg.Connection) -> None:
    calls = prepare_all(connection)
    writing = {name: call for name, call in calls.items() if _writes(connection, call) - OF_THE_CELL}
    assert len(writing) > 100
    guards.fence(connection)
    passed = {}
    for name, call in writing.items():
        try:
            connection.execute(call)
        except psycopg.Error as error:
            if not guards.is_fenced_error(error):
                passed[name] = str(error)
        else:
            passed[name] = "was done"
    assert not passed


def test_the_functions_of_clients_and_of_upkeep_are_refused(connection: psycopg.Connection) -> None:
    connection.execute(
        "insert into lambda select * from json_populate_record(null::lambda, '{}') where false"
    )
    guards.fence(connection)
    for call in (
        "duly_add_partition('29990101', duly_first_id('2999-01-01'), duly_first_id('2999-01-02'))",
        "duly_drop_partition('first', duly_first_id('1970-01-01'), duly_first_id('1971-01-01'), '{}', 10)",
        "duly_forget_audit_events(now(), 10)",
    ):
        with pytest.raises(psycopg.Error) as raised:
            connection.execute(f"select {call}".encode())
        assert guards.is_fenced_error(raised.value), call


@pytest.mark.parametrize(
    "statement",
    [
        "delete from task_first",
        "update attempt_rest set fence = 1",
        "truncate task",
        "delete from alembic_version",
    ],
)
def test_partitions_and_whole_tables_are_closed_too(connection: psycopg.Connection, statement: str) -> None:
    guards.fence(connection)
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(statement.encode())
    assert guards.is_fenced_error(raised.value)


async def test_a_service_hears_that_the_cell_is_fenced_and_nothing_is_written(two_cells: TwoCells) -> None:
    async with Store(two_cells.settings("b")) as store:
        states = TaskStates(store)
        await states.register("mail/send")
        await states.new(lambda_name="mail/send")
        two_cells.fence("b")
        before = await store.run(load("tasks/reads.sql")["next_timeout"], {})
        with pytest.raises(CellFencedError, match="cell b is fenced"):
            await states.new(lambda_name="mail/send")
        with pytest.raises(CellFencedError, match="cell b is fenced"):
            await states.take()
        assert await store.run(load("tasks/reads.sql")["next_timeout"], {}) == before
    copy = two_cells.copy("b")
    assert copy is not None
    assert copy.fenced


def test_a_fence_waits_for_writers_and_nothing_is_written_after_it(
    two_cells: TwoCells, connection: psycopg.Connection
) -> None:
    with psycopg.connect(two_cells.dsn("b")) as writer:
        writer.execute("insert into setting (name, value, changed_at) values ('a', '1', now())")
        connection.execute("set lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            guards.fence(connection)
        writer.commit()
        guards.fence(connection)
        with pytest.raises(psycopg.Error, match="fenced"):
            writer.execute("insert into setting (name, value, changed_at) values ('b', '1', now())")
    assert connection.execute("select name from setting").fetchall() == [("a",)]


def test_what_was_committed_before_a_fence_is_on_disk_after_it_also_without_synchronous_commit(
    connection: psycopg.Connection,
) -> None:
    connection.execute("set synchronous_commit = off")
    connection.execute("insert into setting (name, value, changed_at) values ('a', '1', now())")
    committed = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    guards.fence(connection)
    assert committed is not None
    flushed = connection.execute("select pg_current_wal_flush_lsn() > %s::text::pg_lsn", committed).fetchone()
    assert flushed == (True,)
    assert connection.execute("show synchronous_commit").fetchone() == ("off",)


@pytest.mark.parametrize("as_set", ["on", "remote_apply", "remote_write"])
def test_a_fence_waits_for_a_standby_as_other_writes_do(connection: psycopg.Connection, as_set: str) -> None:
    connection.execute(f"set synchronous_commit = {as_set}".encode())
    with connection.transaction():
        guards.fence(connection)
        assert connection.execute("show synchronous_commit").fetchone() == (as_set,)


def test_a_fenced_cell_takes_newer_versions_of_the_directory(
    two_cells: TwoCells, connection: psycopg.Connection
) -> None:
    guards.fence(connection)
    newer = two_cells.directory.with_namespace("sort", "b")
    assert two_cells.write("b", newer, before=1)
    copy = read_now(connection)
    assert copy is not None
    assert (copy.directory, copy.fenced) == (newer, True)


def test_a_fence_twice_is_one_and_without_it_the_cell_is_written_to_again(
    two_cells: TwoCells, connection: psycopg.Connection
) -> None:
    guards.fence(connection)
    guards.fence(connection)
    guards.unfence(connection)
    guards.unfence(connection)
    connection.execute("insert into setting (name, value, changed_at) values ('a', '1', now())")
    copy = two_cells.copy("b")
    assert copy is not None
    assert not copy.fenced


def test_a_sole_store_has_no_fence(dsn: str) -> None:
    with psycopg.connect(dsn) as connection, pytest.raises(psycopg.Error, match="no directory"):
        guards.fence(connection)
