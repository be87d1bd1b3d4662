"""The triggers of a cell: guards that refuse rows of namespaces of other cells, and the fence that refuses every write."""

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from duly_core.postgres.schema.definition import made_names
from duly_core.postgres.statements import load

_STATEMENTS = load("cells/triggers.sql")

GUARDED = {
    "attachment": "namespace",
    "event": "key",
    "graph_node": "lambda",
    "lambda": "name",
    "lambda_declaration": "name",
    "lambda_ramp": "lambda",
    "task_assoc": "lambda",
    "time_table": "lambda",
}
"""By table, the column that names a lambda, a namespace or a key in a namespace. All that lives in a namespace begins with a row of one of
these: each live task has one in `task_assoc`, whose rows only scheduling writes; ends and claims do not."""

NOT_FENCED = ("cell", "cell_directory", "cell_namespace")
"""A fenced cell takes newer versions of the directory: they say where it has moved."""


def fenced_tables() -> list[str]:
    """Return the tables that a fence closes; their partitions are closed, too."""
    return sorted({*made_names()["table"], "alembic_version"} - {*NOT_FENCED})


def add_guards(connection: Connection[TupleRow]) -> list[str]:
    """Add the guards that are missing, and return their tables. The caller ends the transaction, and bounds its waits for locks.

    Raises:
        psycopg.Error: the user does not own the tables, or somebody holds one for long.
    """
    missing = missing_guards(connection)
    for table in missing:
        connection.execute(
            sql.SQL(
                "create trigger duly_cell_guard after insert on {} referencing new table as written "
                "for each statement execute function duly_cell_guard({})"
            ).format(sql.Identifier(table), sql.Literal(GUARDED[table]))
        )
    return missing


def missing_guards(connection: Connection[TupleRow]) -> list[str]:
    """Return the tables that lack their guard."""
    guarded = connection.execute(_STATEMENTS["guarded_tables"].sql.encode()).fetchall()
    return sorted(GUARDED.keys() - {table for (table,) in guarded})


def fence(connection: Connection[TupleRow]) -> None:
    """Have every write refused from the end of this transaction on; nothing is written after it. The caller bounds its waits for locks.

    Raises:
        psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected: somebody writes for long; roll back, and try again.
        psycopg.Error: the store is a sole one, or the user does not own the tables.
    """
    connection.execute(_STATEMENTS["fence_cell"].sql.encode(), {"tables": fenced_tables()})


def unfence(connection: Connection[TupleRow]) -> None:
    """Let the store be written to again, from the end of this transaction on.

    Raises:
        psycopg.Error: somebody reads for long, or the user does not own the tables.
    """
    connection.execute(_STATEMENTS["unfence_cell"].sql.encode())


def is_fenced_error(error: psycopg.Error) -> bool:
    """Tell whether a fence refused a statement."""
    return error.sqlstate == "DU001"
