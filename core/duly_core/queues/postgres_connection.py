"""How the queue's Postgres is connected to, and what its failures mean to an operator.

Behind pgbouncer: let it ignore the start-up parameter `options`, and give the role what
`_SERVER_SETTINGS` says.
"""

from typing import Any, Final

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from duly_core.errors import SettingsError

_SERVER_SETTINGS: Final = {
    "statement_timeout": "5s",
    # A message may be lost, so nobody waits for the disk.
    "synchronous_commit": "off",
    # The table is small and churns: statistics of a moment when it was empty must not bring up a plan
    # that reads all of it. Every statement has an index to go by.
    "enable_seqscan": "off",
    "jit": "off",
    "timezone": "UTC",
}

_CONNECTION_SETTINGS: Final = {
    "application_name": "duly queue",
    "connect_timeout": 3,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,  # milliseconds
}

_NOT_MIGRATED: Final = (errors.UndefinedTable, errors.UndefinedFunction)

UNAVAILABLE: Final = (
    *_NOT_MIGRATED,
    psycopg.OperationalError,  # no connection, a timeout, a shutdown
    psycopg.InterfaceError,  # the connection is closed
    errors.InsufficientPrivilege,
    errors.ReadOnlySqlTransaction,  # a standby
)
"""What Postgres says when it cannot do a statement now; the rest are mistakes of ours."""


def connection_string(dsn: str) -> str:
    """Complete a DSN with our limits; what the DSN itself says goes before them.

    Raises:
        SettingsError: the DSN cannot be read.
    """
    try:
        given: dict[str, Any] = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # libpq's message quotes the DSN, password included: say what is expected instead.
        raise SettingsError(
            "the queue's DSN is no Postgres address: write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
        ) from None
    ours = " ".join(f"-c {name}={value}" for name, value in _SERVER_SETTINGS.items())
    options = f"{ours} {given.pop('options', None) or ''}".strip()
    return make_conninfo(**{**_CONNECTION_SETTINGS, **given, "options": options})


def reason_of(error: Exception) -> str:
    """Why Postgres did not do what it was asked, in an operator's words."""
    if isinstance(error, _NOT_MIGRATED):
        return (
            "the queue table does not exist yet: "
            "start a Frontend, Store Consumer or HSC first, which migrate the store"
        )
    said = str(error).strip() or type(error).__name__
    return f"the queue's Postgres did not do it: {said.splitlines()[0]}"
