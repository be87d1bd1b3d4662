"""The two Postgres servers of a move: what each says, and the few things that are done on it.

Names of tables and schemas are part of most statements here, so these are composed, and not loaded from a `.sql` file.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, LiteralString, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow

from duly_core.cells.moving.errors import MoveError
from duly_core.errors import StoreUnavailableError
from duly_core.postgres.admin_connection import CONNECT
from duly_core.postgres.dsn import describe, parse, place_of, signing_in_of

STATEMENT_TIMEOUT = timedelta(seconds=60)
"""Of what is no copy and no comparison. A slot waits for the transactions that run when it is made."""
LOCK_TIMEOUT = timedelta(seconds=2)
"""While a statement waits for a table, the callers stand behind it: it gives up, and is tried again."""

KEPT_APART = ("alembic_version", "cell_directory", "cell", "cell_namespace")
"""Tables that say what a side is: neither published nor emptied."""
TIDYING = "turn"
"""Its row `upkeep` is taken out for the move: without it nobody adds or drops partitions, which replication does not show."""
MOST_BY_HAND = 1_000
"""Rows of a table that is copied by hand, because it has no primary key."""
COUNTED_ONLY = 200_000
"""Rows of a table from which on the comparison counts them, and reads no contents."""

Connection = psycopg.Connection[TupleRow]


def without_password(dsn: str) -> str:
    """Return an address that may be shown, compared and stored: the place alone. Each process signs in there as at its own store."""
    return place_of(dsn)


def in_schema(side: "Side") -> str:
    """Return the address of a side with its schema as the search path."""
    return make_conninfo(side.dsn, options=f"-c search_path={side.schema}")


@dataclass(frozen=True, slots=True)
class TableContents:
    """What the comparison reads of a table."""

    rows: int
    digest: str
    """Of all rows, in any order; empty: they were counted only."""


class Side:
    """One server, on one connection in autocommit mode."""

    def __init__(self, dsn: str, schema: str, role: str) -> None:
        """Make one; `role` is the word for it in messages: source or target."""
        self.dsn = dsn
        self.schema = schema
        self.role = role
        self._connection: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection, and with it the lock of the move."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connection is not None and not self._connection.closed

    @property
    def where(self) -> str:
        """The side in words."""
        return f"the {self.role} at {describe(self.dsn)}"

    @property
    def connection(self) -> Connection:
        """The connection, which is opened when it is needed.

        Raises:
            StoreUnavailableError: the server cannot be reached.
        """
        if self._connection is None or self._connection.closed:
            try:
                self._connection = psycopg.connect(self.dsn, autocommit=True, **CONNECT)  # type: ignore[arg-type]  # libpq takes them as text
                self._set_up(self._connection)
            except psycopg.OperationalError as error:
                raise StoreUnavailableError(f"{self.where} cannot be reached: {_line(error)}") from error
        return self._connection

    def _set_up(self, connection: Connection) -> None:
        milliseconds = timedelta(milliseconds=1)
        for name, value in {
            "search_path": self.schema,
            # what a comparison reads must be one text on both sides
            "timezone": "UTC",
            "datestyle": "ISO, YMD",
            "intervalstyle": "postgres",
            "bytea_output": "hex",
            "extra_float_digits": "1",
            "statement_timeout": str(STATEMENT_TIMEOUT // milliseconds),
            "lock_timeout": str(LOCK_TIMEOUT // milliseconds),
            "idle_session_timeout": "0",
        }.items():
            connection.execute("select set_config(%s, %s, false)", [name, value])

    def limit(self, longest: timedelta) -> None:
        """Let a statement take no longer than this from now on."""
        milliseconds = max(1, longest // timedelta(milliseconds=1))
        self.run("select set_config('statement_timeout', %s, false)", [str(milliseconds)])

    def run(
        self, statement: sql.SQL | sql.Composed | LiteralString, parameters: Sequence[object] = ()
    ) -> list[TupleRow]:
        """Run a statement, and return its rows.

        Raises:
            StoreUnavailableError: the server was lost, or the statement took too long.
            MoveError: the server refuses it.
        """
        query: sql.SQL | sql.Composed = sql.SQL(statement) if isinstance(statement, str) else statement
        with self.translated():
            cursor = self.connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def translated(self) -> Iterator[None]:
        """Have errors of psycopg raised as what `run` says."""
        try:
            yield
        except psycopg.OperationalError as error:
            raise StoreUnavailableError(f"{self.where}: {_line(error)}") from error
        except psycopg.Error as error:
            raise MoveError(f"{self.where}: {_line(error)}") from error

    def one(
        self, statement: sql.SQL | sql.Composed | LiteralString, parameters: Sequence[object] = ()
    ) -> Any:
        """Return the one value of a statement; None: it has no row."""
        rows = self.run(statement, parameters)
        return rows[0][0] if rows else None

    def table(self, name: str) -> sql.Identifier:
        """A table of the cell's schema."""
        return sql.Identifier(self.schema, name)

    def setting(self, name: str) -> str:
        """A setting of the server."""
        return str(self.one("select current_setting(%s)", [name]))

    def identity(self) -> tuple[str, str]:
        """The server and the database, to tell whether two sides are one place."""
        rows = self.run("select system_identifier::text, current_database() from pg_control_system()")
        return rows[0][0], rows[0][1]

    def version(self) -> tuple[str, str] | None:
        """The schema's version, and what `duly migrate` says of it; None: there is no schema."""
        if self.one("select to_regclass(%s)", [f"{self.schema}.alembic_version"]) is None:
            return None
        rows = self.run(
            sql.SQL("select version_num, coalesce(obj_description(%s::regclass), '') from {}").format(
                self.table("alembic_version")
            ),
            [f"{self.schema}.alembic_version"],
        )
        return (rows[0][0], rows[0][1]) if rows else None

    def tables(self) -> list[str]:
        """The tables with rows of the cell; partitions are not among them."""
        rows = self.run(
            "select relname::text from pg_class where relnamespace = to_regnamespace(%s) and relkind in ('r', 'p') "
            "and not relispartition and relname <> all (%s) order by relname",
            [self.schema, [*KEPT_APART]],
        )
        return [name for (name,) in rows]

    def by_hand(self) -> list[str]:
        """The tables that replication cannot follow, because they have no primary key, and the one with the turns."""
        rows = self.run(
            "select relname::text from pg_class where relnamespace = to_regnamespace(%s) and relkind in ('r', 'p') "
            "and not relispartition and relname <> all (%s) and (relname = %s or not exists "
            "(select from pg_index where indrelid = pg_class.oid and indisprimary)) order by relname",
            [self.schema, [*KEPT_APART], TIDYING],
        )
        return [name for (name,) in rows]

    def rows_of(self, table: str) -> list[TupleRow]:
        """All rows of a small table.

        Raises:
            MoveError: it is not small.
        """
        rows = self.run(
            sql.SQL("select to_jsonb(found)::text from {} as found limit {}").format(
                self.table(table), MOST_BY_HAND + 1
            )
        )
        if len(rows) > MOST_BY_HAND:
            raise MoveError(f"table {table} has no primary key and more than {MOST_BY_HAND:,} rows")
        return rows

    def contents(self, table: str) -> TableContents:
        """Read what is compared of a table."""
        name = self.table(table)
        (rows,) = self.run(sql.SQL("select count(*) from {}").format(name))[0]
        if rows > COUNTED_ONLY:
            return TableContents(rows, "")
        statement = "select coalesce(sum(hashtextextended(found::text, 0)), 0)::text from {} as found"
        return TableContents(rows, self.one(sql.SQL(statement).format(name)))

    def sequences(self) -> Mapping[str, int]:
        """The last values of the sequences that gave one."""
        rows = self.run(
            "select sequencename::text, last_value from pg_sequences where schemaname = %s and last_value is not null",
            [self.schema],
        )
        return {name: int(value) for name, value in rows}


def with_password_of(dsn: str, address: str) -> str:
    """Return an address with the user, TLS and password of another one, for a server that is reached under another name."""
    signing_in = {name: value for name, value in signing_in_of(dsn).items() if name != "options"}
    return make_conninfo("", **(signing_in | parse(address)))


def read_note(comment: str | None) -> Mapping[str, str]:
    """Read what a move wrote as a comment on its publication or subscription."""
    try:
        note = json.loads(comment or "{}")
    except ValueError:
        return {}
    return {str(name): str(value) for name, value in note.items()} if isinstance(note, dict) else {}


def _line(error: psycopg.Error) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
