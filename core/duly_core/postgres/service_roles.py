"""Make the services' roles, or correct them: `duly migrate --roles`."""

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow

from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.admin_connection import admin_connection
from duly_core.postgres.dsn import describe
from duly_core.postgres.rights import OWNERS_FUNCTIONS, PARTITIONED, TABLES, names, rights_of

_OURS = """
select relname, relkind::text, relispartition
from pg_class
where relnamespace = %s::regnamespace and relowner = (select relowner from pg_class where oid = 'task'::regclass)
    and relkind in ('r', 'p') and (relname = any(%s) or relispartition)
order by relname
"""
_FUNCTIONS = """
select proname, oid::regprocedure::text
from pg_proc
where pronamespace = %s::regnamespace and proname like 'duly\\_%%'
    and proowner = (select relowner from pg_class where oid = 'task'::regclass)
order by proname
"""
_LOCK = 0x64756C7B
"""The advisory lock of whoever gives rights: two at once would fail on the same row of the catalogue."""


def make_roles(dsn: str) -> list[str]:
    """Give each role the rights of `rights.py`, and no others; make roles that are missing. Return the new ones.

    Safe to repeat. The roles cannot log in and have no passwords.

    Raises:
        StoreUnavailableError: Postgres cannot be reached, or somebody holds its tables for long; nothing was changed.
        SettingsError: the user may not do so, or there is no schema of Duly.
    """
    try:
        with admin_connection(dsn) as connection:
            connection.execute("select pg_advisory_xact_lock(%s)", [_LOCK])
            made = [role for role in names() if _make(connection, role)]
            for statement in _statements(connection):
                connection.execute(statement)
            return made
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"the store at {describe(dsn)} cannot be changed now: {error}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise SettingsError(
            f"cannot make the roles at {describe(dsn)}: {_line(error)}; connect as the user who migrates, which owns the "
            "tables, and have an administrator make roles that are missing: "
            + "; ".join(f"create role {role} nologin" for role in names())
        ) from error
    except psycopg.Error as error:
        raise SettingsError(
            f"cannot make the roles at {describe(dsn)}: {_line(error)}; run `duly migrate` first"
        ) from error


def _make(connection: psycopg.Connection[TupleRow], role: str) -> bool:
    if connection.execute("select from pg_roles where rolname = %s", [role]).fetchone() is not None:
        return False
    connection.execute(sql.SQL("create role {} nologin").format(sql.Identifier(role)))
    return True


def _statements(connection: psycopg.Connection[TupleRow]) -> list[sql.Composed]:
    """Return what takes all rights from everybody else, and gives each role its own."""
    row = connection.execute(
        "select relnamespace::regnamespace::text from pg_class where oid = 'task'::regclass"
    ).fetchone()
    schema = row[0] if row else "public"
    quoted = sql.SQL(schema)  # by Postgres, where it has to be
    known = sorted({table for tables in TABLES.values() for table in tables})
    tables = connection.execute(_OURS, [schema, known]).fetchall()
    functions = connection.execute(_FUNCTIONS, [schema]).fetchall()
    everybody = sql.SQL(", ").join([sql.SQL("public"), *map(sql.Identifier, names())])
    statements = [
        sql.SQL("revoke create on schema {} from public").format(quoted),
        sql.SQL("grant usage on schema {} to {}").format(
            quoted, sql.SQL(", ").join(map(sql.Identifier, names()))
        ),
    ]
    for name, _, is_partition in tables:
        table = sql.SQL("{}.{}").format(quoted, sql.Identifier(name))
        statements.append(sql.SQL("revoke all on {} from {}").format(table, everybody))
        for role, rights in PARTITIONED.items() if is_partition else TABLES.items():
            parent = name.split("_")[0] if is_partition else name
            if parent in rights:
                statements.append(
                    sql.SQL("grant {} on {} to {}").format(
                        sql.SQL(rights_of(rights[parent])), table, sql.Identifier(role)
                    )
                )
    owners = {function for allowed in OWNERS_FUNCTIONS.values() for function in allowed}
    for name, signature in functions:
        function = sql.SQL("function {}").format(sql.SQL(signature))
        statements.append(sql.SQL("revoke all on {} from {}").format(function, everybody))
        callers = (
            [role for role, allowed in OWNERS_FUNCTIONS.items() if name in allowed]
            if name in owners
            else [*TABLES]
        )
        statements.append(
            sql.SQL("grant execute on {} to {}").format(
                function, sql.SQL(", ").join(map(sql.Identifier, callers))
            )
        )
    return statements


def _line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
