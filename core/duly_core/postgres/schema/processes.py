"""Which processes do not know a version of the schema: contract steps wait for them."""

import psycopg
from psycopg.rows import TupleRow

from duly_core.postgres.statements import load
from duly_core.process.version import duly_version

_OLDER = load("postgres/catalogue.sql")["older_processes"]


def older_processes(connection: psycopg.Connection[TupleRow], version: str) -> list[str]:
    """Return in words which processes are alive and do not know `version`.

    Services say the newest schema that they know. Workers use no schema; one of another release may be a part of a way back.
    """
    rows = connection.execute(_OLDER.sql, {"version": version, "release": duly_version()}).fetchall()
    return [process for (process,) in rows]
