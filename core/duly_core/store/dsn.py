"""The store's address: told to libpq and SQLAlchemy, and shown to people without its password."""

from typing import Any

import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from psycopg.errors import ProgrammingError

from duly_core.errors import SettingsError


def parse(dsn: str) -> dict[str, Any]:
    """The parts of a libpq connection string or URI.

    Raises:
        SettingsError: it is neither.
    """
    try:
        return dict(conninfo_to_dict(dsn))
    except ProgrammingError as error:
        # libpq's message quotes the string, password included: say what is expected instead
        message = "store.dsn is no Postgres address: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        raise SettingsError(message) from error


def describe(dsn: str) -> str:
    """Host, port and database, for messages."""
    parts = parse(dsn)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"


def sqlalchemy_url(dsn: str) -> sa.URL:
    """The same address for SQLAlchemy, with psycopg as its driver."""
    parts = parse(dsn)
    known = {name: parts.pop(name, None) for name in ("user", "password", "host", "port", "dbname")}
    parts.pop("connect_timeout", None)
    query: dict[str, str | tuple[str, ...]] = {name: str(value) for name, value in parts.items()}
    hosts = str(known["host"] or "").split(",")
    if len(hosts) > 1:  # a primary and its standbys: libpq tries them in turn
        ports = str(known["port"] or 5432).split(",")
        ports = ports * len(hosts) if len(ports) == 1 else ports
        query["host"] = tuple(f"{host}:{port}" for host, port in zip(hosts, ports, strict=True))
        known["host"] = known["port"] = None
    return sa.URL.create(
        "postgresql+psycopg",
        username=known["user"],
        password=known["password"],
        host=known["host"],
        port=int(known["port"]) if known["port"] else None,
        database=known["dbname"],
        query=query,
    )
