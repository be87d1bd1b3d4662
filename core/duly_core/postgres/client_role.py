"""Let a role of Postgres schedule tasks in its own transactions, and nothing else."""

import psycopg
from psycopg import sql

from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.admin_connection import admin_connection
from duly_core.postgres.dsn import describe

_FUNCTION = "duly_schedule"


def grant(dsn: str, role: str) -> bool:
    """Let `role` execute duly_schedule; make it, unable to log in, if there is none. Return whether it was made.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or somebody holds its tables for long; nothing was changed.
        SettingsError: the user may not grant it, or there is no schema of Duly.
    """
    try:
        with admin_connection(dsn) as connection:
            row = connection.execute("select from pg_roles where rolname = %s", [role]).fetchone()
            if row is None:
                connection.execute(sql.SQL("create role {} nologin").format(sql.Identifier(role)))
            for statement in _grants(connection, role):
                connection.execute(statement)
            return row is None
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"the store at {describe(dsn)} cannot be changed now: {error}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SettingsError(
            f"cannot grant it at {describe(dsn)}: {_line(error)}; connect as the user who migrates, which owns "
            f"{_FUNCTION}, and have an administrator make the role if it is missing: create role {role} nologin"
        ) from error
    except psycopg.Error as error:
        raise SettingsError(
            f"cannot grant it at {describe(dsn)}: {_line(error)}; run `duly migrate` first, or fix the role's name"
        ) from error


def _grants(connection: psycopg.Connection, role: str) -> list[sql.Composed]:
    """Usage of the schema in which the function is, and the function."""
    row = connection.execute(
        "select pronamespace::regnamespace::text from pg_proc where oid = %s::regproc", [_FUNCTION]
    ).fetchone()
    schema = sql.SQL(row[0] if row else "public")  # quoted by Postgres, where it has to be
    whose = sql.Identifier(role)
    return [
        sql.SQL("grant usage on schema {} to {}").format(schema, whose),
        sql.SQL("grant execute on function {}.{} to {}").format(schema, sql.Identifier(_FUNCTION), whose),
    ]


def _line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
