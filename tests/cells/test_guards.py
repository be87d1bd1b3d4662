"""A cell refuses what begins in a namespace of another cell: lambdas, tasks, time tables, graphs, events and attachments."""

import psycopg
import pytest
from psycopg import IsolationLevel, sql

from duly_core.cells import guards
from duly_core.errors import NotInCellError
from duly_core.postgres.pool import Store
from duly_core.postgres.schema.comparison import compare
from tests.fixtures.cells import TwoCells
from tests.fixtures.task_states import TaskStates

SCHEDULE = "select duly_schedule('mail/send')"
COLUMNS = {"lambda": "{}/send", "name": "{}/send@v2~x", "key": "{}/order/7", "namespace": "{}"}


async def test_lambdas_and_tasks_of_a_namespace_of_the_cell_are_written(two_cells: TwoCells) -> None:
    two_cells.guard("b")
    async with Store(two_cells.settings("b")) as store:
        states = TaskStates(store)
        await states.register("mail/send")
        await states.new(lambda_name="mail/send")


@pytest.mark.parametrize("name", ["send", "sort/send"])
async def test_a_lambda_of_a_namespace_of_another_cell_is_refused(two_cells: TwoCells, name: str) -> None:
    two_cells.guard("b")
    async with Store(two_cells.settings("b")) as store:
        with pytest.raises(NotInCellError, match=r"lives in cell a, and not in cell b \(version 1"):
            await TaskStates(store).register(name)


async def test_a_task_is_refused_from_the_version_on_that_gives_its_namespace_away(
    two_cells: TwoCells,
) -> None:
    two_cells.guard("b")
    async with Store(two_cells.settings("b")) as store:
        states = TaskStates(store)
        await states.register("mail/send")
        two_cells.write("b", two_cells.directory.with_namespace("mail", "a"), before=1)
        with pytest.raises(NotInCellError, match=r"namespace mail .* \(version 2"):
            await states.new(lambda_name="mail/send")


@pytest.mark.parametrize("level", [IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE])
async def test_a_transaction_with_an_older_snapshot_fails_once_the_directory_has_changed_and_its_repeat_is_refused(
    two_cells: TwoCells, level: IsolationLevel
) -> None:
    two_cells.guard("b")
    async with Store(two_cells.settings("b")) as store:
        await TaskStates(store).register("mail/send")
    with psycopg.connect(two_cells.dsn("b")) as connection:
        connection.isolation_level = level
        connection.execute(SCHEDULE)  # of the version that it sees
        connection.commit()
        connection.execute("select")  # takes the snapshot
        two_cells.write("b", two_cells.directory.with_namespace("mail", "a"), before=1)
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.execute(SCHEDULE)
        connection.rollback()
        with pytest.raises(psycopg.Error, match=r"lives in cell a, and not in cell b \(version 2") as raised:
            connection.execute(SCHEDULE)
        assert raised.value.sqlstate == "DU002"


async def test_a_transaction_with_a_snapshot_from_before_the_store_was_a_cell_fails(
    two_cells: TwoCells,
) -> None:
    async with Store(two_cells.settings("b")) as store:
        await TaskStates(store).register("mail/send")
    with psycopg.connect(two_cells.dsn("b"), autocommit=True) as other:
        (row,) = other.execute("delete from cell_directory returning cell_directory::text").fetchone() or ()
        with psycopg.connect(two_cells.dsn("b")) as connection:
            connection.isolation_level = IsolationLevel.REPEATABLE_READ
            connection.execute("select")  # takes the snapshot
            other.execute("insert into cell_directory select (%s::cell_directory).*", [row])
            two_cells.guard("b")
            with pytest.raises(psycopg.errors.SerializationFailure, match="became a cell"):
                connection.execute(SCHEDULE)


@pytest.mark.parametrize("table", guards.GUARDED)
def test_each_guarded_table_takes_rows_of_its_own_namespaces_only(two_cells: TwoCells, table: str) -> None:
    two_cells.guard("b")
    column = guards.GUARDED[table]
    with psycopg.connect(two_cells.dsn("b"), autocommit=True) as connection:
        _take_any_row(connection, table)
        insert = sql.SQL("insert into {} ({}) values (%s)").format(
            sql.Identifier(table), sql.Identifier(column)
        )
        connection.execute(insert, [COLUMNS[column].format("mail")])
        for strange in ("sort", ""):
            with pytest.raises(psycopg.Error) as raised:
                connection.execute(insert, [COLUMNS[column].format(strange)])
            assert raised.value.sqlstate == "DU002"


def _take_any_row(connection: psycopg.Connection, table: str) -> None:
    """Drop what else a row of a table has to be."""
    constraints = connection.execute(
        "select conname from pg_constraint where conrelid = %s::regclass and contype in ('c', 'f', 'p', 'u')",
        [table],
    ).fetchall()
    drop = sql.SQL("alter table {} drop constraint {} cascade")
    for (name,) in constraints:
        connection.execute(drop.format(sql.Identifier(table), sql.Identifier(name)))
    columns = connection.execute(
        "select attname from pg_attribute where attrelid = %s::regclass and attnotnull and attnum > 0 and attidentity = ''",
        [table],
    ).fetchall()
    allow = sql.SQL("alter table {} alter {} drop not null")
    for (name,) in columns:
        connection.execute(allow.format(sql.Identifier(table), sql.Identifier(name)))


def test_guards_and_a_fence_are_no_difference_of_the_schema(two_cells: TwoCells) -> None:
    before = compare(two_cells.dsn("b"))  # the tests' own constraints
    two_cells.guard("b")
    two_cells.fence("b")
    assert compare(two_cells.dsn("b")) == before


def test_guards_are_added_once_and_what_is_missing_is_known(two_cells: TwoCells) -> None:
    with psycopg.connect(two_cells.dsn("b")) as connection:
        assert guards.add_guards(connection) == sorted(guards.GUARDED)
        assert guards.add_guards(connection) == []
        connection.execute("drop trigger duly_cell_guard on event")
        connection.execute("alter table lambda disable trigger duly_cell_guard")
        assert guards.missing_guards(connection) == ["event", "lambda"]


@pytest.mark.parametrize(
    ("names", "is_taken"),
    [
        (["mail/a", "mail/b@v2"], True),
        (["mail/a", "mail/a"], True),
        (["send", "send"], False),
        (["mail/a", "mail/z", "mail-box/b"], False),
        (["mail/a", "mailing/b"], False),
        (["mail/a", "sort/b"], False),
        (["a", "mail/b", "z"], False),
        (["send@:zone=mail/b"], False),
    ],
)
def test_a_statement_of_many_rows_is_refused_if_one_is_strange(
    two_cells: TwoCells, names: list[str], is_taken: bool
) -> None:
    two_cells.guard("b")
    with psycopg.connect(two_cells.dsn("b")) as connection:
        _take_any_row(connection, "lambda_ramp")
        insert = "insert into lambda_ramp (lambda) select unnest(%s::text[])"
        if is_taken:
            connection.execute(insert, [names])
        else:
            with pytest.raises(psycopg.Error, match="lives in cell a"):
                connection.execute(insert, [names])


@pytest.mark.parametrize(
    ("names", "is_taken"),
    [
        (["send"], True),
        (["send", "send@v2", "zip"], True),
        (["send@:zone=mail/b"], True),
        (["mail/send"], False),
    ],
)
def test_what_has_no_namespace_is_of_the_default_cell(
    two_cells: TwoCells, names: list[str], is_taken: bool
) -> None:
    two_cells.guard("a")
    with psycopg.connect(two_cells.dsn("a")) as connection:
        _take_any_row(connection, "lambda_ramp")
        insert = "insert into lambda_ramp (lambda) select unnest(%s::text[])"
        if is_taken:
            connection.execute(insert, [names])
        else:
            with pytest.raises(psycopg.Error, match="lives in cell b, and not in cell a"):
                connection.execute(insert, [names])
