"""Opens a connection for one command of an administrator, such as `duly migrate --roles`, and bounds its waits."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import psycopg
from psycopg.rows import TupleRow

CONNECT = {
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""Of a connection that is not a service's."""
LOCK_TIMEOUT = timedelta(seconds=10)
"""How long a statement waits for others' locks."""
STATEMENT_TIMEOUT = timedelta(seconds=30)
"""The longest time of a statement: rights are given to hundreds of partitions."""


@contextmanager
def admin_connection(dsn: str) -> Iterator[psycopg.Connection[TupleRow]]:
    """Give a connection whose statements are one transaction. It commits at the end of the block.

    Raises:
        OperationalError: Postgres cannot be reached, or a wait took too long; nothing was changed.
    """
    with psycopg.connect(dsn, **CONNECT) as connection:  # type: ignore[arg-type]  # libpq takes them as text
        # of the transaction only: poolers refuse start-up options, and share sessions out again
        connection.execute(
            "select set_config('lock_timeout', %s, true), set_config('statement_timeout', %s, true)",
            [_milliseconds(LOCK_TIMEOUT), _milliseconds(STATEMENT_TIMEOUT)],
        )
        yield connection


def _milliseconds(time: timedelta) -> str:
    return str(time // timedelta(milliseconds=1))
