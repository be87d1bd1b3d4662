"""The store's address: told to libpq, and shown to people without its password."""

from typing import Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import ProgrammingError

from duly_core.errors import SettingsError

OF_THE_PLACE = frozenset({"host", "hostaddr", "port", "dbname", "service"})
"""The parameters of libpq that say where a store is; the others say how to sign in."""


def parse(dsn: str) -> dict[str, Any]:
    """The parts of a libpq connection string or URI.

    Raises:
        SettingsError: it is neither.
    """
    try:
        return dict(conninfo_to_dict(dsn))
    except ProgrammingError as error:
        # libpq's message quotes the string, password included: say what is expected instead
        message = "store.dsn is not a Postgres address: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise SettingsError(message) from error


def in_schema(dsn: str, schema: str) -> str:
    """Return an address whose sessions have this schema as their search path; empty: the user's own.

    >>> in_schema("host=a", "duly_b")
    'host=a options=-csearch_path=duly_b'
    """
    if not schema:
        return dsn
    options = str(parse(dsn).get("options") or "")
    return make_conninfo(dsn, options=f"{options} -csearch_path={schema}".strip())


def place_of(dsn: str) -> str:
    """Return where an address leads, without how to sign in there.

    >>> place_of("postgresql://duly:secret@a/duly?sslmode=require")
    'dbname=duly host=a'
    """
    return make_conninfo("", **{name: value for name, value in parse(dsn).items() if name in OF_THE_PLACE})


def signing_in_of(dsn: str) -> dict[str, Any]:
    """Return the other parts of an address: user, TLS, passwords, and the settings of a session."""
    return {name: value for name, value in parse(dsn).items() if name not in OF_THE_PLACE}


def describe(dsn: str) -> str:
    """Host, port and database, for messages."""
    parts = parse(dsn)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
