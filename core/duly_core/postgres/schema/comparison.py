"""Compares the schema of a store with the one that this release makes: by what Postgres says of both."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg
from psycopg.rows import TupleRow

from duly_core.errors import SettingsError, StoreUnavailableError
from duly_core.postgres.admin_connection import admin_connection
from duly_core.postgres.dsn import describe
from duly_core.postgres.schema.definition import made_names
from duly_core.postgres.schema.digest import Stamp, contracted, digest, plain, source_digest
from duly_core.postgres.schema.steps import NEEDED, NEWEST, STEPS, Step, sql_at
from duly_core.postgres.settings import SCHEMA_NAME
from duly_core.postgres.statements import load

_DESCRIBE = load("postgres/catalogue.sql")["describe_schema"]

_SCRATCH = "duly_comparison"
"""Begins the name of the schema in which this release's is made, in a transaction that is rolled back."""

_ORDER = ("table", "column", "constraint", "unique index", "index", "trigger", "function", "type")
_MOST_NAMED = 5

Connection = psycopg.Connection[TupleRow]
Description = Mapping[tuple[str, str], str]
"""The definition of each thing, by its kind and name."""


def compare(dsn: str) -> list[str]:
    """Return in words how the schema of a store differs from this release's; empty: it does not. Nothing is changed.

    Raises:
        StoreUnavailableError: Postgres cannot be reached.
        SettingsError: there is no schema of this release to compare, or the user may not make a schema.
    """
    where = describe(dsn)
    try:
        with admin_connection(dsn) as connection:
            row = connection.execute("select to_regclass('alembic_version') is not null").fetchone()
            versions = connection.execute("select version_num from alembic_version") if row == (True,) else ()
            for (version,) in versions:
                if not NEEDED <= version <= NEWEST:
                    raise SettingsError(
                        f"the schema of the store at {where} is {version}, and this release's is {NEWEST}: "
                        + (
                            "run `duly migrate`"
                            if version < NEWEST
                            else "compare with the release that made it"
                        )
                    )
                return differences(connection, version)
            raise SettingsError(f"the store at {where} has no schema of Duly: run `duly migrate`")
    except psycopg.OperationalError as error:
        raise StoreUnavailableError(f"the store at {where} cannot be reached: {_line(error)}") from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise cannot_compare(dsn, error) from error


def keep_or_compare(
    connection: Connection, dsn: str, version: str, steps: Sequence[Step] = STEPS, *, is_new: bool = False
) -> None:
    """Stamp a schema that this process made; of another, check that it is this release's, and stamp it.

    Raises:
        SettingsError: it is another; says in what it differs.
        psycopg.errors.InsufficientPrivilege: the user may not make a schema, or does not own the tables.
    """
    stamp = Stamp(source_digest(), _digest_of_catalogue(connection), contracted(version, steps))
    if stamp == stamp_of(connection):
        return
    found = [] if is_new else differences(connection, version, steps)
    if found:
        raise SettingsError(
            f"the schema of the store at {describe(dsn)} says that it is {version}, and is not this release's: "
            f"{_some(found)}. Another build made it, or somebody changed it. Make a new database, and name it in store.dsn "
            "(`duly up`: another folder with --data), or undo the changes; `duly migrate --check` lists all"
        )
    connection.execute(f"comment on table alembic_version is '{stamp}'".encode())


def stamp_of(connection: Connection) -> Stamp | None:
    """Return what the last migration left."""
    row = connection.execute("select obj_description('alembic_version'::regclass)").fetchone()
    return Stamp.read(row[0] if row else None)


def differences(connection: Connection, version: str = NEWEST, steps: Sequence[Step] = STEPS) -> list[str]:
    """Return in words how the schema that is there differs from this release's of that version; empty: it does not.

    Raises:
        psycopg.errors.InsufficientPrivilege: the user may not make a schema.
    """
    rows = connection.execute(
        "select current_schema(), quote_ident(current_schema()), quote_literal(current_schema())"
    )
    ((schema, quoted, literal),) = rows.fetchall()
    found = _description(connection, schema)
    connection.rollback()
    scratch = _scratch_of(schema)
    # no subtransaction: in one, a value that was added to an enum cannot be used
    with connection.transaction(force_rollback=True):
        connection.execute(f"create schema {scratch}".encode())
        connection.execute(f"set local search_path = {scratch}".encode())
        for text in sql_at(version, scratch, steps):
            connection.execute(text.encode())
        made = _description(connection, scratch)
    wanted = {
        key: text.replace(f"'{scratch}'", literal).replace(scratch, quoted) for key, text in made.items()
    }
    return [*_told(found, wanted)]


def _scratch_of(schema: str) -> str:
    """Return a name of its own for each schema: several cells of one database may be compared at once."""
    return f"{_SCRATCH}_{schema}" if schema != "public" and SCHEMA_NAME.fullmatch(schema) else _SCRATCH


def cannot_compare(dsn: str, error: psycopg.Error) -> SettingsError:
    """Return the refusal for a user with too few rights."""
    return SettingsError(
        f"the schema of the store at {describe(dsn)} cannot be compared with this release's: {_line(error)}; run this as the "
        "user who owns the tables, and let that user make a schema for a moment (grant create on database ... to ...)"
    )


def _description(connection: Connection, schema: str) -> Description:
    """Return what Postgres says of Duly's tables, functions and types in a schema, the first of the search path."""
    names: dict[str, Any] = {f"{kind}s": names for kind, names in made_names().items()}
    rows = connection.execute(_DESCRIBE.sql, names | {"schema": schema}).fetchall()
    return {(kind, name): plain(definition or "") for kind, name, definition in rows}


def _digest_of_catalogue(connection: Connection) -> str:
    ((schema,),) = connection.execute("select current_schema()").fetchall()
    found = _description(connection, schema)
    return digest(f"{kind} {name}: {found[kind, name]}" for kind, name in sorted(found))


def _told(found: Description, wanted: Description) -> Iterator[str]:
    """Yield a sentence for each difference. What belongs to a table that is missing is not told beside it."""
    missing = {name for kind, name in wanted.keys() - found.keys() if kind == "table"}
    for kind, name in sorted(found.keys() | wanted.keys(), key=lambda key: (_ORDER.index(key[0]), key[1])):
        if kind != "table" and name.partition(".")[0] in missing:
            continue
        before, after = found.get((kind, name)), wanted.get((kind, name))
        if before is None:
            yield f"{kind} {name} is missing"
        elif after is None and kind != "index":  # operators may add indexes
            yield f"{kind} {name} is not this release's"
        elif after is not None and before != after:
            yield f"{kind} {name} differs"


def _some(found: list[str]) -> str:
    more = f", and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(found[:_MOST_NAMED]) + more


def _line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0]
